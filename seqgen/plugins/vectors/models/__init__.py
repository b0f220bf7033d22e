"""Models of word vectors: word2vec and GloVe."""
