"""Classifying texts and tagging sentences."""
