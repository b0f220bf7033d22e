"""A plugin of another distribution, `outside/`, installed by pip into a fresh environment."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

import seqgen
from seqgen import hooks
from seqgen.cli import run

OUTSIDE = Path(__file__).parents[1] / "plugins" / "outside"
PAGE = ROOT / "docs" / "plugins.md"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return what runs Python with arguments in an environment with the plugin."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    # All that these tests run with, below what is installed there.
    paths = [str(Path(seqgen.__file__).parents[1]), sysconfig.get_paths()["purelib"]]
    (site / "tests.pth").write_text("\n".join(paths))
    home = {"SEQGEN_HOME": str(folder / "home")}

    def call(*arguments, cwd=folder):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            [python, *map(str, arguments)],
            cwd=cwd,
            env={**environment, **home},
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.returncode, done.stdout, done.stderr

    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    code, _, err = call("-m", "pip", "install", *options, OUTSIDE)
    assert code == 0, err
    return call


@pytest.fixture(scope="module")
def go(program):
    """Run a command that is to end well, without a warning; returns its output."""

    def call(*arguments):
        code, out, err = program("-m", "seqgen", *arguments, "--quiet")
        assert (code, err) == (0, "")
        return out

    return call


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 60)
    return path


def test_it_is_short():
    files = [path for path in OUTSIDE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(len(path.read_text().splitlines()) for path in files) < 120


def test_it_is_what_the_page_shows():
    """All of it, but for the build system, which is pip's affair."""
    shown = re.findall(r"^```(?:python|toml|json)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    files = [path for path in OUTSIDE.rglob("*") if path.suffix in (".py", ".toml", ".json")]
    assert len(files) == 8
    for path in files:
        text = path.read_text()
        assert text[text.index("[project]") if path.name == "pyproject.toml" else 0 :] in shown


@pytest.mark.slow
def test_it_is_listed_and_so_is_its_command(program, go, text):
    code, out, err = program("-m", "seqgen", "--help")
    assert (code, err) == (0, "") and "  count " in out.partition("\nText:\n")[2]
    (record,) = map(json.loads, go("plugins", "--others", "--json").splitlines())
    assert (record["name"], record["version"]) == ("outside", "0.3")
    assert record["distribution"] == "seqgen-outside"
    added = {kind: names for kind, names in record["adds"].items() if names}
    assert added == {
        "architectures": ["ligru"],
        "commands": ["count"],
        "options": ["--losses"],
        "formats": ["npz"],
        "listeners": ["losses:listen"],
    }
    assert go("count", text, "--most", "2") == "120\tto\n60\tbe\n"
    assert json.loads(go("count", text, "--most", "1", "--json")) == {"word": "to", "count": 120}
    assert "seqgen count book.txt --most 3" in program("-m", "seqgen", "count", "-h")[1]


@pytest.mark.slow
def test_its_cell_trains_samples_resumes_and_is_exported(program, go, text, tmp_path):
    losses, arrays = tmp_path / "losses.tsv", tmp_path / "m.npz"
    settings = ("--model", "ligru", "--name", "m", "--set", "hidden_size=24", "--layers", 1)
    go("train", text, *settings, "--steps", 30, "--seed", 1, "--losses", losses)
    written = go("sample", "to be", "-m", "m", "--max-tokens", 30, "--seed", 2)
    assert 5 < len(written.rstrip("\n")) <= 36
    before = losses.read_text().splitlines()
    go("train", "--resume", "m", "--steps", 60, "--losses", losses)
    steps = [int(line.split()[0]) for line in losses.read_text().splitlines()]
    assert steps[: len(before)] == [int(line.split()[0]) for line in before]
    assert steps[-1] == 60 > steps[len(before) - 1] == 30
    assert "ligru" in go("models", "show", "m", "--json")
    assert "zoneout" in go("models", "--architectures", "ligru")
    go("export", "m", "--format", "npz", "--out", arrays)
    with np.load(arrays) as content:
        widths = {name: content[name].shape for name in content.files}
    assert (48, 24) in widths.values()
    scored = json.loads(go("perplexity", "-m", "m", "--json"))
    assert 0 < scored["bits_per_char"] < 4


@pytest.mark.slow
def test_without_it_its_models_are_refused_in_a_line(go, text, capfd):
    settings = ("--model", "ligru", "--name", "left", "--set", "hidden_size=8")
    go("train", text, *settings, "--steps", 2)
    folder = go("models", "path", "left").strip()
    assert run(["sample", "-m", folder]) == 1
    err = capfd.readouterr().err
    assert err == "seqgen: left needs the plugin outside, which is not installed\n"
    assert "outside" not in {one.name for one in hooks.plugins()}


@pytest.mark.slow
def test_the_contract_of_cells_holds_for_its_cell(program):
    contracts = [ROOT / "tests" / "models" / f"test_{name}.py" for name in CONTRACTS]
    options = ("-q", "-n", 0, "-k", "ligru", "-m", "", "-p", "no:cacheprovider")
    code, out, err = program("-m", "pytest", *options, *contracts, cwd=ROOT)
    assert code == 0, out[-3000:] + err
    assert int(out.split(" passed")[0].split()[-1]) > 30


CONTRACTS = ("cell_contract", "contract", "array_models")
