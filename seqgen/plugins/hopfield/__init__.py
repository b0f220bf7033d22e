"""Associative memories, which restore corrupted lines."""
