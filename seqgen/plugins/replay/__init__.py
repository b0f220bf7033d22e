"""Recorded results, made again."""
