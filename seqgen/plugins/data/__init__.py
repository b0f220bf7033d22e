"""What is in a text, before a model is trained on it."""
