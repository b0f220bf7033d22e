"""A server of trained models: texts of many clients in one batch, each as if it were alone."""
