"""How each kind of model is measured on the held-out part, during and after training."""
