"""What a trained model knows of words, as vectors."""
