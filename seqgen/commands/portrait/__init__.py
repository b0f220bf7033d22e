"""What a page about a model shows: its training, and how well it predicts."""
