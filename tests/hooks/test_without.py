"""Each plugin alone: without its folder, its commands are gone, and nothing else is."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch  # noqa: F401  (so that no fork need load it)
from forked import use_streams

import seqgen
from seqgen import hooks
from seqgen.cli import all_commands

PACKAGE = Path(seqgen.__file__).parent
OWN = [one for one in hooks.plugins() if one.distribution == hooks.DISTRIBUTION]


def package_without(folder, *names):
    """Lay out the package without some plugins in a folder, by links."""
    plugins = folder / "seqgen" / "plugins"
    plugins.mkdir(parents=True)
    for source, target in ((PACKAGE, plugins.parent), (PACKAGE / "plugins", plugins)):
        for path in source.iterdir():
            if path.name not in ("plugins", *(names if source.name == "plugins" else ())):
                (target / path.name).symlink_to(path)


def run_copy(folder, calls):
    """Run commands of the package in a folder, in a fork of this process.

    Returns:
        The exit code of each, the names of all commands, what they wrote, and what they said.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _be_copy(folder, calls, out.fileno(), err.fileno())
        os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        *shown, last = out.read().decode().splitlines() or [""]
        said = err.read().decode()
    codes, commands = json.loads(last) if last.startswith("[[") else (None, None)
    return codes, commands, "\n".join(shown), said


def _be_copy(folder, calls, out, err):
    """Be a process that imports the copy: never returns."""
    try:
        use_streams(0, out, err)
        for name in [name for name in sys.modules if name.partition(".")[0] == "seqgen"]:
            del sys.modules[name]
        sys.path.insert(0, str(folder))
        from seqgen import cli

        assert str(folder) in cli.__file__
        codes = [cli.run(call) for call in calls]
        sys.stdout.write(json.dumps([codes, [*cli._tree(None).commands]]))
        sys.stdout.flush()
    except BaseException as error:
        sys.stderr.write(repr(error))
        sys.stderr.flush()
    finally:
        os._exit(0)


@pytest.mark.fast_for("all", rest="slow")
@pytest.mark.parametrize(
    "left_out",
    [pytest.param(OWN, id="all"), *(pytest.param([one], id=one.name) for one in OWN)],
)
def test_the_core_works_without(left_out, tmp_path):
    package_without(tmp_path / "copy", *(one.name for one in left_out))
    text = tmp_path / "text.txt"
    text.write_text("ab ba\n" * 50)
    calls = [
        ["--help"],
        ["train", str(text), "--model", "ngram", "--name", "n", "--quiet"],
        ["sample", "ab", "-m", "n", "--max-tokens", "4", "--seed", "1"],
        ["perplexity", str(text), "-m", "n", "--quiet"],
    ]
    codes, commands, shown, said = run_copy(tmp_path / "copy", calls)
    assert said == ""
    assert codes == [0, 0, 0, 0]
    gone = {name for one in left_out for name in one.plugin.commands}
    assert {*commands} == {*all_commands()} - gone
    listed = {line.split()[0] for line in shown.splitlines() if line[:2] == "  " and line[2] != " "}
    assert listed & {*all_commands()} == {*commands}
