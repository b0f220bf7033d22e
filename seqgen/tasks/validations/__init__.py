"""How each kind of model is measured on the held-out part, while it is trained and after it."""
