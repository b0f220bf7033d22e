"""Instruments that show how gradients, weights and units behave, and why training fails."""
