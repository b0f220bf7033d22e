"""Estimates of the memory and traffic of training on several ranks."""
