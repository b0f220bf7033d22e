"""Bindings of the compiled C library: products of few rows and whole model steps in one call.

`kernels.c` is compiled where the package is built, if there is a compiler. Everything here is a
way of computing what NumPy computes in `arrays.py`, in float32; without the library NumPy does it.
"""
