"""Shared by all commands: options and help, input and output, tables, progress bars."""
