"""Records say how they were made; replay makes them again and names what differs."""

from __future__ import annotations

import functools
import gzip
import json
import shutil
import subprocess
import sys

import pytest
from helpers_cli import installed, needs, records, refusal
from places import STORED
from safetensors.numpy import load_file, save_file

from seqgen import store
from seqgen.cli import all_commands, run
from seqgen.plugins.replay.command import REPLAYED, TIMES
from seqgen.registry import load_object

TEXT = STORED / "tiny.txt"


@pytest.fixture
def place(home, tmp_path, monkeypatch):
    """A folder with a text, and a home with an n-gram model, an LSTM and an HMM."""
    shutil.copy(TEXT, tmp_path / "t.txt")
    for name, stored in {"grams": "ngram-whitespace", "net": "lstm-char"}.items():
        shutil.copytree(STORED / "models" / stored, home / "models" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def replayed(capsys, *arguments) -> tuple[int, list[dict]]:
    """Return the exit code of a replay and its records."""
    capsys.readouterr()
    code = run(["replay", *arguments, "--json", "-q"])
    return code, [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]


def write(path, found: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in found))


def recorded(capsys, *arguments) -> list[dict]:
    return records(capsys, *arguments, "--record", "-q")


def test_a_record_says_how_it_was_made(place, capsys):
    (found,) = recorded(capsys, "perplexity", "t.txt", "-m", "net")
    about = found["run"]
    assert about["command"] == "perplexity" and about["arguments"][:3] == ["t.txt", "-m", "net"]
    assert about["models"] == {"net": store.find("net").digest}
    assert about["files"] == {"t.txt": store.manifest.digest_of(TEXT)}
    assert about["options"]["batch_size"] == 32 and about["versions"].keys() >= {"seqgen", "numpy"}
    assert not about["stdin"] and about["machine"]["platform"]
    (plain,) = records(capsys, "perplexity", "t.txt", "-m", "net")
    assert plain == {key: value for key, value in found.items() if key != "run"}
    # --record asks for JSON by itself; a seed that was drawn is recorded.
    capsys.readouterr()
    assert run(["sample", "-m", "net", "--max-tokens", "2", "--record"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"]["seed"] == found["seed"] is not None


@pytest.mark.slow
def test_what_differs_is_named(place, capsys):
    (found,) = recorded(capsys, "sample", "-m", "net", "--max-tokens", "5", "--seed", "3")
    weights = store.find("net").path / store.WEIGHTS
    tensors = load_file(weights)
    name = next(name for name in tensors if "head" in name and tensors[name].ndim == 1)
    tensors[name][:] += 0.01 * (tensors[name] == tensors[name].max())  # one weight
    save_file(tensors, weights)
    (weights.parent / "manifest.json").unlink()
    found["run"]["versions"]["numpy"] = "0.1"
    found["run"]["options"]["top_p"] = 0.3
    write(place / "log.jsonl", [found])
    code, ((one),) = replayed(capsys, "log.jsonl")
    assert code == 1 and not one["equal"]
    said = " ".join(one["differs"])
    for part in ("model net was", "version numpy was", "option top_p was 0.3, is 1.0", "logprob"):
        assert part in said
    # The log takes over what the records are now.
    assert run(["replay", "log.jsonl", "--update", "-q"]) == 0
    capsys.readouterr()
    assert replayed(capsys, "log.jsonl") == (0, [{"index": 0, "equal": True, "differs": []}])


def test_changes_are_named_even_if_the_results_are_equal(place, capsys):
    """Of a model one probability that the text does not ask for; a version; an option."""
    (found,) = recorded(capsys, "sample", "-m", "grams", "--max-tokens", "1", "--seed", "3")
    weights = store.find("grams").path / store.WEIGHTS
    tensors = load_file(weights)
    last = max(name for name in tensors if name.startswith("log_probs"))
    tensors[last][-1] -= 1
    save_file(tensors, weights)
    (weights.parent / "manifest.json").unlink()
    found["run"]["versions"]["numpy"] = "0.1"
    found["run"]["options"]["batch_size"] = 3
    write(place / "log.jsonl", [found])
    code, ((one),) = replayed(capsys, "log.jsonl")
    assert (code, one["equal"]) == (0, True)
    model, option, version = one["differs"]
    assert model.startswith("model grams was") and version.startswith("version numpy was")
    assert option == "option batch_size was 3, is 32"
    assert run(["replay", "log.jsonl", "-q"]) == 0
    assert capsys.readouterr().out.startswith("0\tequal; model grams was")


def test_only_commands_that_can_be_repeated_offer_to_record():
    offered = {
        name
        for name, row in all_commands().items()
        for group in getattr(load_object(row.target), "groups", ())
        if "record_run" in group.fields()
    }
    assert offered == {*installed(REPLAYED)}


def test_what_cannot_be_repeated(place, capsys):
    (found,) = recorded(capsys, "sample", "-m", "net", "--max-tokens", "1", "--seed", "3")
    gone, other, piped = (json.loads(json.dumps(found)) for _ in range(3))
    gone["run"]["arguments"][1] = "nobody"
    other["run"]["command"] = "models"
    piped["run"]["stdin"], piped["index"] = True, 2
    bare = {key: value for key, value in found.items() if key != "run"}
    write(place / "log.jsonl", [gone, other, piped, bare])
    code, lines = replayed(capsys, "log.jsonl")
    said = [line["differs"][0] for line in lines]
    assert code == 1 and not any(line["equal"] for line in lines)
    assert "nobody" in said[0] and "only sample" in said[1]
    assert "earlier prompts" in said[2] and "--record" in said[3]
    (place / "bad.jsonl").write_text("{}\nno\n")
    assert "line 2" in refusal(capsys, "replay", "bad.jsonl")
    with gzip.open(place / "log.jsonl.gz", "wt") as file:
        file.write(json.dumps(bare) + "\n")
    assert "--update" in refusal(capsys, "replay", "log.jsonl.gz", "--update")


@pytest.mark.slow
def test_records_of_the_latest_model(place, capsys):
    """They are repeated with that model, which is no change as long as it is the same."""
    train = ("train", "t.txt", "--model", "ngram", "--order", "2", "-q", "--name")
    assert run([*train, "last"]) == 0
    found = recorded(capsys, "sample", "--max-tokens", "2", "--seed", "3")
    found += recorded(capsys, "perplexity", "t.txt")
    write(place / "log.jsonl", found)
    assert run([*train, "later"]) == 0
    equal = [{"index": index, "equal": True, "differs": []} for index in range(2)]
    assert replayed(capsys, "log.jsonl") == (0, equal)
    assert run([*train, "last", "--order", "3", "--overwrite"]) == 0
    _, lines = replayed(capsys, "log.jsonl")
    assert all(line["differs"][0].startswith("model last was") for line in lines)


def test_files_are_not_written_again(place, capsys):
    made = recorded(capsys, "tokenize", "t.txt", "-m", "net", "--out", "victim")
    # Also if the options do not say so.
    calls = {
        ("inspect", "t.txt", "--html=victim.html"): "--html",
        ("perplexity", "t.txt", "--plot", "victim.svg"): "--plot",
        ("perplexity", "--", "--plot"): None,
    }
    calls = installed(calls)
    for command, *arguments in calls:
        about = {**made[0]["run"], "command": command, "arguments": arguments, "options": {}}
        made.append({**made[0], "run": about})
    (place / "victim").write_text("mine")
    write(place / "log.jsonl", made)
    code, lines = replayed(capsys, "log.jsonl")
    said = [line["differs"][0] for line in lines]
    for flag, why in zip(("--out", *filter(None, calls.values())), said[:-1], strict=True):
        assert why == f"it writes a file ({flag}), which a replay does not do"
    assert code == 1 and "there is no file --plot" in said[-1]
    assert (place / "victim").read_text() == "mine"
    assert not any((place / name).exists() for name in ("victim.svg", "victim.html"))


def run_of(made: dict, command: str, *arguments: str) -> dict:
    """Return a record with another command, of which its options say nothing."""
    about = {"command": command, "arguments": [*arguments], "options": {}, "models": {}}
    return {**made, "run": {**made["run"], **about, "files": {}, "seed": None}}


def contents(folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@needs("inspect", "tune", "vectors")
def test_no_record_changes_a_model_or_a_file(place, capsys):
    """Whatever its options say; what the arguments are read as decides."""
    small = ("--model", "rnn", "--hidden-size", "4", "--batch-size", "2")
    assert run(["train", "t.txt", *small, "--steps", "4", "--name", "pl", "-q"]) == 0
    found = recorded(capsys, "perplexity", "t.txt", "-m", "net")[0]
    path = str(store.models_folder() / "pl")
    picture, page = "victim.svg", "victim.html"
    for name in ("victim", picture, page):
        (place / name).touch()
    before = contents(place)
    refused = [
        run_of(found, "train", "--resume", "pl", "--steps", "6"),
        run_of(found, "train", "--resume=pl", "--steps", "6"),
        run_of(found, "train", "--steps", "6", "--resume", path),
        run_of(found, "train", "--name", "--", "--resume", "pl", "--steps", "6"),
        run_of(found, "tokenize", "-m", "net", "--newlines", "--", "t.txt", "--out", "victim"),
        run_of(found, "tokenize", "t.txt", "--tokenizer", "--", "--out", "victim", "--overwrite"),
        run_of(found, "inspect", "t.txt", "-m", "net", "--html", page),
        run_of(found, "inspect", "-m", "--", "t.txt", f"--html={page}"),
        run_of(found, "sweep", "t.txt", "--models", "--", f"--plot={picture}", "--steps", "1"),
        run_of(found, "train", "--find-lr", "t.txt", *small, "--plot", picture),
        run_of(found, "vectors", "-m", "pl", "--format", "--", "--out", "victim"),
    ]
    harmless = [
        run_of(found, "train", "t.txt", *small, "--steps", "1", "--name", "pl", "--overwrite"),
        run_of(found, "mix", "net", "pl", "--name", "pl", "--overwrite"),
    ]
    write(place / "log.jsonl", [*refused, *harmless])
    for flags in ((), ("--update",)):
        code, lines = replayed(capsys, "log.jsonl", *flags)
        assert code == (0 if flags else 1)
        for line in lines[: len(refused)]:
            assert "a resumed training" in line["differs"][0] or any(
                why in line["differs"][0]
                for why in ("it writes a file", "only sample", "No such option", "cannot be")
            )
        now = contents(place)
        now.pop(str(place / "log.jsonl"))
        assert now == before


def test_models_are_not_updated(place, capsys):
    (found,) = recorded(capsys, "perplexity", "t.txt", "-m", "net")
    log = store.models_folder() / "net" / "metrics.jsonl"
    write(log, [found])
    (place / "link.jsonl").symlink_to(log)
    before = log.read_bytes()
    for name in (str(log), "link.jsonl"):
        assert "is in the models' folder" in refusal(capsys, "replay", name, "--update")
    assert log.read_bytes() == before and (place / "link.jsonl").is_symlink()


@pytest.mark.slow
def test_damaged_records_take_a_line_each(place, capsys):
    (found,) = recorded(capsys, "perplexity", "t.txt", "-m", "grams")
    damages = {
        "options": [1],
        "versions": None,
        "machine": "x",
        "models": ["grams"],
        "files": 3,
        "seed": "one",
        "command": {},
        "arguments": "t.txt",
        "stdin": None,
    }
    damaged = [{**found, "run": {**found["run"], name: value}} for name, value in damages.items()]
    said = [
        f"its run is damaged: {name} is {'missing' if value is None else json.dumps(value)}"
        for name, value in damages.items()
    ]
    for arguments, why in (
        (["t.txt\0"], "its command cannot be run: embedded null byte"),
        (["\ud800"], "its command cannot be run: "),
        (["--help"], "line 1 is not a JSON record"),
    ):
        damaged.append({**found, "run": {**found["run"], "arguments": arguments}})
        said.append(why)
    damaged += [{**found, "unit": "\ud800"}, {**found, "run": 5}, found]
    said += ['unit was "\\ud800", is missing', "its run is damaged: 5"]
    write(place / "log.jsonl", damaged)
    code, lines = replayed(capsys, "log.jsonl")
    assert code == 1 and lines[-1] == {"index": len(said), "equal": True, "differs": []}
    for line, why in zip(lines[:-1], said, strict=True):
        assert not line["equal"] and len(line["differs"]) == 1
        assert line["differs"][0].startswith(why)
    assert run(["replay", "log.jsonl", "--update", "-q"]) == 0


def in_a_process(arguments: list[str], piped: bytes = b"") -> int:
    """Run a command as a shell does: pytest's process has other threads, and rounds otherwise."""
    done = subprocess.run(
        [sys.executable, "-m", "seqgen", *arguments], input=piped, stdout=subprocess.PIPE
    )
    sys.stdout.write(done.stdout.decode())
    return done.returncode


@pytest.mark.slow
def test_trainings_that_add_an_n_gram_model_or_resume(place, capsys):
    small = ("--hidden-size", "4", "--batch-size", "2", "--steps", "2")
    train = ("train", "t.txt", "--model", "rnn", "--name", "w", "--with-ngram", "2", *small)
    made = records(capsys, *train, "--record", "-q", by=in_a_process)
    assert made[0]["mixture"]["name"] == "w"
    made += recorded(capsys, "train", "--resume", "w", "--steps", "3")
    write(place / "log.jsonl", made)
    stored = {path.name: store.find(path.name).digest for path in store.models_folder().iterdir()}
    code, lines = replayed(capsys, "log.jsonl")
    assert code == 1 and lines[0] == {"index": 0, "equal": True, "differs": []}
    (said,) = lines[1]["differs"]
    assert said.startswith("a resumed training cannot be repeated")
    now = {path.name: store.find(path.name).digest for path in store.models_folder().iterdir()}
    assert now == stored and "w" in stored


@pytest.mark.slow
@needs("inspect", "searches", "tune")
def test_everything_comes_out_equal(place, capsys):
    assert run(["train", "t.txt", "--model", "ngram", "--order", "3", "--name", "last", "-q"]) == 0
    commands = (
        ("sample", "--num-samples", "2", "--max-tokens", "9"),
        ("sample", "ten", "net", "-m", "net", "--max-tokens", "9", "--top-p", "0.9"),
        ("beam-search", "ten", "-m", "net", "--max-tokens", "4", "--nbest", "2"),
        ("beam-search", "-m", "last", "--stochastic", "--max-tokens", "4"),
        ("perplexity", "t.txt", "-m", "net", "-m", "last"),
        ("perplexity", "t.txt", "-m", "net", "--per-line"),
        ("perplexity", "t.txt", "-m", "net:0.3+last:0.7"),
        ("eval", "-m", "last", "--passages", "2"),
        ("compare", "net", "last", "--data", "t.txt", "--resamples", "9"),
        ("sweep", "t.txt", "--models", "rnn", "--parameters", "2000", "--steps", "2"),
        ("train", "t.txt", "--model", "rnn", "--hidden-size", "4", "--steps", "2", "--name", "new"),
        ("mix", "net", "last", "--name", "both"),
        ("diagnose", "t.txt", "-m", "net", "--distance", "3"),
    )

    def made(*command):
        return records(capsys, *command, "--record", "-q", by=in_a_process)

    found = [one for command in commands for one in made(*command)]
    piped = functools.partial(in_a_process, piped=b"net\n\nten\n")
    of_pipe = ("sample", "-m", "net", "--max-tokens", "3", "--record", "-q")
    found += records(capsys, *of_pipe, by=piped)
    with gzip.open(place / "log.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(record) + "\n" for record in found))
    stored = {path.name: store.find(path.name).digest for path in store.models_folder().iterdir()}
    code, lines = replayed(capsys, "log.jsonl.gz")
    now = {path.name: store.find(path.name).digest for path in store.models_folder().iterdir()}
    assert now == stored and {"new", "both"} <= stored.keys()
    assert [line for line in lines if not line["equal"]] == [] and code == 0
    assert len(lines) == len(found) > 20 and [one["prompt"] for one in found[-3:]] == [
        "net",
        "",
        "ten",
    ]
    # Only times and places may be another.
    others = {"seconds", "tokens_per_second", "validation_seconds", "train_loss", "path", "run"}
    assert others == TIMES
