"""Everything beside the core: a folder each, which the core does not import."""
