"""Imports point down the list of layers; what the command line loads at first loads no torch."""

import ast
import collections
import functools
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_cli import known_architectures, needs

import seqgen
from seqgen import hooks
from seqgen.cli import all_commands

PACKAGE = Path(seqgen.__file__).parent
# From the top. What stands on one line does not import its neighbours either.
LAYERS = [
    {"__main__"},
    {"plugins"},
    {"cli"},
    {"cli.shell"},
    {"training"},
    {"scoring"},
    {"generation"},
    {"store"},
    {"models"},
    {"engines"},
    {"text"},
    {"text.tokenizers"},
    {"metrics"},
    {"registry", "presets"},
    {"tasks"},
    {"settings"},
    {"hooks"},
    {"hashing", "interrupts", "limits", "mapped_tensors", "packages"},
    {"files", "ranks"},
    {"errors", "white_space", "wording"},
    {"__init__"},
]
LEVEL = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def module_name(path):
    parts = list(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def layer(module):
    parts = module.split(".")[1:]
    inner = ".".join(parts[:2])
    return inner if inner in LEVEL else parts[0] if parts else "__init__"


def plugin_of(module):
    """Return the plugin that a module belongs to; None for one of the core."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["plugins"] and len(parts) > 2 else None


def test_no_plugin_imports_another():
    found = [
        f"{module} imports {target}"
        for module, path in MODULES.items()
        for target in imports(path, at_load_only=False)
        if plugin_of(module) and plugin_of(target) not in (None, plugin_of(module))
    ]
    assert found == []


def for_types_only(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def nodes(tree):
    """Yield what `ast.walk` does but for contexts, sooner and in another order."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in node._fields:
            inside = getattr(node, field, None)
            if isinstance(inside, list):
                waiting += [each for each in inside if isinstance(each, ast.AST)]
            elif isinstance(inside, ast.AST) and field != "ctx":
                waiting.append(inside)


def imports(path, at_load_only):
    """Return the modules a file imports: everywhere in it, or only when it is loaded."""
    found = []
    for node, at_load in read(path).imports:
        if at_load_only and not at_load:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [node.module, *(m for m in inside if m in MODULES)]  # from seqgen import store
    return found


Read = collections.namedtuple("Read", "imports classes")


@functools.cache
def read(path):
    """Return what is needed of a file: the trees of all files would take 150 MB."""
    tree = parsed(path)
    imports = [
        found for found in statements(tree) if isinstance(found[0], ast.Import | ast.ImportFrom)
    ]
    return Read(imports, [node.name for node in tree.body if isinstance(node, ast.ClassDef)])


def statements(tree):
    """Yield every statement, and whether it is run when the file is loaded."""
    waiting = [(tree, True)]
    while waiting:
        node, at_load = waiting.pop()
        yield node, at_load
        inside_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        at_load = at_load and not inside_function and not for_types_only(node)
        children = ast.iter_child_nodes(node)  # no expression has an import within
        waiting += ((child, at_load) for child in children if isinstance(child, STATEMENTS))


def test_every_module_has_a_layer():
    assert len(MODULES) > 30
    assert {layer(m) for m in MODULES} == set(LEVEL)


def test_imports_point_down():
    upward = []
    for module, path in MODULES.items():
        here = layer(module)
        # The package's face, which all modules load, has the Python API for those who call it.
        found = imports(path, at_load_only=module == "seqgen.__init__")
        inside = [t for t in found if t.split(".")[0] == "seqgen" and layer(t) != here]
        upward += [f"{module} imports {t}" for t in inside if LEVEL[layer(t)] <= LEVEL[here]]
    assert upward == []


def at_load(*starts):
    """Return all that is imported when `starts` are, packages on the way included."""
    found, waiting = set(), list(starts)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        if module in MODULES:
            waiting += imports(MODULES[module], at_load_only=True)
        if module.startswith("seqgen."):
            waiting.append(module.rpartition(".")[0])
    return found


def test_nothing_the_command_line_loads_imports_torch():
    commands = [command.target.partition(":")[0] for command in all_commands().values()]
    found = at_load("seqgen.cli", "seqgen.store", "seqgen.store.formats", *commands)
    assert "seqgen.registry" in found and found >= {*commands}
    heavy = ("torch", "numpy", "safetensors", "sacrebleu")
    assert not {m for m in found if m.split(".")[0] in heavy}


def test_the_entry_point_loads_next_to_nothing():
    """It has to catch Ctrl-C before anything else begins."""
    found = at_load("seqgen.__main__") - {"seqgen", "seqgen.__main__"}
    assert found == {"__future__", "_signal", "os", "sys"}


@needs("exchange")
@pytest.mark.parametrize("part", ["importer", "exporter", "recogniser"])
def test_every_format_has_what_its_row_names(part):
    rows = [(plugin, getattr(row, part)) for plugin, row in hooks.by_name("formats").values()]
    functions = [plugin.load(target) for plugin, target in rows if target]
    assert functions and all(map(callable, functions))


def test_the_walk_would_find_torch():
    assert "torch" in at_load("seqgen.training.train")


LOADS = """
import sys
from seqgen.cli import run
code = run(sys.argv[1:])
loaded = {m.split('.')[0] for m in sys.modules}
sys.stderr.write(str(sorted(loaded & {'torch', 'safetensors'})))
sys.exit(code)
"""


@pytest.mark.fast_for("--help", "sample --help", "models show tiny", "bleu *", rest="slow")
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "train --help",
        "sample --help",
        "models --help",
        "bench plan --help",
        "perplexity --help",
        "models",
        "models --json",
        "models --architectures",
        *(f"models --architectures {name} --json" for name in known_architectures(["rnn", "hawk"])),
        "train --set help",
        "train --model seq2seq --set help=embedding_size",
        "train --preset help",
        "models show tiny",
        "models path tiny",
        "models remove tiny --yes",
        "bleu models/tiny/training.json models/tiny/training.json",
    ],
)
def test_commands_that_need_no_torch_load_none(command, tmp_path):
    model = tmp_path / "models" / "tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text(
        '{"format": 1, "architecture": "lstm", "model": {"num_layers": 1}, "training": {},'
        ' "data": {"tokenizer": "char"}}'
    )
    (model / "training.json").write_text('{"parameters": 5, "result": null}')
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (model / "tokenizer").mkdir()
    (model / "tokenizer" / "tokenizer.json").write_text('{"kind": "char", "alphabet": "a"}')
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *command.split()],
        env={"SEQGEN_HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent), "PATH": "/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("[]")
    assert model.exists() == ("remove" not in command)
    assert done.stdout or "remove" in command


@pytest.mark.parametrize(
    "command", ["--version", "train --help", "models path", "nothing --x", "--help"]
)
def test_only_the_command_that_is_called_is_loaded(command):
    """All of them for help; for a wrong name, the names of the others are enough."""
    program = "import sys; from seqgen.cli import run; run(sys.argv[1:]); print(*sys.modules)"
    asked = [sys.executable, "-c", program, *command.split()]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    called = {
        "train": "seqgen.cli.train",
        "models": "seqgen.cli.models",
        "sample": "seqgen.cli.sample",
        "vectors": "seqgen.plugins.vectors.command",
    }
    called = {name: module for name, module in called.items() if name in all_commands()}
    name = command.split()[0]
    wanted = {*called.values()} if name == "--help" else {called.get(name)} - {None}
    called = {*called.values()}
    assert called & {*loaded} == wanted


def modules_named(path):
    """Yield the modules of the package that a file imports, wherever in it."""
    for node, _ in read(path).imports:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield module if module in MODULES else node.module


def test_imports_form_no_circle():
    """Neither when they are loaded, nor in functions, nor for types."""
    waiting = {m: set(modules_named(path)) & set(MODULES) for m, path in MODULES.items()}
    assert sum(map(len, waiting.values())) > len(MODULES)
    while ready := {m for m, needed in waiting.items() if not needed}:
        waiting = {m: needed - ready for m, needed in waiting.items() if m not in ready}
    assert not waiting


def test_no_two_classes_have_one_name():
    """Whoever reads or searches for a name finds one thing."""
    found = collections.defaultdict(list)
    for module, path in MODULES.items():
        for name in read(path).classes:
            found[name].append(module)
    assert found["Task"] == ["seqgen.tasks.task"]
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}
