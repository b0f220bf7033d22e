"""A mixture of a network and an n-gram model is as good as the better of them, but for noise.

Five small texts of different kinds; the weights are fitted on one half of the held-out part, and
both parts and the mixture are scored on the other.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from places import ROOT

from seqgen.scoring.mixture_fitting import token_log_probs
from seqgen.store.finding import find_all
from seqgen.store.loading import load
from seqgen.text.corpus import encode_corpus
from seqgen.training.train import train

# A mean may be worse by so many standard errors of the difference, token by token.
NOISE = 2.0

JAPANESE = (
    ("春の", "夏の", "秋の", "冬の", "古い", "静かな", "小さな"),
    ("山", "川", "町", "寺", "庭", "海辺", "学校", "図書館"),
    ("で", "に", "へ"),
    ("猫が", "先生が", "子供たちが", "祖母が", "旅人が", "鳥が"),
    ("歌っていた", "歩いて行った", "静かに眠っている", "手紙を書いた", "花を見た", "本を読む"),
    ("。", "。\n", "、そして", "が、"),
)
RUSSIAN = (
    ("Старый", "Молодой", "Усталый", "Весёлый", "Каждый"),
    ("мельник", "рыбак", "учитель", "почтальон", "часовщик", "сосед"),
    ("утром", "вечером", "зимой", "осенью", "по субботам"),
    ("чинил", "искал", "продавал", "покупал", "забывал", "рисовал"),
    ("лодку", "сети", "книги", "часы", "письма", "хлеб", "яблоки"),
    ("у реки.", "в саду.", "дома.", "на площади.\n", "и молчал.\n"),
)
VERSE = (
    ("O", "And", "Yet", "When", "Though", "So"),
    ("gentle", "weary", "silver", "bitter", "early", "golden"),
    ("winter", "morning", "river", "lover", "autumn", "shadow"),
    ("calls", "breaks", "turns", "bends", "leans", "falls"),
    ("upon the", "below the", "against the", "beside the"),
    (
        "hill,\n",
        "mill,\n",
        "shore,\n",
        "door;\n",
        "night,\n",
        "light.\n\n",
        "stone,\n",
        "alone.\n\n",
    ),
)
STARTS, MIDDLES = (
    ("An", "Be", "Ca", "Da", "El", "Ma", "Ro", "Vi"),
    ("n", "r", "l", "li", "ri", "da"),
)
ENDS = ("a", "na", "el", "on", "ius", "ette", "bert", "ine", "o")


def sentences(words: tuple[tuple[str, ...], ...], between: str, size: int) -> str:
    """Return so many bytes of sentences with one word of each list."""
    draw, text = random.Random(5), ""
    while len(text.encode()) < size:
        text += between.join(draw.choice(each) for each in words) + between
    return text


def names(size: int) -> str:
    """Return about so many bytes of names, one a line, none twice in a row."""
    draw = random.Random(6)
    every = ["".join(parts) for parts in itertools.product(STARTS, MIDDLES, ENDS)]
    return "".join(draw.choice(every) + "\n" for _ in range(size // 7))


def code(size: int) -> str:
    """Return so many characters of this project's own scripts, which seldom change."""
    files = sorted(path for folder in ("corpora", "docs") for path in (ROOT / folder).glob("*.py"))
    return "".join(path.read_text(encoding="utf-8") for path in files)[:size]


TEXTS = {
    "names": lambda: names(5_000),
    "japanese": lambda: sentences(JAPANESE, "", 20_000),
    "verse": lambda: sentences(VERSE, " ", 40_000),
    "cyrillic": lambda: sentences(RUSSIAN, " ", 60_000),
    "code": lambda: code(100_000),
}


@pytest.mark.fast_for("30-*", "300-names", "300-verse")
@pytest.mark.parametrize(
    "kind", ["names", *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(TEXTS)[1:])]
)
@pytest.mark.parametrize("steps", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_the_mixture_is_no_worse_than_the_better_part(tmp_path, monkeypatch, kind, steps):
    """After few steps the network is the worse part; after more it may be the better one."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "t.txt").write_text(TEXTS[kind](), encoding="utf-8")
    settings = {"steps": steps, "num_layers": 1, "hidden_size": 64, "batch_size": 8, "seed": 1}
    settings |= {"with_ngram": 0, "precision": "float32"}
    result = train([tmp_path / "t.txt"], name="t", settings=settings)
    columns = []
    stored = find_all("t")
    if result.mixture is None:  # the n-gram model was no help, and the network is stored alone
        assert not hasattr(stored, "parts")
        return
    held_out = stored.validation_text.read_text(encoding="utf-8")[stored.scored_from :]
    for loaded in (*map(load, stored.parts), load("t")):
        corpus = encode_corpus([held_out], loaded.tokenizer, loaded.data.documents)
        columns.append(torch.from_numpy(token_log_probs(loaded.model, corpus)))
    columns = torch.stack(columns)  # (3, M)
    assert columns.shape[1] == result.mixture["tokens"]
    network, ngram, mixture = columns
    best = max(network, ngram, key=torch.mean)
    loses = best - mixture
    error = loses.std().item() / loses.numel() ** 0.5
    assert loses.mean().item() <= NOISE * error
