"""What is held out stays out of training when the data changes; what leaks is told."""

from __future__ import annotations

import itertools
import json
import random
import string
from typing import ClassVar

import numpy as np
import pytest
from helpers_cli import has_plugin
from hypothesis import given
from hypothesis import strategies as st

from seqgen import store
from seqgen.errors import SeqgenError
from seqgen.store.manifest import MANIFEST
from seqgen.text.overlap import find_occurrences
from seqgen.text.sources import content_of
from seqgen.text.tokenizers import load_tokenizer
from seqgen.training.datasets.dataset import Dataset
from seqgen.training.reload import DataLocation, reload_stored_data, tokens_of
from seqgen.training.resume import resume
from seqgen.training.train import train

TINY = {"num_layers": 1, "hidden_size": 4, "batch_size": 4, "seed": 1, "precision": "float32"}
COUNT = 60


def random_words(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(string.ascii_lowercase, k=12)) for _ in range(count)]


def notices(call, *arguments, **keywords) -> list[str]:
    """Return what a call tells by the way."""
    said: list[str] = []
    call(*arguments, **keywords, report=lambda event: said.append(getattr(event, "text", "")))
    return said


def flattery(said: list[str]) -> list[str]:
    return [text.partition(", so ")[0] for text in said if "held-out" in text and "are in" in text]


class Kind:
    """A kind of data: how its items are written, and how those of a training part are read."""

    settings: ClassVar[dict] = {}
    how: ClassVar[dict] = {"architecture": "rnn"}

    def item(self, word: str) -> str:
        return word

    def line(self, item: str) -> str:
        return f"{item}\n"

    def write(self, folder, words) -> dict:
        path = folder / "data.txt"
        path.write_text("".join(self.line(self.item(word)) for word in words))
        return {"data": [path]}

    def trained_on(self, prepared) -> list[str]:
        return "".join(prepared.split.train()).splitlines()

    def held_out(self, prepared) -> list[str]:
        return "".join(prepared.split.val()).splitlines()


class Stream(Kind):
    pass


class Lines(Kind):
    settings: ClassVar[dict] = {"documents": "line"}


class Pairs(Kind):
    how: ClassVar[dict] = {"architecture": "seq2seq"}

    def item(self, word):
        return f"{word}\t{word[::-1]}"

    def _read(self, pairs):
        return [f"{content_of(source)}\t{target}" for source, target in pairs]

    def trained_on(self, prepared):
        return self._read(prepared.parts.train)

    def held_out(self, prepared):
        return self._read(prepared.parts.val)


class Labelled(Pairs):
    settings: ClassVar[dict] = {"labels": True}
    how: ClassVar[dict] = {"architecture": "rnn"}

    def item(self, word):
        return f"{'ab'[word < 'm']}\t{word}"


class Vectors(Pairs):
    def write(self, folder, words):
        letters = np.array([[ord(letter) for letter in word] for word in words], dtype=np.float32)
        np.save(folder / "data.npy", letters)
        (folder / "data.txt").write_text("".join(f"{word}\n" for word in words))
        return {"data": [folder / "data.npy"], "targets": [folder / "data.txt"]}

    def item(self, word):
        return word

    def _read(self, pairs):
        assert all("".join(map(chr, map(int, s.values.ravel()))) == word for s, word in pairs)
        return [word for _, word in pairs]


class Classified(Kind):
    how: ClassVar[dict] = {"task": "classify"}

    def item(self, word):
        return f"{word}\t{'ab'[word < 'm']}"

    def _read(self, examples):
        return [f"{e.text}\t{''.join(e.labels)}" for e in examples]

    def trained_on(self, prepared):
        return self._read(prepared.training)

    def held_out(self, prepared):
        return self._read(prepared.held_out)


class Tagged(Classified):
    how: ClassVar[dict] = {"task": "tag"}

    def line(self, item):
        return f"{item}\n\n"


KINDS = [Stream(), Lines(), Pairs(), Labelled(), Vectors()]
KINDS += [Classified(), Tagged()] if has_plugin("labels") else []
NAMED = {"ids": lambda kind: type(kind).__name__}


def begun(kind: Kind, folder, words, steps=4, **settings) -> store.StoredModel:
    """Train a model for two steps of its budget."""
    given = {**TINY, "steps": steps, **kind.settings, **settings}
    train(**kind.write(folder, words), name="m", **kind.how, settings=given, stop_after=2)
    return store.find("m")


def read_again(stored, changed_data=False):
    tokenizer = load_tokenizer(stored.path / "tokenizer")
    tokens = tokens_of(stored, tokenizer)
    moved = DataLocation(may_differ=changed_data)
    return reload_stored_data(stored, tokens, moved)


@pytest.mark.fast_for("Stream", "Tagged")
@pytest.mark.parametrize("kind", KINDS, **NAMED)
def test_what_is_held_out_stays_out_of_a_changed_text(kind, tmp_path):
    old, new = random_words(1, COUNT), random_words(2, 7)
    stored = begun(kind, tmp_path, old)
    held = kind.held_out(read_again(stored))
    assert len(held) == COUNT // 10 or (isinstance(kind, Stream) and len(held) > 4)
    # Lines that come first move every line: the split would hold out others.
    changed = [*new, *old, *new[::-1]] if isinstance(kind, Stream) else [*new, *old[::-1], *old]
    kind.write(tmp_path, changed)
    with pytest.raises(SeqgenError, match="not the text m was trained on"):
        read_again(stored)
    prepared = read_again(stored, changed_data=True)
    assert kind.held_out(prepared) == held
    everything, rest = [kind.item(word) for word in changed], kind.trained_on(prepared)
    if isinstance(kind, Stream):  # cut within a line: its characters are all there, once
        assert "\n".join(rest).count("\n".join(held)) == 0
        joined = "".join(f"{item}\n" for item in everything)
        assert len("".join(f"{line}\n" for line in [*rest, *held])) == len(joined)
    else:
        assert sorted(rest) == sorted(item for item in everything if item not in held)
        assert len(rest) == len(new) + 2 * (COUNT - len(held))  # every copy is left out
    said = notices(resume, "m", changed_data=True)
    assert "the data has changed: what was held out stays held out" in said
    assert not flattery(said)


@pytest.mark.fast_for("Stream", "Tagged", rest="slow")
@pytest.mark.parametrize("kind", KINDS, **NAMED)
def test_a_run_whose_data_is_as_it_was_reads_the_same_part(kind, tmp_path):
    words = random_words(1, 20)
    stored = begun(kind, tmp_path, [*words, *words[:5]])
    first = kind.trained_on(read_again(stored))
    assert kind.trained_on(read_again(stored, changed_data=True)) == first
    assert not any("has changed" in text for text in notices(resume, "m", changed_data=True))


def write_files(kind: Kind, folder, words, count=3) -> dict:
    """Write items into several files, each without its last newline."""
    data, paths = kind.write(folder, words), []
    for number in range(count):
        paths.append(folder / f"part{number}.txt")
        lines = "".join(kind.line(kind.item(word)) for word in words[number::count])
        paths[-1].write_text(lines.removesuffix("\n"))
    # Vectors are in the order of the words in these files.
    if "targets" in data:
        kind.write(folder, [word for number in range(count) for word in words[number::count]])
        return {**data, "targets": paths}
    return {"data": paths}


def begun_on_files(kind: Kind, folder, words) -> store.StoredModel:
    files = write_files(kind, folder, words)
    train(
        **files, name="m", **kind.how, settings={**TINY, "steps": 4, **kind.settings}, stop_after=2
    )
    return store.find("m")


@pytest.mark.fast_for("Lines", "Pairs", rest="slow")
@pytest.mark.parametrize("kind", KINDS, **NAMED)
def test_a_file_without_a_last_newline_ends_its_last_record(kind, tmp_path):
    words = random_words(1, 30)
    prepared = read_again(begun_on_files(kind, tmp_path, words))
    found = [*kind.trained_on(prepared), *kind.held_out(prepared)]
    if isinstance(kind, Stream):  # joined as `cat` joins files
        apart = ["\n".join(words[number::3]) for number in range(3)]
        assert "".join(prepared.split.train()) + "".join(prepared.split.val()) == "".join(apart)
    else:
        assert sorted(found) == sorted(map(kind.item, words))
    resume("m")


class OwnLabels(Labelled):
    """Joined, the first label of a file is text, which no model then knows as a label."""

    def item(self, word):
        return f"{word}\t{word[::-1]}"


# Those whose data an earlier version could read where it joins two records.
JOINED = [*(kind for kind in KINDS if not isinstance(kind, Vectors)), OwnLabels()]


@pytest.mark.fast_for("Lines", "Classified", rest="slow")
@pytest.mark.parametrize("kind", JOINED, **NAMED)
def test_a_run_that_an_earlier_version_began_reads_what_it_read(kind, tmp_path, monkeypatch):
    """Earlier versions joined files as `cat` does, and recorded the hash of that text."""
    words = random_words(1, 30)
    with monkeypatch.context() as earlier:
        earlier.setattr(Dataset, "ending", "")
        stored = begun_on_files(kind, tmp_path, words)
        first = read_again(stored)
    prepared = read_again(stored)
    assert kind.trained_on(prepared) == kind.trained_on(first)
    assert kind.held_out(prepared) == kind.held_out(first)
    np.testing.assert_array_equal(prepared.train.tokens, first.train.tokens)
    assert not any("has changed" in text for text in notices(resume, "m"))


def test_a_stream_whose_held_out_part_has_changed_is_refused(tmp_path):
    words = random_words(1, COUNT)
    begun(KINDS[0], tmp_path, words)
    KINDS[0].write(tmp_path, [*words[:-3], "x", *words[-2:]])
    with pytest.raises(SeqgenError, match="only some lines of the part that is held out"):
        resume("m", changed_data=True)
    KINDS[0].write(tmp_path, random_words(3, COUNT))  # another text has none of it
    assert resume("m", changed_data=True).steps == 4


@pytest.mark.fast_for("Lines", "Classified")
@pytest.mark.parametrize("kind", KINDS[1:], **NAMED)
def test_three_copies_are_told_at_first_and_on_resuming(kind, tmp_path):
    """So that a model that has learned its validation part by heart is not believed."""
    files = kind.write(tmp_path, 3 * random_words(1, 20))
    given = {**TINY, "steps": 4, **kind.settings}
    told = [flattery(notices(train, **files, name="m", **kind.how, settings=given, stop_after=2))]
    told.append(flattery(notices(resume, "m")))
    what = "lines" if isinstance(kind, Lines) else "examples"
    what = "pairs" if isinstance(kind, Pairs) else what
    for (line,) in told:
        count, of, total, *rest = line.split()
        assert (of, total, rest[0], rest[1]) == ("of", "6", "held-out", what)
        assert int(count) >= 4  # of three copies, two are held out together at times


@pytest.mark.fast_for("Lines", rest="slow")
@pytest.mark.parametrize("kind", KINDS, **NAMED)
def test_fine_tuning_with_another_split_is_told(kind, tmp_path):
    words = random_words(1, COUNT)
    files = kind.write(tmp_path, words)
    given = {**TINY, "steps": 2, **kind.settings}
    train(**files, name="a", **kind.how, settings=given)
    sizes = {"steps": 2, "batch_size": 4, "seed": 1, "precision": "float32", **kind.settings}
    task = {k: v for k, v in kind.how.items() if k == "task"}

    def told(name, **more):
        settings = {**sizes, "init_from": name, **more}
        how = {**task, "name": f"{name}b", "overwrite": True}
        said = notices(train, **files, **how, settings=settings)
        return [line.rpartition(" are in ")[2] for line in flattery(said)]

    other = {"val": "0.5"} if isinstance(kind, Stream) else {"split_seed": 7}
    assert told("a") == []
    assert told("a", **other) == ["the training part of a too"]
    # What the origin itself started from was trained on as well.
    assert "the training part of a too" in told("ab", **other)
    for path in (*files["data"], *files.get("targets", ())):
        path.rename(path.with_name("gone-" + path.name))
    kind.write(tmp_path, random_words(9, COUNT))
    assert told("a", **other) == []


@given(st.text("ab", max_size=40), st.text("ab", min_size=1, max_size=4), st.data())
def test_copies_of_a_part_are_found_as_by_searching_the_whole(text, part, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds)]
    expected, at = [], text.find(part)
    while at >= 0:
        expected.append(at)
        at = text.find(part, at + len(part))
    assert list(find_occurrences(pieces, part)) == expected


@pytest.mark.parametrize("damaged", [-1, {"bytes": "many"}, {"bytes": 1}, None])
def test_fine_tuning_from_a_model_with_a_damaged_record(damaged, tmp_path):
    """Nothing is known of what it was trained on, and nothing is said of that."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{word}\n" for word in random_words(1, COUNT)))
    train([path], name="old", architecture="rnn", settings={**TINY, "steps": 1})
    record = store.find("old").path / store.RECORD
    table = json.loads(record.read_text())
    record.write_text(json.dumps({**table, "data": damaged}))
    (record.parent / MANIFEST).unlink()  # as models of 0.1.0 have none
    assert store.result_of(store.find("old"))
    settings = {"steps": 1, "val": "0.2", "init_from": "old"}
    said = notices(train, [path], name="new", settings=settings)
    assert store.find("new").record["result"]["steps"] == 1 and not flattery(said)
