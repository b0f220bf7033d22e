"""Writing with a model: filters, draws, search. Knows models and states, no architecture."""
