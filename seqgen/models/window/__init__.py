"""The neural network over the last few tokens."""
