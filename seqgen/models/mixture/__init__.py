"""Several language models interpolated."""
