"""Regimes: what the model reads while it trains, and what is minimised; an idea a file."""
