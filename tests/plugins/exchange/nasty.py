"""Texts that tokenizers are likely to read in different ways."""

import numpy as np

# Marks of sentencepiece, escapes, names of tokens and bytes, white space of every kind, letters
# that regular expressions disagree about, marks, digits, joined emoji, and code points at the ends.
ODD = (
    *"\u2581\x10_ \n\t\r\x0b\x0c\x1c\x1f\x85\xa0\u2028\u3000\0\x7f\ufeff\ufffd\U0010ffff",
    *"'\u2019\"<>0xA\u00b2\u0661\u2160\u0301\u00e9\u00df\u0130\u0149\u4e2d\u200d\u203f\u0e33",
    *("<unk>", "<pad>", "<bos>", "<eos>", "< unk>", "<s>", "</s>", "\u2581<unk>", "<0x0A>"),
    *("<0x41", "<0xff>", "<0xE2><0x96>", "<<0x00>>", "\r\n", "  ", "   ", "\x10\x10", "\x10_"),
    *("it's", "he\u2019d", "'", "a\u0301", "\U0001f468\u200d\U0001f469", "<|endoftext|>", "[UNK]"),
)


def nasty_texts(text, count, seed=1):
    """Return texts of odd parts, of pieces of a real text, and of both, a third of each."""
    draw = np.random.default_rng(seed)

    def part(real):
        if not real:
            return ODD[draw.integers(len(ODD))] * int(draw.choice([1, 1, 1, 2, 3, 7]))
        at = int(draw.integers(len(text)))
        return text[at : at + int(draw.integers(1, 24))]

    def one(kind):
        reals = {0: [False] * 8, 1: [True] * 12, 2: draw.random(12) < 0.5}[kind]
        return "".join(part(real) for real in reals[: draw.integers(1, 13)])

    return [one(i % 3) for i in range(count)]
