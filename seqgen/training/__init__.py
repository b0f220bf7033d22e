"""Training by gradients and by counting: the loop, objectives, optimizers, checkpoints."""
