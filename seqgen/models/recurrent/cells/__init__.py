"""Recurrent cells: one file each, with its equation written once."""
