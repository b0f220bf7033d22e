"""Numerical engines: arrays, precision, quantized matrices, memory limits."""
