"""N-gram models: tables of counted n-grams, and looking them up."""
