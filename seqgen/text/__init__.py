"""Reading text, holding out a part, and making batches."""
