"""A trained model as a lossless compressor."""
