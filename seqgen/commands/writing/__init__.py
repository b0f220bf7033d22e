"""Writing with a model: samples, beams, what explains them."""
