"""A folder of 200 files of many kinds that installed packages ship, some of them damaged."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

import pytest
from helpers_cli import needs

from seqgen import store

pytestmark = [needs("documents"), pytest.mark.slow]
# At most so many files of each ending, of at most so many bytes.
ENDINGS = {
    **{".txt": 30, ".md": 20, ".rst": 20, ".html": 60, ".xml": 10, ".gz": 20, ".pdf": 20},
    **{".epub": 5, ".docx": 10, ".odt": 10, ".rtf": 5, ".zip": 15, ".tar": 10, ".zst": 5},
    **{".csv": 10, ".json": 10, ".jsonl": 5, ".png": 10, ".mo": 5, ".npy": 5, ".so": 3},
}
MOST_BYTES = 300_000
PLACES = (sys.prefix, sys.base_prefix, "/usr/share", "/usr/lib/python3")
FILES, DAMAGED = 200, 20


@pytest.fixture
def mixed(tmp_path) -> Path:
    """Copy files by ending, drawn with a seed, and damage some: cut in half or overwritten."""
    found: dict[str, list[Path]] = {ending: [] for ending in ENDINGS}
    for place in PLACES:
        for path in Path(place).rglob("*"):
            plain = path.suffix in found and path.is_file() and not path.is_symlink()
            if plain and 0 < path.stat().st_size <= MOST_BYTES:
                found[path.suffix].append(path)
    draw = random.Random(1)
    chosen: list[Path] = []
    for ending, paths in found.items():
        chosen += draw.sample(sorted(paths), min(ENDINGS[ending], len(paths)))
    if len(chosen) < FILES:
        pytest.skip(f"this machine has only {len(chosen)} such files")
    folder = tmp_path / "mixed"
    folder.mkdir()
    for number, path in enumerate(draw.sample(chosen, FILES)):
        copy = folder / f"{number:03}{path.suffix}"
        shutil.copyfile(path, copy)
        if number < DAMAGED:
            raw = bytearray(copy.read_bytes())
            if number % 2:
                del raw[len(raw) // 2 :]
            else:
                begin = draw.randrange(len(raw))
                raw[begin : begin + 200] = draw.randbytes(len(raw[begin : begin + 200]))
            copy.write_bytes(raw)
    return folder


def test_200_files_are_one_corpus_and_a_table_of_what_is_left_out(cli, mixed):
    code, out, said = cli("data", mixed, "--json")
    assert code == 0, said
    assert "Traceback" not in said
    report = json.loads(out)
    left_out = report["left_out"]
    given = {str(path) for path in mixed.iterdir()}
    assert given == {*report["files"], *left_out}
    assert len(given) == len(report["files"]) + len(left_out)
    assert all(name in reason for name, reason in left_out.items())
    assert report["characters"] > 0 and len(report["files"]) >= FILES // 3

    code, out, said = cli(
        "train", mixed, "--model", "ngram", "--order", "3", "--name", "m", "--json"
    )
    assert code == 0, said
    assert "Traceback" not in said
    data = json.loads((store.models_folder() / "m" / "training.json").read_text())["data"]
    # What `data` reports on is what is trained on.
    assert data["characters"] == report["characters"]
    assert data["files"] == [str(Path(name).resolve()) for name in report["files"]]
    code, out, _ = cli("sample", "-m", "m", "--max-tokens", "20", "--seed", "1", "--json")
    assert code == 0 and json.loads(out)["tokens"] == 20
