"""A search for settings: what it tries, its trials on disk, and their training."""
