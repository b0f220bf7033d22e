"""Gradient training: the loop, update rules, schedules."""
