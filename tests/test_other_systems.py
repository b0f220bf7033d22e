"""macOS and Windows, which the tests do not run on: what they lack stands behind a guard.

The first tests read the source. The last ones run commands with what another system lacks taken
away from seqgen's modules, and with its rules about open files and names.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import other_system
import pytest
from places import ROOT, TESTS
from test_layers import nodes

import seqgen

PACKAGE = Path(seqgen.__file__).parent
# Beginnings of paths that only some systems have.
PLACES = ("/proc", "/dev/", "/sys/", "/etc/", "/tmp", "/var/")
# An expression with one of these asks which system it is, or what that has.
ASKED = {"hasattr", "sys.platform", "os.name", "os.supports_dir_fd", "exists", "os.path.lexists"}
# What an exception handler has to catch where something is lacking.
CAUGHT = {
    "module": {"ImportError", "ModuleNotFoundError", "Exception"},
    "attribute": {"AttributeError", "Exception"},
    "path": {"OSError", "FileNotFoundError", "Exception"},
    "library": {"OSError", "Exception"},
}
# What no guard stands around, and why none is needed: by file, what is used.
NEEDS_NO_GUARD = {
    "cli/shell/inputs.py": {"/dev/stdin": "a name that is compared with what was typed"},
    "engines/memory_limit.py": {
        "/proc/self/cgroup": "a constant; `memory` catches the error of reading it",
        "/sys/fs/cgroup": "a constant, too",
        "/sys/fs/cgroup/memory": "a constant, too",
    },
    "engines/native/maps.py": {
        "mmap.MAP_PRIVATE": "for the kernels, which cannot be compiled on Windows",
        "mmap.MAP_ANONYMOUS": "for the kernels, which cannot be compiled on Windows",
    },
    "files.py": {
        "os.chown": "Windows has no owners: the numbers are 0, and never differ",
        "rename": "`move_folder`, which callers give a name that is free",
    },
    "plugins/documents/office.py": {"posixpath": "names in zip files have / on every system"},
    "plugins/exchange/command.py": {"/dev/stdin": "where there is none, the error says so"},
    "store/lifecycle.py": {"rename": "the old model has just been moved away from there"},
    "store/loading.py": {"/dev/stdin": "only its size is asked for, if it is a file"},
    "training/sorted_runs.py": {
        "/proc/self/statm": "a constant; `memory_taken` asks whether it exists"
    },
}


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Parse the modules of seqgen that may use the system, by their paths in the package."""
    parts = [re.escape(name) for name in (*PLACES, "CDLL", "get_context", "rename(")]
    parts += [rf"\b{re.escape(name)}\b" for name in other_system.MODULES]
    parts += [rf"\b{name}\.|from {name}\b" for name in other_system.ATTRIBUTES]
    parts += [r"\bopen\(", r"\b(?:read|write)_text\("]
    word = re.compile("|".join(parts))
    texts = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        path.relative_to(PACKAGE).as_posix(): parsed(text)
        for path, text in texts.items()
        if word.search(text)
    }


def parsed(text: str) -> ast.Module:
    """Parse a module; each node gets its parent, and its place among its siblings."""
    tree = ast.parse(text)
    for node in nodes(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node
    return tree


def lacking(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield what some system lacks: the node, its kind, and its name."""
    every = [*nodes(tree)]
    documentation = {id(node.value) for node in every if isinstance(node, ast.Expr)}
    for node in every:
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names if name.name in other_system.MODULES]
                yield from ((node, "module", name) for name in found)
            case ast.ImportFrom(module=module, names=names) if module in other_system.MODULES:
                yield node, "module", module
            case ast.ImportFrom(module=module, names=names) if module in other_system.ATTRIBUTES:
                found = {name.name for name in names} & other_system.ATTRIBUTES[module]
                yield from ((node, "module", f"{module}.{name}") for name in found)
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                if name in other_system.ATTRIBUTES.get(module, ()):
                    yield node, "attribute", f"{module}.{name}"
            case ast.Call(func=ast.Attribute(attr="CDLL")):
                yield node, "library", "CDLL"
            case ast.Call(func=ast.Attribute(attr="get_context"), args=[ast.Constant("fork")]):
                yield node, "method", "fork"
            case ast.Call(func=ast.Attribute(attr="rename"), args=[ast.Name()]):
                yield node, "rename", "rename"
            case ast.Constant(value=str() as text) if id(node) not in documentation:
                if text.startswith(PLACES):
                    yield node, "path", text


def is_guarded(node: ast.AST, kind: str) -> bool:
    """Check whether a node is reached only where its system has what it uses, or errors are caught.

    A guard is an `if` or a condition around it that asks (`ASKED`), such an `if` before it in the
    same block that leaves it, a `try`, or `contextlib.suppress`.
    """
    while (parent := getattr(node, "parent", None)) is not None:
        match parent:
            case ast.If(test=test) | ast.IfExp(test=test) if node is not test and asks(test):
                return True
            case ast.BoolOp(values=[first, *_]) if node is not first and asks(first):
                return True
            case ast.Try(body=body, handlers=handlers) if node in body:
                if any(catches(handler.type, kind) for handler in handlers):
                    return True
            case ast.With(items=items) if node in parent.body:
                if any(suppresses(item.context_expr, kind) for item in items):
                    return True
        for block in (getattr(parent, "body", None), getattr(parent, "orelse", None)):
            if isinstance(block, list) and node in block:
                before = block[: block.index(node)]
                if any(isinstance(x, ast.If) and asks(x.test) and leaves(x) for x in before):
                    return True
        node = parent
    return False


def asks(test: ast.expr) -> bool:
    named = [node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)]
    names = {ast.unparse(node) for node in named} | {getattr(node, "attr", "") for node in named}
    return bool(names & ASKED)


def leaves(statement: ast.If) -> bool:
    return isinstance(statement.body[-1], ast.Return | ast.Raise | ast.Continue)


def catches(caught: ast.expr | None, kind: str) -> bool:
    names = {node.id for node in ast.walk(caught) if isinstance(node, ast.Name)} if caught else ()
    return caught is None or bool({*names} & CAUGHT.get(kind, set()))


def suppresses(expression: ast.expr, kind: str) -> bool:
    match expression:
        case ast.Call(func=ast.Attribute(attr="suppress"), args=args):
            return any(catches(argument, kind) for argument in args)
    return False


def test_what_other_systems_lack_is_guarded():
    found: dict[str, set[str]] = {}
    for path, tree in modules().items():
        for node, kind, name in lacking(tree):
            if not is_guarded(node, kind):
                found.setdefault(path, set()).add(name)
    there = {path: {*names} for path, names in NEEDS_NO_GUARD.items() if (PACKAGE / path).exists()}
    assert found == there


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("import fcntl", False),
        ("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None", True),
        ("try:\n    import fcntl\nexcept ValueError:\n    fcntl = None", False),
        ("from os import fork", False),
        ("def f():\n    import resource", False),
        ("with contextlib.suppress(ImportError):\n    import resource", True),
        ("os.fork()", False),
        ("if os.name == 'posix':\n    os.fork()", True),
        ("if path.name == 'posix':\n    os.fork()", False),
        ("def f():\n    if not hasattr(os, 'fork'):\n        return\n    os.fork()", True),
        ("def f():\n    if not hasattr(os, 'fork'):\n        say()\n    os.fork()", False),
        ("n = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else 1", True),
        ("try:\n    os.nice(1)\nexcept OSError:\n    pass", False),
        ("signal.signal(signal.SIGHUP, handle)", False),
        ("open('/proc/cpuinfo')", False),
        ("try:\n    open('/proc/cpuinfo')\nexcept OSError:\n    pass", True),
        ("ctypes.CDLL('libc.so.6')", False),
        ("old.rename(new)", False),
        ("multiprocessing.get_context('fork')", False),
    ],
)
def test_guards_are_recognised(text, guarded):
    ((node, kind, _),) = lacking(parsed(text))
    assert is_guarded(node, kind) is guarded


def test_text_is_utf8_whatever_the_system_uses():
    """Without an encoding, Windows reads and writes another one."""
    calls = [
        (path, node)
        for path, tree in modules().items()
        for node in nodes(tree)
        if isinstance(node, ast.Call)
    ]
    assert not [f"{path}:{call.lineno}" for path, call in calls if opens_text(call)]


def opens_text(call: ast.Call) -> bool:
    """Check whether a call reads or writes text and leaves the encoding to the system."""
    name = getattr(call.func, "id", getattr(call.func, "attr", None))
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    constants = [x.value for x in [*call.args, *given.values()] if isinstance(x, ast.Constant)]
    binary = any(x in ("rb", "wb", "ab", "r+b", "w+b", "a+b", "xb") for x in constants)
    if "encoding" in given or "buffering" in given or binary:  # text cannot be unbuffered
        return False
    match name, call.func, call.args:
        case "read_text", _, args:  # its first argument is the encoding
            return not args
        case "write_text", _, _:
            return True
        case "open", ast.Name(), _:
            return True
        case "open", ast.Attribute(value=ast.Name(id)), []:  # `Dataset.open`, `EncodedCache.open`
            return id not in ("self", "cache")
        case "open", _, [] | [ast.Constant("r" | "w" | "a" | "x"), *_]:
            return True
    return False


# In one process of the system, one after another.
COMMANDS = [
    [],  # imports all modules
    ["--help"],
    ["train", "corpora/play.txt", "--model", "ngram", "--name", "ngram", "--quiet"],
    ["sample", "-m", "ngram", "--max-tokens", "20", "--seed", "1"],
    [
        *("train", "corpora/fox.txt", "--model", "lstm", "--hidden-size", "8", "--layers", "1"),
        *("--steps", "4", "--stop-after", "2", "--name", "lstm", "--quiet"),
    ],
    ["train", "--resume", "lstm", "--quiet"],
    ["models", "rename", "lstm", "other"],
    ["perplexity", "-m", "other", "corpora/fox.txt"],
    ["train", "corpora/fox.txt", "--model", "ngram", "--name", "other", "--overwrite", "--quiet"],
    ["models", "remove", "other", "--yes"],
    ["models", "cache", "--clear"],
    ["models", "list"],
]
# What Windows allows in no name of a file; and names of its devices.
FORBIDDEN = re.compile(r'[<>:"\\|?*\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.I)


def answers(system: str, home: Path) -> list[tuple[int, str, str]]:
    """Run the commands on a simulated system, which cannot load the kernels."""
    done = subprocess.run(
        [sys.executable, TESTS / "other_system.py", system],
        input="".join(json.dumps(command) + "\n" for command in COMMANDS),
        cwd=ROOT,
        env=os.environ | {"SEQGEN_HOME": str(home), "SEQGEN_NATIVE": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_commands_work_on_another_system(system, tmp_path):
    found = answers(system, tmp_path)
    assert [code for code, _, _ in found] == [0] * len(COMMANDS), found
    assert "Usage: seqgen" in found[1][1]
    assert len(found[3][1]) == 21
    assert [line.split()[0] for line in found[-1][1].splitlines()] == ["name", "ngram"]
    names = [path.name for path in tmp_path.rglob("*")]
    assert "model.safetensors" in names
    assert not [name for name in names if FORBIDDEN.search(name)]


def test_windows_is_simulated(tmp_path):
    """An open file keeps its folder in place, and a taken name is not replaced."""
    script = f"""
import os, sys
sys.path.insert(0, {str(TESTS)!r})
from other_system import simulate
from pathlib import Path
simulate("windows")
folder, other = Path("a"), Path("b")
folder.mkdir()
with (folder / "x").open("w"):
    for refused in (lambda: folder.rename(other), (folder / "x").unlink):
        try:
            refused()
        except PermissionError as error:
            print(error.errno)
other.mkdir()
try:
    folder.rename(other)
except FileExistsError:
    print("taken")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["13", "13", "taken"]
