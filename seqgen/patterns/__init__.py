"""Languages that a text must belong to: patterns, grammars, JSON schemas, as automata over bytes."""
