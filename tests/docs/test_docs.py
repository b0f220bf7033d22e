"""README and docs: every command line exists, what is marked runs, links and pages are current."""

import ast
import functools
import importlib
import importlib.util
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from benchmarks.__main__ import app as benchmarks
from places import ROOT

from seqgen import presets, registry
from seqgen.cli import make_app
from seqgen.settings import DataConfig
from seqgen.settings.training import TrainingConfig

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

# What separates the commands of a shell line, or stands before one.
SEPARATORS = {"|", "||", "&&", ";", "&", "(", ")", "|&", ";;"}
KEYWORDS = {"do", "then", "else", "time", "!", "exec"}
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^<>]+) -->\n)?```(?P<kind>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page, *kinds):
    """Yield (mark, text) of every fenced block of these kinds."""
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        if found["kind"] in kinds:
            yield found["mark"], found["body"]


def typed(kind, body):
    """Return what a user types: of a console session only the lines after a prompt."""
    if kind == "sh":
        return body
    lines, goes_on = [], False
    for line in body.splitlines():
        if line.startswith("$ ") or goes_on:
            lines.append(line.removeprefix("$ "))
            goes_on = line.endswith("\\")
    return "\n".join(lines)


def spans(page):
    """Yield the seqgen commands that stand within sentences and tables, in backticks."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    yield from (s for s in re.findall(r"`([^`\n]+)`", text) if s.startswith("seqgen "))


def commands(script):
    """Yield the arguments of every seqgen command of a shell script.

    Pipelines, lists, loops, line continuations, comments, redirections and `$(...)` are read.
    """
    script = script.replace("\\\n", " ")
    for inner in re.findall(r"\$\(([^()]*)\)", script):
        yield from commands(inner)
    script = re.sub(r"\$\([^()]*\)", "X", script)
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        yield from _commands(list(lexer))


def _commands(tokens):
    found, begins, skip, launches = None, True, False, False
    for before, token in pairwise([";", *tokens, ";"]):
        if token in SEPARATORS or (token in KEYWORDS and begins):
            if found is not None:
                yield found
            found, begins = None, True
        elif set(token) <= set("<>&"):
            skip = True  # a redirection, and then its file
        elif skip:
            skip = False
        elif begins and "=" in token and re.match(r"\w+=", token):
            continue  # an environment variable
        elif begins:
            found, begins = ([] if token == "seqgen" else None), False
            launches = token in ("torchrun", "srun")
        elif launches and (before, token) == ("-m", "seqgen"):
            found, launches = [], False
        elif found is not None:
            found.append(token)


def options_of(command):
    """Return a command's options by name: whether each takes a value."""
    found = {"--help": False, "-h": False}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            names = [*parameter.opts, *parameter.secondary_opts]
            takes = not parameter.is_flag and not getattr(parameter, "count", False)
            found |= dict.fromkeys(names, takes)
    return found


@functools.cache
def seqgen_app():
    return typer.main.get_command(make_app())


def problems(arguments, app=None):
    """Return what is wrong with a command's arguments, as texts; nothing is run."""
    command, path, values, wrong = app or seqgen_app(), [], {}, []
    waiting = list(arguments)
    while waiting:
        token = waiting.pop(0)
        known = options_of(command)
        if token == "--":
            break
        if token.startswith("-") and token != "-" and not re.fullmatch(r"-\d.*", token):
            name, equals, value = token.partition("=")
            if name not in known:
                wrong.append(f"{' '.join([*path, name])} is no option")
            elif known.get(name) and not equals and waiting:
                value = waiting.pop(0)
            values.setdefault(name, []).append(value)
        elif hasattr(command, "commands") and "--architectures" not in values:
            if token in command.commands:
                command, path = command.commands[token], [*path, token]
            else:
                return [*wrong, f"{' '.join([*path, token])} is no command"]
    return wrong + (wrong_settings(values) if path == ["train"] else [])


def wrong_settings(values):
    """Return what is wrong with the names of settings, architectures and presets."""
    configs = [row.load_config() for row in registry.ARCHITECTURES.values()]
    names = {name for config in (*configs, DataConfig, TrainingConfig) for name in config.fields()}
    names.add("help")
    allowed = {"--model": {*registry.ARCHITECTURES, registry.AUTO}, "--preset": presets.PRESETS}
    wrong = [v for v in values.get("--set", []) if v.partition("=")[0] not in names]
    for option, known in allowed.items():
        given = values.get(option, [])
        wrong += [v for v in given if v not in known and not v.isupper() and "$" not in v]
    return [f"{value} is unknown to train" for value in wrong]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_exists(page):
    scripts = [typed(kind, body) for kind in ("sh", "console") for _, body in blocks(page, kind)]
    found = [c for script in [*scripts, *spans(page)] for c in commands(script)]
    app = seqgen_app()
    assert [(" ".join(c), p) for c in found if (p := problems(c, app))] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_benchmark_exists(page):
    text = page.read_text(encoding="utf-8").replace("\n", " ")
    found = re.findall(r"python -m tests\.benchmarks ([^`#|$]+)", text)
    app = typer.main.get_command(benchmarks)
    called = [shlex.split(line) for line in found]
    assert [(line, p) for line in called if (p := problems(line, app))] == []


def test_enough_commands_are_found():
    """The check above sees what a reader sees: as many commands as lines that name one."""
    for page in PAGES:
        for kind in ("sh", "console"):
            for _, body in blocks(page, kind):
                script = re.sub(r"(^|\s)#.*", "", typed(kind, body))
                assert len(list(commands(script))) == len(re.findall(r"\bseqgen [a-z-]", script))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "seqgen sample -m a | seqgen bleu - b.txt",
            [["sample", "-m", "a"], ["bleu", "-", "b.txt"]],
        ),
        ("X=1 seqgen eval > out.txt 2> log && echo seqgen", [["eval"]]),
        (
            "for n in 1; do seqgen train \\\n  a.txt --order $n; done",
            [["train", "a.txt", "--order", "$n"]],
        ),
        ('seqgen sample -m "$(seqgen models path)"', [["models", "path"], ["sample", "-m", "X"]]),
        ("cat seqgen # seqgen sample", []),
        ("torchrun --nnodes 2 -m seqgen train a.txt -m b", [["train", "a.txt", "-m", "b"]]),
    ],
)
def test_commands_of_a_line(line, expected):
    found = [[a for a in c if not a.isdigit()] for c in commands(line)]
    assert found == expected


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("train a.txt --set layres=3", "layres=3 is unknown to train"),
        ("train a.txt --model lstn", "lstn is unknown to train"),
        ("sample --topp 0.9", "sample --topp is no option"),
        ("sample -- --topp", None),
        ("models shows", "models shows is no command"),
        ("models show --sample", "models show --sample is no option"),
        ("models --architectures gru", None),
        ("perplexity -m a --per-line=3 -1", None),
    ],
)
def test_what_is_wrong_is_found(line, wrong):
    assert problems(line.split()) == ([wrong] if wrong else [])


def marked(*marks):
    cases = [(p, body) for p in PAGES for mark, body in blocks(p, "sh") if mark in marks]
    names = [f"{page.name}-{number}" for number, (page, _) in enumerate(cases)]
    return pytest.mark.parametrize("script", [body for _, body in cases], ids=names)


@pytest.fixture
def shell(tmp_path):
    """Return what runs a script of the docs in a folder with the corpora, on a tiny budget."""
    for folder in ("corpora", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    program = tmp_path / "bin" / "seqgen"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m seqgen "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join(
        [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def run(script, small=True):
        if small:
            script = re.sub(r"--minutes [\d.]+|--steps \d+", "--steps 3", script)
        # A `head` that reads to the end: `sort | head` may end `sort` by SIGPIPE, for pipefail a
        # failure.
        script = 'head() { command head "$@"; cat > /dev/null; }\n' + script
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


@marked("run")
def test_what_is_marked_runs(shell, script):
    done = shell(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@marked("run: slow")
def test_what_is_marked_slow_runs(shell, script):
    done = shell(script)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_page_about_python_runs(shell, tmp_path):
    """Its blocks are one program, which is run on a tiny budget."""
    page = ROOT / "docs" / "python.md"
    program = "\n".join(body for mark, body in blocks(page, "python") if mark == "run")
    for name in ("book.txt", "part1.txt", "part2.txt"):
        (tmp_path / name).write_text((ROOT / "corpora" / "play.txt").read_text()[:20_000])
    (tmp_path / "page.py").write_text(program.replace("minutes=2", "steps=3"))
    done = shell("python -W error::SyntaxWarning page.py")
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout and done.stderr == ""


def test_marks_are_known():
    marks = {mark for page in PAGES for mark, _ in blocks(page, "sh", "python", "")}
    assert marks <= {None, "run", "run: slow", "install-and-run", "install-and-test"}


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "corpora" / "README.md"], ids=lambda p: p.name)
def test_links_resolve(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith("http"):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_every_page_is_reached_from_the_readme():
    """By its list of all pages, or one of the recipes and steps from their own lists."""
    text = PAGES[0].read_text(encoding="utf-8")
    assert "(docs/index.md)" in text
    docs = [name.removeprefix("docs/") for name in NAMES[2:]]
    pages = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in docs}
    folders = {"recipes/": pages["recipes.md"]}
    if "companion/index.md" in pages:
        folders["companion/"] = pages["companion/index.md"].replace("](", "](companion/")
    lost = []
    for name in docs:
        folder = next((f for f in folders if name.startswith(f) and name != f"{f}index.md"), None)
        if f"({name})" not in folders.get(folder, pages["index.md"]) and name != "index.md":
            lost.append(name)
    assert lost == []


# What a reader asks, the links that lead to the answer from the README, and words of the answer.
QUESTIONS = {
    "Where are my models?": (["#where-to-read-on"], "`$SEQGEN_HOME/models`"),
    "Which model suits my text?": (["#which-model-for-which-text"], "under 100 kB"),
    "Which PyTorch do I need without a GPU?": (["docs/install.md"], "CPU build of PyTorch"),
    "How do I use a GPU?": (["docs/install.md"], "--device auto"),
    "Can DATA be a folder?": (["docs/text.md#input"], "folders (all files in them"),
    "How do I get the same text again?": (["docs/generate.md#seeds"], "--seed"),
    "How do I make text less random?": (
        ["docs/generate.md#temperature-and-other-filters"],
        "--temperature",
    ),
    "How do I train on four machines?": (["docs/distributed.md#several-machines"], "--nnodes"),
    "How do I get a GPT-2 folder in?": (
        ["docs/import.md#from-the-hugging-face-hub", "#hugging-face-folders"],
        "seqgen import",
    ),
    "How do I use a pretrained model?": (
        ["docs/import.md#from-the-hugging-face-hub"],
        "seqgen import hf:",
    ),
    "How do I chat?": (["docs/serve.md#chat"], "seqgen chat"),
    "How do I resume a run?": (["docs/training.md#stopping-and-resuming"], "--resume"),
    "What if memory runs out?": (["docs/troubleshooting.md"], "out of memory"),
    "How do I compare two models?": (["docs/compare.md", "#compare"], "seqgen compare"),
    "How do I write JSON?": (["docs/constrained.md", "#grammars-and-json"], "--json-schema"),
    "How do I use it from an editor?": (["docs/serve.md"], "seqgen serve"),
    "What do exit codes mean?": (["#where-to-read-on"], "help exit-codes"),
    "What is a nat?": (["docs/glossary.md"], "1.4427 bits"),
    "How do I install it with uv?": (["docs/install.md"], "uvx --from"),
    "How do I remove it?": (["docs/install.md", "#uninstall"], "uninstall seqgen-lm"),
    "How good is it?": (["docs/results.md"], "6-gram"),
    # Five more.
    "How do I hold out a text of my own?": (["docs/text.md", "#held-out-text"], "--val"),
    "How do I use a model in llama.cpp?": (["docs/export.md", "#gguf-files"], "llama.cpp"),
    "Does the model copy its text?": (["docs/evaluate.md", "#novelty"], "seqgen novelty"),
    "How do I free disk space?": (["docs/troubleshooting.md"], "seqgen models remove"),
    "How do I cite seqgen?": (["CITATION.cff"], "title:"),
}


def section(text, anchor):
    """Return the part of a page under the heading with an anchor."""
    for part in re.split(r"^(?=#+ )", text, flags=re.M):
        heading = part.partition("\n")[0].lstrip("# ")
        if re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") == anchor:
            return part
    return ""


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_within_two_clicks(question):
    """A click is a link of the page, or a heading in its list of contents."""
    links, answer = QUESTIONS[question]
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    for link in links:
        file, _, anchor = link.partition("#")
        assert not file or f"({link})" in text, link
        page = page.parent / file if file else page
        whole = page.read_text(encoding="utf-8")
        text = section(whole, anchor) if anchor else whole
    assert len(links) <= 2 and answer in text


def test_every_page_says_whom_it_is_for():
    heads = {page.name: page.read_text(encoding="utf-8").split("\n\n")[1] for page in PAGES[2:]}
    assert [
        name for name, head in heads.items() if not re.match(r"\*For .*\.\*$", head, re.S)
    ] == []


def test_the_site_has_every_page():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"(?:^ +- |: )(\S+\.md)$", site, re.M)
    assert [name for name in NAMES[2:] if name.removeprefix("docs/") not in listed] == []


def test_the_readme_is_short():
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) < 150


def test_the_chart_is_current():
    script = script_of("chart")
    assert ("lstm 2 x 256, characters", 2.045, 0.0) in script.rows()
    drawn = (ROOT / "docs" / "architectures.svg").read_text(encoding="utf-8")
    assert drawn == script.draw(), "run python docs/chart.py"


IMAGE = re.compile(r"!\[([^\]]+)\]\(([^)\s]+)\)")
# Recipes make text, which their pages show; `recipes.md` has a picture of their success.
WITHOUT_A_PICTURE = [f"recipes/{x}.md" for x in ("chat", "latex", "names", "source-code", "verse")]


def test_how_to_pages_have_a_picture():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    how_to = site.split("- How-to:\n")[1].split("- Reference:\n")[0]
    pages = re.findall(r": (\S+\.md)$", how_to, re.M)
    plain = [p for p in pages if not IMAGE.search((ROOT / "docs" / p).read_text(encoding="utf-8"))]
    assert len(pages) > 20 and plain == WITHOUT_A_PICTURE


def test_every_picture_is_shown_and_fits_dark_mode_and_small_screens():
    found = (
        page.parent / target
        for page in PAGES
        for _, target in IMAGE.findall(page.read_text(encoding="utf-8"))
    )
    drawn = set((ROOT / "docs" / "pictures").iterdir())
    assert drawn and drawn <= {path.resolve() for path in found}
    for path in (*drawn, *(ROOT / "docs" / "companion").glob("*.svg")):
        assert "@media (prefers-color-scheme: dark)" in path.read_text(encoding="utf-8"), path
    scripts = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs").glob("*pictures.py"))
    for path in drawn:
        assert f'"{path.stem}":' in scripts or f"def {path.stem}(" in scripts, path
        svg = path.read_text(encoding="utf-8")
        assert "<title>" in svg, path
        width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
        placed = re.findall(r'<(?:text|rect)[^>]* x="(\S+)" y="(\S+)"', svg)
        assert width == 400, path
        assert all(0 <= float(x) < width and 0 <= float(y) < height for x, y in placed), path
        bars = re.findall(r'<rect[^>]* x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', svg)
        for x, y, across, down in (map(float, bar) for bar in bars):
            assert x + across <= width and y + down <= height, path


def test_nothing_advises_to_install_the_other_project_called_seqgen():
    """On the package index that name is another project, which would replace this one."""
    by_name = re.compile(r"seqgen\[|\bpip install (?:-\S+ )*['\"]?seqgen\b(?!-lm)")
    assert by_name.search("pip install -U seqgen") and by_name.search("'seqgen[hf]'")
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"]
    for folder in ("docs", "seqgen", "tests", "corpora"):
        files += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".md", ".py")]
    found = [p.name for p in files if by_name.search(p.read_text(encoding="utf-8"))]
    assert found == [Path(__file__).name]  # the two examples above


def test_extras_name_extras_of_the_same_distribution():
    project = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    own = [r for required in extras.values() for r in required if r.startswith("seqgen")]
    assert project["name"] == "seqgen-lm" and own
    for requirement in own:
        name, names = re.fullmatch(r"([\w-]+)\[([\w,]+)\]", requirement).groups()
        assert name == project["name"] and set(names.split(",")) <= set(extras)


def test_every_package_that_a_format_needs_is_in_an_extra():
    project = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    known = {re.split("[<>=]", x)[0] for name, extra in extras if name != "test" for x in extra}
    sources = [
        p.read_text(encoding="utf-8") for p in (ROOT / "seqgen/plugins/exchange").glob("*.py")
    ]
    calls = re.findall(r"require_packages\([^,]+, ([^)]+)\)", "".join(sources))
    needed = {name for call in calls for name in re.findall(r'"(.+?)"', call)}
    assert needed == {"gguf", "onnx", "onnxscript", "huggingface_hub"} and needed <= known


def script_of(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_are_current():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    script = script_of("settings")
    assert page == script.page(), "run python docs/settings.py"
    for folder in script.folders():
        stored = (folder / registry.DEFAULTS).read_text(encoding="utf-8")
        assert stored == script.defaults(folder), "run it as above"


def test_every_setting_is_on_the_page():
    """The settings of models in one table, each with the architectures that have it."""
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    part = page.split("\n## Models\n")[1].split("\n## ")[0]
    cells = re.search(r"^\*all cells\* stands for (.+)\.$", part, re.M)[1].split(", ")
    found = {name: set() for name in registry.ARCHITECTURES}
    for line in re.findall(r"^\| `.+", part, re.M):
        name, *_, defaults = re.split(r" (?<!\\)\| ", line.removesuffix(" |").removeprefix("| "))
        for whose in re.findall(r"\(([^)]*)\)(?=;|$)", defaults):
            names = [c for one in whose.split(", ") for c in (cells if "*" in one else [one])]
            assert len({*names}) == len(names)
            for one in names:
                found[one].add(name.strip("`"))
    assert found == {n: {*row.load_config().fields()} for n, row in registry.ARCHITECTURES.items()}


def test_the_page_of_settings_says_what_is_refused():
    rows = re.findall(r"^\| `dropout` \|.*", (ROOT / "docs" / "settings.md").read_text(), re.M)
    assert rows and all("| at least 0 and less than 1 |" in row for row in rows)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_in_the_docs_compiles_and_its_imports_resolve(page):
    for _, body in blocks(page, "python"):
        compile(body, str(page), "exec")
        for module, names in re.findall(r"^from (\S+) import (.+)$", body, re.M):
            if importlib.util.find_spec(module.partition(".")[0]) is None:
                continue  # another project's package, which the tests do not need
            found = importlib.import_module(module)
            assert all(hasattr(found, name.strip()) for name in names.split(","))


def test_json_in_the_docs_is_json():
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith('{"'):
                json.loads(line)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "options", "words"),
    [
        ("session.py", [], ["perplexity", "#ff"]),  # a command, the red of a surprise
        ("report_picture.py", ["--steps", "3"], ["Held-out", "nats/token", "#ff"]),
    ],
)
def test_the_pictures_can_be_made_again(script, options, words, tmp_path):
    out = tmp_path / "picture.svg"
    line = [sys.executable, ROOT / "docs" / script, *options, "--out", out]
    subprocess.run(line, check=True, timeout=300)
    svg = out.read_text(encoding="utf-8")
    assert all(word in svg for word in words) and "@font-face" not in svg


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("seqgen/plugins/*/__init__.py")), ids=lambda path: path.parent.name
)
def test_a_plugin_names_the_pages_about_it(path):
    about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    *_, pages = about.splitlines()
    assert pages.startswith("Pages: docs/")
    assert all((ROOT / page).is_file() for page in pages.removeprefix("Pages: ").split(", "))
