"""What all commands share: options and their help, input and output, tables, progress."""
