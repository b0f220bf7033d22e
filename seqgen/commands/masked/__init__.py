"""What a masked model is for: filling in what is hidden, and scoring by it."""
