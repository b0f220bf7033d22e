"""What models learn from: each kind of data opened, split, encoded, and read again to resume."""
