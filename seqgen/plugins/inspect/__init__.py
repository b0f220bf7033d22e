"""What a model does with a text, token by token."""
