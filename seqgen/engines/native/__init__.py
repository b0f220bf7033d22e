"""Products of few rows, and whole steps of a model, in one call of a compiled library.

`kernels.c` is compiled where the package is built, if there is a compiler. Everything here is a
way of computing what NumPy computes in `arrays.py`, in float32; without the library NumPy does it.
"""
