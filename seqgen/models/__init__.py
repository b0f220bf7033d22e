"""Architectures, one idea a class, each equation as in its paper."""
