"""Text generation: filters, sampling and search over any model's states."""
