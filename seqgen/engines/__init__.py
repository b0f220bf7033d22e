"""The arithmetic under the architectures: arrays, precision, quantized matrices, memory limits."""
