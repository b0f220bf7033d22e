"""Measuring speed against plain baselines, in one run, as medians of alternated runs."""
