"""Languages that a text must belong to: patterns and grammars, as automata over bytes."""
