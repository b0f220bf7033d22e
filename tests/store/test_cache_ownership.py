"""Of the cache nothing is deleted but what seqgen has written there, and no link is followed."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from examples import examples
from helpers_io import state
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import store
from seqgen.cli import run
from seqgen.files import LIST, delete_own, make_listed_folder, unlink_within, write_bytes
from seqgen.store.cache import (
    clear_cache,
    clear_leftovers,
    keep_measurement,
    kept_index_files,
    kept_measurement,
)
from seqgen.training.train import train

TEXT = "so it goes on and on, and it ends so.\n" * 30
TINY = {"hidden_size": 4, "num_layers": 1, "steps": 1}
HEX = "0123456789abcdef" * 2
FOLDERS = ("tokens", "index", "text", "machine")
# Names that a file of seqgen's, of this version or an older one, has or resembles.
NAMES = (
    *("own.txt", "my.json", "arriving-anything.csv", ".X.y.tmp", ".arriving.ab12_x.tmp"),
    *(f".{HEX}.tok.0123abcd.tmp", f"{HEX}.tok", f"{HEX}.json", f"{HEX}.val.txt", f"{HEX}.text"),
    *(f"{HEX}.order", f"{HEX}.txt", f"{HEX}.val.tok", "tmpab12cd.tmp", ".written-by-seqgen"),
)
CONTENTS = (b"mine", b"", b"{}", b'{"machine": {}, "about": {}, "found": 1}', b"[1]", b"\0" * 64)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A folder with texts, and a home with a cache that has files of every kind."""
    pytest.importorskip("pydivsufsort")
    folder = tmp_path_factory.mktemp("filled")
    text, pairs = folder / "text.txt", folder / "pairs.tsv"
    text.write_text(TEXT)
    pairs.write_text("one\to\ntwo\tt\n" * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        patch.setattr("seqgen.training.datasets.text.LARGE", 1)
        train([text], architecture="rnn", name="m", settings={**TINY, "seq_len": 6})
        train([pairs], architecture="seq2seq", name="p", settings=TINY)
        store.keep_text(iter([b"by standard input\n"]))
        kept_index_files(
            {"of": "this test"},
            lambda: {"order": (bytes(4 * 6),), "text": (b"a text", bytes(8)), "json": (b"{}",)},
            "order",
            "text",
            "json",
        )
        keep_measurement({"what": "this test"}, {"a": 1})
    return folder


@pytest.fixture
def own(home, filled) -> dict[Path, bytes]:
    """The content of each file in a copy of that cache; copies keep their times."""
    shutil.copytree(filled / "home", home)
    own = {path: path.read_bytes() for path in (home / "cache").glob("*/*")}
    assert {path.parent.name for path in own} == {*FOLDERS}
    assert {path.name[32:] for path in own if path.parent.name == "tokens"} == {
        *(".tok", ".val.tok", ".val.txt", ".json", ".source.tok", ".target.tok"),
    }
    return own


def clear() -> None:
    assert run(["models", "cache", "--clear"]) == 0


def texts(paths) -> set[Path]:
    return {path for path in paths if path.parent.name == "text"}


def test_all_that_seqgen_has_written_is_known_and_deleted(home, own, capfd):
    assert {*store.cached_files(), *store.measurements()} == {*own}
    assert store.foreign_files() == []
    capfd.readouterr()
    clear()
    assert "stays" not in capfd.readouterr().err
    assert {*(home / "cache").glob("*/*")} == texts(own)


@pytest.mark.parametrize("lost", [True, False], ids=["older", "copied"])
def test_what_an_older_version_has_written_is_known_by_name_and_content(home, own, lost):
    """It has no list; neither have files with other times, as some ways of copying make them."""
    if lost:
        (home / "cache" / LIST).unlink()
    for path in own:
        os.utime(path, ns=(1, 1))
    assert {*store.cached_files(), *store.measurements()} == {*own}
    clear()
    assert {*(home / "cache").glob("*/*")} == texts(own)


@pytest.mark.parametrize("listed", [True, False])
def test_what_was_changed_is_the_users(home, own, listed, capfd):
    """Under the very names of seqgen's files, with and without the list."""
    if not listed:
        (home / "cache" / LIST).unlink()
    for path in own:
        path.write_bytes(b"mine")
    before = state(home / "cache")
    capfd.readouterr()
    clear()
    assert {*store.foreign_files()} == {*own} and state(home / "cache") == before
    assert capfd.readouterr().err.count("so it stays") == 1


@pytest.mark.parametrize("listed", [True, False])
def test_nothing_else_is_deleted(home, tmp_path, capfd, listed):
    """Files, folders, pipes and links of many names; by clearing and by training."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / f"{HEX}.tok").write_bytes(b"seqgen.tokens\r\n\0")
    for folder in (home / "cache" / name for name in FOLDERS):
        folder.mkdir(parents=True)
        if listed:
            make_listed_folder(folder)
        for number, name in enumerate(NAMES):
            (folder / name).write_bytes(CONTENTS[number % len(CONTENTS)])
            (folder / f"d-{name}").mkdir()
        (folder / f"{HEX[::-1]}.tok").symlink_to(tmp_path / "outside" / f"{HEX}.tok")
        os.mkfifo(folder / ".pipe.0123abcd.tmp")
    before = state(*(home / "cache").glob("*/*"), tmp_path / "outside")
    text = tmp_path / "t.txt"
    text.write_text(TEXT)
    assert run(["train", str(text), "--model", "ngram", "--order", "2", "-q"]) == 0
    capfd.readouterr()
    clear()
    said = capfd.readouterr().err
    assert said.count("so it stays") == 1 and "more" in said
    assert before.items() <= state(*(home / "cache").glob("*"), tmp_path / "outside").items()
    assert run(["models", "cache"]) == 0
    assert capfd.readouterr().err.count("so it stays") == 1


@settings(max_examples=examples(20))
@given(st.sampled_from(FOLDERS), st.from_regex(r"[0-9a-f]{32}\.[a-z.]{1,12}", fullmatch=True))
def test_no_content_that_is_not_seqgens_is_taken_for_it(homes, folder, name):
    """Whatever the name is that it has."""
    place = next(homes) / "cache" / folder / name
    place.parent.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(place.parents[2]))
        for content in CONTENTS[:-1]:
            place.write_bytes(content)
            assert clear_cache() == clear_leftovers() == [] and place.read_bytes() == content


@pytest.mark.parametrize("linked", ["cache", "tokens"])
def test_a_link_that_leads_out_of_the_home_is_not_followed(
    home, own, filled, monkeypatch, tmp_path, linked, capfd
):
    """Not even to files that seqgen has written there."""
    real = home / "cache" if linked == "cache" else home / "cache" / "tokens"
    outside = tmp_path / "outside"
    real.rename(outside)
    real.symlink_to(outside)
    before = state(outside)
    capfd.readouterr()
    clear()
    assert state(outside) == before
    assert f"so it stays: {real}\n" in capfd.readouterr().err
    monkeypatch.setattr("seqgen.training.datasets.text.LARGE", 1)
    how = {**TINY, "seq_len": 6}
    train([filled / "text.txt"], architecture="rnn", name="n", settings=how)  # reads it
    assert {*outside.rglob("*.tok")} == {*map(Path, before)} & {*outside.rglob("*.tok")}


def test_the_home_itself_may_be_a_link(home, own, tmp_path):
    home.rename(tmp_path / "real")
    home.symlink_to(tmp_path / "real")
    assert len(clear_cache()) == len(own) - 1


def test_a_measurement_is_kept_under_the_name_that_its_content_gives(home):
    keep_measurement({"a": ["é", 1.5]}, {"b": 1})
    (path,) = (home / "cache" / "machine").iterdir()
    content = json.loads(path.read_text())
    key = json.dumps([content["machine"], content["about"]], sort_keys=True)
    assert path.stem == hashlib.sha256(key.encode()).hexdigest()[:32]
    assert kept_measurement({"a": ["é", 1.5]}) == {"b": 1}


def test_a_list_that_is_damaged_or_a_link_is_no_obstacle(home, tmp_path):
    folder = home / "cache" / "tokens"
    make_listed_folder(folder)
    (home / "cache" / LIST).write_bytes(b'["tokens", "cut sh')
    write_bytes(folder / "a.bin", b"own")
    assert clear_cache() == [folder / "a.bin"]
    (home / "cache" / LIST).unlink()
    (tmp_path / "mine").write_text("mine")
    (home / "cache" / LIST).symlink_to(tmp_path / "mine")
    make_listed_folder(folder)
    write_bytes(folder / "b.bin", b"own")
    assert clear_cache() == [] and (tmp_path / "mine").read_text() == "mine"


# ---- a link that takes the place of a file or a folder at the worst moment ----


@pytest.mark.parametrize("swapped", ["folder", "file"])
def test_what_is_swapped_for_a_link_is_not_deleted_through_it(tmp_path, swapped):
    folder, outside = tmp_path / "root" / "folder", tmp_path / "outside"
    folder.mkdir(parents=True)
    outside.mkdir()
    for place in (folder, outside):
        (place / "file").write_bytes(b"own")

    def own_and_swapped(file):
        if swapped == "folder":
            folder.rename(tmp_path / "root" / "moved")
            folder.symlink_to(outside)
        else:
            (folder / "file").unlink()
            (folder / "file").symlink_to(outside / "file")
        return True

    delete_own(folder / "file", tmp_path / "root", own_and_swapped)
    assert (outside / "file").read_bytes() == b"own"
    with pytest.raises(OSError) if swapped == "folder" else contextlib.nullcontext():
        unlink_within(folder / "file", tmp_path / "root")
    assert (outside / "file").read_bytes() == b"own"


def test_a_cache_that_cannot_be_written_is_said_by_name(home, own, monkeypatch, capfd):
    def refuse(name, dir_fd=None):
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(os, "unlink", refuse)
    capfd.readouterr()
    assert run(["models", "cache", "--clear"]) == 1
    said = capfd.readouterr().err
    assert said.startswith(f"seqgen: {home / 'cache' / 'tokens'}/") and said.count("\n") == 1
    assert all(path.exists() for path in own)


EVENTS = {"open", "fcntl.flock", "os.rename", "os.chmod", "os.remove", "os.mkdir"}


def killed_at(number: int) -> bool:
    """Keep a text in another process, killed before so many file operations; whether it was."""
    if not (child := os.fork()):
        left = itertools.count(-number)

        def kill(event, arguments):
            if event in EVENTS and not next(left):
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(kill)
            store.keep_text(iter([b"some text"]))
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def test_whenever_a_run_is_killed_the_next_one_knows_what_it_left(home):
    for number in itertools.count():
        killed = killed_at(number)
        clear_leftovers()
        assert store.foreign_files() == []
        assert all(path.name[0] != "." for path in (home / "cache").glob("*/*"))
        if not killed:
            break
    assert number > 8 and len(store.cached_files()) == 1
