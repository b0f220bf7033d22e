"""A copy of seqgen without a plugin that models need: all else works, and messages name it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_cli import needs
from places import STORED

import seqgen
from seqgen import hooks, registry
from seqgen.cli import run
from seqgen.plugins import BROUGHT
from seqgen.store import StoredModel

PACKAGE = Path(seqgen.__file__).parent
MODELS = STORED / "kinds" / "models"
# Runs each of the commands, apart by newlines, and says how it ended.
PROGRAM = """
import sys
from seqgen.cli import run
for command in sys.argv[1].splitlines():
    code = run(command.split())
    print("ended", code, flush=True)
    print("ended", code, file=sys.stderr, flush=True)
"""
# Options that commands of the core have, and plugins too.
OF_THE_CORE = {"--max-tokens", "--plot"}
NEEDS = "needs the plugin {}, which is not installed"


def linked(place, without):
    """Make a package in `place` that is this one without a plugin, or without several."""
    for folder, left_out in ((PACKAGE, ["plugins"]), (PACKAGE / "plugins", without)):
        copy = place / folder.relative_to(PACKAGE.parent)
        copy.mkdir()
        for path in folder.iterdir():
            if path.name != "__pycache__" and path.name not in left_out:
                (copy / path.name).symlink_to(path)


@pytest.fixture
def ran(tmp_path, words):
    """Return what runs commands without a plugin: the codes, outputs and messages of each."""

    def run_all(without, *commands):
        (tmp_path / "copy").mkdir()
        linked(tmp_path / "copy", [without] if isinstance(without, str) else without)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "\n".join(commands)],
            env={
                "SEQGEN_HOME": str(tmp_path / "home"),
                "PYTHONPATH": str(tmp_path / "copy"),
                "PATH": "/bin",
                "OMP_NUM_THREADS": "1",
            },
            cwd=words.parent,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        outs, errors = done.stdout.split("ended "), done.stderr.split("ended ")
        codes = [int(part.splitlines()[0]) for part in outs[1:]]
        assert len(codes) == len(commands)
        texts = [part.partition("\n")[2] if at else part for at, part in enumerate(outs)]
        said = [part.partition("\n")[2] if at else part for at, part in enumerate(errors)]
        return list(zip(codes, texts, said, strict=False))

    return run_all


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("the cat sat on the mat\n" * 40)
    (tmp_path / "pairs.tsv").write_text("the cat\tle chat\n" * 40)
    (tmp_path / "tags.conll").write_text("the\tD\ncat\tN\n\n" * 30)
    return path


def refused(results, plugin):
    for code, _, said in results:
        assert code != 0 and NEEDS.format(plugin) in said and said.count("\n") <= 2, said


QUICK = "--steps 2 --seed 1 --quiet --hidden-size 8"


def test_the_latest_model_is_not_passed_over_in_silence(ran, words, tmp_path):
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    for name in ("ngram", "hmm"):  # the latest is the second
        shutil.copytree(MODELS / name, models / name)
    scored, listed = ran("hmm", f"perplexity {words}", "models")
    code, text, said = scored
    assert code == 0 and said.splitlines()[-1] == f"seqgen: hmm {NEEDS.format('hmm')}"
    assert "ngram: " in said and text
    assert listed[0] == 0 and "ngram" in listed[1] and "hmm" not in listed[1]


def test_what_is_typed_names_the_plugins_that_are_missing(ran, words):
    (words.parent / "a.csv").write_text("text\nthe cat\n")
    gone = "bytes", "exchange", "patterns", "serve", "tables"
    served, addressed, viewed, table, option = ran(
        gone,
        "serve",
        "train words.txt --init-from hf:some/model --steps 1",
        f"sample -m {MODELS}/ngram:bytes",
        "train a.csv --field text",
        f"sample -m {MODELS}/ngram --pattern a",
    )
    said = [
        "seqgen serve needs the plugin serve",
        "hf:some/model needs the plugin exchange",
        f"{MODELS}/ngram:bytes needs the plugin bytes",
        "--field of a.csv needs the plugin tables",
        "No such option: --pattern; it belongs to the plugin patterns",
    ]
    for (code, _, line), start in zip(
        (served, addressed, viewed, table, option), said, strict=True
    ):
        assert code and f"{start}, which is not installed" in line and line.count("\n") == 1


@pytest.mark.slow
def test_without_labels(ran):
    helped, listed, trained, written, neighbours, *others = ran(
        "labels",
        "--help",
        "train --help",
        f"train words.txt --model lstm {QUICK} --name m",
        "sample -m m --max-tokens 5 --seed 1",
        f"vectors -m {MODELS}/word2vec --neighbours ten",
        *(f"train words.txt --model {name} {QUICK}" for name in ("bert", "birnn", "lstm-tagger")),
        f"train words.txt --task tag {QUICK}",
        f"perplexity words.txt -m {MODELS}/bert",
        f"sample -m {MODELS}/gru-tagger",
        "train words.txt --model ngram --tokenizer wordpiece",
        "tokenize words.txt --train wordpiece --out t",
        f"eval words.txt -m {MODELS}/bag-classifier",
    )
    worked = (helped, listed, trained, written, neighbours)
    assert [code for code, _, _ in worked] == [0] * 5, worked
    assert not any(f"\n  {name} " in helped[1] for name in ("fill", "predict"))
    assert "  vectors" in helped[1] and "--init-from" in listed[1]
    assert not any(word in listed[1] for word in ("--features", "--task", "bert-tiny", "elmo"))
    refused(others, "labels")


@pytest.mark.slow
def test_without_vectors(ran):
    helped, trained, featured, predicted, *others = ran(
        "vectors",
        "--help",
        f"train words.txt --model gru --tokenizer word {QUICK} --name m",
        "train tags.conll --task tag --model bag --features m --steps 2 --seed 1 --quiet --name t",
        "predict tags.conll -m t",
        f"train words.txt --model word2vec {QUICK}",
        f"train words.txt --model glove {QUICK}",
        f"sample -m {MODELS}/word2vec",
    )
    codes = [one[0] for one in (helped, trained, featured, predicted)]
    assert codes == [0, 0, 0, 0], (helped, trained, featured, predicted)
    assert "  predict" in helped[1] and "  vectors" not in helped[1]
    refused(others, "vectors")


@pytest.mark.slow
def test_without_hopfield(ran):
    helped, shown, *others = ran(
        "hopfield",
        "--help",
        f"models show {MODELS}/hopfield",
        "train words.txt --model hopfield",
        f"sample -m {MODELS}/hopfield",
    )
    assert helped[0] == shown[0] == 0 and "  restore" not in helped[1]
    assert "hopfield" in shown[1]
    refused(others, "hopfield")


@pytest.mark.slow
def test_without_hmm(ran):
    helped, shown, *others = ran(
        "hmm",
        "--help",
        f"models show {MODELS}/hmm",
        "train words.txt --model hmm --steps 2",
        f"sample -m {MODELS}/hmm",
        f"perplexity words.txt -m {MODELS}/hmm",
    )
    assert helped[0] == shown[0] == 0
    assert "hmm" in shown[1]
    refused(others, "hmm")


@pytest.mark.slow
def test_without_more_cells(ran):
    helped, trained, *others = ran(
        "more_cells",
        "--help",
        f"train words.txt --model gru {QUICK} --name m",
        *(f"train words.txt --model {name} {QUICK}" for name in ("mgu", "mut1", "rhn", "grid")),
        f"train pairs.tsv --model seq2seq --set cell=nas {QUICK}",
        f"sample -m {MODELS}/mut2",
        f"train words.txt --model hawk {QUICK}",
        f"perplexity words.txt -m {MODELS}/hawk",
        f"perplexity words.txt -m {MODELS}/grid",
    )
    assert helped[0] == trained[0] == 0
    refused(others, "more_cells")


@pytest.mark.slow
def test_without_window(ran):
    helped, shown, *others = ran(
        "window",
        "--help",
        f"models show {MODELS}/window",
        f"train words.txt --model window {QUICK}",
        f"sample -m {MODELS}/window",
        f"perplexity words.txt -m {MODELS}/window",
    )
    assert helped[0] == shown[0] == 0
    assert "window" in shown[1]
    refused(others, "window")


def test_the_table_of_plugins_has_what_each_brings():
    installed = {one.name for one in hooks.plugins()}
    found = {name: set() for name in BROUGHT if name in installed}
    for row in registry.ARCHITECTURES.values():
        if row.plugin is not None:
            found[row.plugin].add(row.name)
    for task in registry.ON_FEATURES:
        found[hooks.plugin_of(task.head)] |= {task.name, task.called}
    tokenizers = {**hooks.by_name("tokenizers"), **hooks.by_name("stored_tokenizers")}
    for kind, (plugin, _) in tokenizers.items():
        found[plugin.name].add(kind)
    for one in hooks.plugins():
        if one.module != f"seqgen.plugins.{one.name}":
            continue  # another distribution's
        plugin, own = one.plugin, found.setdefault(one.name, set())
        own |= {name for named in plugin.methods.values() for name in named}
        own |= {f"seqgen {name}" for name in plugin.commands} | {*plugin.record_readers}
        own |= {f":{name}" for name in plugin.views} | {f"{name}:" for name in plugin.model_sources}
        for group in (hooks.options(place)[one.name] for place in plugin.options):
            own |= {group.name_of(name) for name, _, _ in group.flags()} - OF_THE_CORE
    found = {name: own for name, own in found.items() if own}
    assert {name: set(BROUGHT[name]) for name in found} == found
    for plugin, names in BROUGHT.items():
        missing = None if plugin in installed else plugin
        assert [hooks.missing_plugin(name) for name in names] == [missing] * len(names)
    assert registry.architecture("lstm").plugin is None
    if "labels" in installed:
        assert registry.architecture("lstm-tagger").plugin == "labels"


@pytest.mark.slow
def test_a_model_names_the_plugin_that_it_needs(tmp_path, words, capsys):
    given = ["--steps", "2", "--seed", "1", "--quiet"]
    assert run(["train", str(words), "--model", "word2vec", *given, "--name", "w"]) == 0
    assert run(["train", str(words), "--model", "gru", *given, "--name", "g"]) == 0
    home = tmp_path / "home" / "models"
    assert StoredModel(home / "w").config["plugin"] == "vectors"
    assert "plugin" not in StoredModel(home / "g").config
    config = str(home / "w" / "config.json")
    assert run(["train", str(words), "--config", config, *given, "--name", "again"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    "plugin", ["seqgen-strange", pytest.param("labels", marks=needs("labels"))]
)
def test_an_unknown_architecture_of_a_plugin(tmp_path, plugin, capsys):
    """Damage, if the plugin is there."""
    model = shutil.copytree(MODELS / "gru", tmp_path / "m")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps({**config, "architecture": "strange", "plugin": plugin})
    )
    assert run(["sample", "-m", str(model)]) != 0
    said = capsys.readouterr().err
    assert ("damaged" in said) == (plugin == "labels")
    assert (NEEDS.format(plugin) in said) == (plugin != "labels")


@pytest.mark.slow
def test_without_exchange(ran):
    helped, *others = ran(
        "exchange",
        "--help",
        f"models show {MODELS}/imported-llama",
        *(f"perplexity words.txt -m {MODELS}/imported-{name}" for name in ("llama", "gpt2")),
        f"beam-search A -m {MODELS}/imported-marian",
    )
    assert helped[0] == 0 and "  import" not in helped[1]
    refused(others, "exchange")
