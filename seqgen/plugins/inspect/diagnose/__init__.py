"""Gradients by distance, weights and units of a trained model, and warnings during training."""
