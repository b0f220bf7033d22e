"""The Python API: one function for each thing the command line does. None of them prints."""
