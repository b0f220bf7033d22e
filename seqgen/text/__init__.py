"""Text: reading, tokenization, the held-out part, token files and training batches."""
