"""Training a model: the plan, the data, what is chosen, the run."""
