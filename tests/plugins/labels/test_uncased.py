from seqgen.plugins.labels.uncased import UncasedTokenizer


def test_uncased_words_by_hand():
    text = "The end, said THE\tman:\ndon't!\n"
    tokenizer = UncasedTokenizer.train([text])
    ids = tokenizer.encode(text).tolist()
    words = ["the", "end", ",", "said", "the", "man", ":", "\n", "don't", "!", "\n"]
    assert tokenizer.pieces(ids) == words
    assert tokenizer.decode(ids) == "the end , said the man :\ndon't !\n"
    assert tokenizer.byte_ends("É, a\n").tolist() == [2, 3, 5, 6]
    assert tokenizer.first_unknown("The  END Then") == (9, "Then")
