"""A companion to five lectures, step by step."""
