"""Recurrent language models: the cells, and the layers around them."""
