"""Shared by all commands: options and their help, input and output, tables, progress."""
