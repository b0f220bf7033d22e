import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from datetime import datetime

import pytest
import safetensors.torch
import torch

from seqgen import registry, store
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import make_listed_folder, replacing, write_bytes, write_json
from seqgen.store import StoredModel
from seqgen.store.folder import TYPES, tensor_pieces
from seqgen.store.loading import load
from seqgen.text.tokenizers import KINDS
from seqgen.text.tokenizers.char import CharTokenizer


def made(name, written=None, seed=0, overwrite=False):
    """Store a tiny model as training does, without training."""
    with store.building(name, "stem", overwrite=overwrite) as stored:
        filled(stored, seed)
        stored.publish()
    if written is not None:
        os.utime(stored.path / store.WEIGHTS, (written, written))
    return StoredModel(stored.path)


def filled(stored, seed=0):
    """Write the parts of a tiny model."""
    tokenizer = KINDS["char"]("abc")
    kind = registry.architecture("lstm")
    config = kind.load_config()(vocab_size=tokenizer.vocab_size, hidden_size=4, num_layers=1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind.load_model()(config)
    stored.write_config("lstm", model=config.to_dict(), training={}, data={"tokenizer": "char"})
    tokenizer.save(stored.path / "tokenizer")
    stored.write_record(created=store.now(), parameters=model.parameter_count(), result=None)
    stored.write_weights(model)


def one_line(caught):
    message = str(caught.value)
    assert message and "\n" not in message
    return message


# ---- names ----


@pytest.mark.parametrize("name", ["a", "A9", "9-x_y.z", "tiny-shakespeare.v2", "x" * 100])
def test_names(name):
    store.check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".x", "-x", "_x", "a b", "a/b", "../x", "a\n", "\u00e9", "a\\b", "latest"],
)
def test_what_is_no_name(name, home):
    with pytest.raises(UsageError) as caught, store.building(name, "stem", overwrite=False):
        pass
    assert one_line(caught)
    assert not home.exists()


def test_a_name_in_use_is_refused_with_what_to_do():
    kept = made("one", seed=1)
    with (
        pytest.raises(UsageError, match=r"--overwrite or another --name"),
        store.building("one", "stem", overwrite=False),
    ):
        pass
    assert kept.loadable
    before = kept.digest
    assert made("one", seed=2, overwrite=True).digest != before


@pytest.mark.parametrize("published", [False, True])
def test_without_a_name_a_new_one_is_made(published):
    """Also while others are in the making, which are not yet to be seen."""
    with contextlib.ExitStack() as held:
        names = []
        for stem in ["T\u00f6n of text-lstm"] * 3 + ["...", "", "-", "\u65e5\u672c"]:
            model = held.enter_context(store.building(None, stem, overwrite=False))
            names.append(model.name)
            if published:
                model.publish()
        assert names[:3] == ["T-n-of-text-lstm", "T-n-of-text-lstm-2", "T-n-of-text-lstm-3"]
        assert names[3:] == ["model", "model-2", "model-3", "model-4"]
        seen = {path.name for path in store.models_folder().glob("[!.]*")}
        assert seen == (set(names) if published else set())
    for name in names:
        store.check_name(name)


def test_a_made_name_is_never_the_reserved_one():
    with store.building(None, "latest", overwrite=False) as model:
        store.check_name(model.name)


# ---- finding ----


def test_latest_is_the_last_written(home):
    with pytest.raises(SeqgenError, match="run seqgen train"):
        store.find(None)
    made("new", 2000), made("old", 1000)
    with store.building("unfinished", "stem", overwrite=False) as unfinished:
        unfinished.write_config("lstm", model={}, training={}, data={})
        unfinished.publish()
    (home / "models" / ".hidden").mkdir()
    (home / "models" / "a-file").write_text("x")
    assert store.find(None).name == store.find("latest").name == "new"
    assert [m.name for m in store.list_models()] == ["new", "old"]


@pytest.mark.parametrize("part", [store.CONFIG, store.WEIGHTS, "tokenizer/tokenizer.json"])
def test_latest_is_one_that_can_be_loaded(part):
    made("good", 1000)
    damaged = made("damaged", 2000)
    (damaged.path / part).unlink()
    assert store.find(None).name == "good"
    (damaged.path / part).write_text("{")
    os.utime(damaged.path / part, (2000, 2000))
    assert store.find(None).name == "good"


def test_a_wrong_name_gets_a_hint():
    made("shakespeare"), made("names")
    with pytest.raises(SeqgenError, match="did you mean 'shakespeare'") as caught:
        store.find("shakespere")
    assert caught.value.exit_code == 1
    with pytest.raises(SeqgenError, match="seqgen models lists"):
        store.find("qqqqqq")
    with pytest.raises(UsageError):
        store.find("..")


def test_a_value_with_a_separator_is_a_path(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made("mine").path, elsewhere / "copied")
    shutil.rmtree(store.home())
    monkeypatch.chdir(elsewhere)
    assert store.find("./copied").name == "copied"
    assert store.find(str(elsewhere / "copied") + "/").loadable
    with pytest.raises(SeqgenError, match="there is no model named"):
        store.find("copied")
    with pytest.raises(SeqgenError, match="no model folder"):
        store.find("./other")


def test_a_copied_folder_works_where_it_lands(tmp_path):
    mine = made("mine", seed=3)
    here = load("mine")
    shutil.copytree(mine.path, tmp_path / "mailed")
    shutil.rmtree(store.home())
    there = load(tmp_path / "mailed")
    tokens = torch.tensor([[4, 5, 6]])
    with torch.no_grad():
        assert torch.equal(here.model(tokens)[0], there.model(tokens)[0])
    assert there.tokenizer.facts() == here.tokenizer.facts()


# ---- damage ----

DAMAGED = {
    "missing": None,
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe{}",
    "a list": b"[]",
    "nothing in it": b"{}",
    "later": b'{"format": 99}',
    "no model": b'{"format": 1, "architecture": "lstm", "training": {}, "data": {}}',
    "no data": b'{"format": 1, "architecture": "lstm", "model": {"vocab_size": 8}, "training": {}}',
    "not a table": b'{"format": 1, "architecture": "lstm", "model": 3, "training": {}, "data": {}}',
    "a list of data": b'{"format": 1, "architecture": "lstm", "model": {}, "data": []}',
    "no architecture": b'{"format": 1, "model": {}, "training": {}, "data": {}}',
    "unknown architecture": b'{"format": 1, "architecture": "x", "model": {}, "data": {}}',
    "architecture is not text": b'{"format": 1, "architecture": [], "model": {}, "data": {}}',
}


@pytest.mark.parametrize("how", DAMAGED)
@pytest.mark.parametrize("part", [store.CONFIG, store.WEIGHTS, "tokenizer/tokenizer.json"])
def test_each_damaged_part_is_one_line(part, how):
    model = made("m")
    if DAMAGED[how] is None:
        (model.path / part).unlink()
    else:
        (model.path / part).write_bytes(DAMAGED[how])
    with pytest.raises(SeqgenError) as caught:
        load("m")
    assert caught.value.exit_code == 1
    assert str(model.path) in one_line(caught)


def edited(model, **changes):
    config = model.config
    config["model"] |= changes
    write_json(model.path / store.CONFIG, config)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 8},
        {"hidden_size": -1},
        {"hidden_size": "wide"},
        {"vocab_size": 5},
        {"num_layers": 2},
        {"unheard_of": 1},
    ],
)
def test_settings_that_do_not_fit_the_weights(change):
    model = made("m")
    edited(model, **change)
    with pytest.raises(SeqgenError) as caught:
        load("m")
    assert caught.value.exit_code == 1
    assert str(model.path) in one_line(caught)


def test_settings_of_the_data_that_are_wrong():
    model = made("m")
    config = model.config
    write_json(model.path / store.CONFIG, {**config, "data": {"documents": "pages"}})
    with pytest.raises(SeqgenError, match=re.escape(str(model.path))) as caught:
        load("m")
    assert caught.value.exit_code == 1


def test_weights_broken_off_anywhere():
    model = made("m")
    whole = (model.path / store.WEIGHTS).read_bytes()
    for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        (model.path / store.WEIGHTS).write_bytes(whole[:size])
        with pytest.raises(SeqgenError, match=r"model\.safetensors is missing or damaged"):
            load("m")


def test_a_tokenizer_of_another_model():
    model = made("m")
    KINDS["char"]("abcd").save(model.path / "tokenizer")
    with pytest.raises(SeqgenError, match="8 tokens and its tokenizer 9"):
        load("m")


# ---- writing ----


def test_replacing_is_all_or_nothing(tmp_path):
    path = tmp_path / "x"
    write_bytes(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"half of the ne")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE")
def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    code = """
        import resource, signal, sys
        from pathlib import Path
        from seqgen.files import write_bytes
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write_bytes(Path(sys.argv[1]), bytes(100_000))
        except OSError as error:
            print(error.strerror)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "File too large\n", done.stderr
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_json_of_any_text(tmp_path):
    value = {"a": "\u00e9\U0001f600\n", "name of a file that is not UTF-8": "\udcff"}
    write_json(tmp_path / "x", value)
    assert json.loads((tmp_path / "x").read_text(encoding="utf-8")) == value
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x", {"a": float("nan")})


def test_metrics_are_a_flushed_line_each():
    model = made("m")
    with model.log(store.METRICS) as metrics:
        metrics.write({"step": 1, "loss": 2.5})
        assert (model.path / store.METRICS).read_text() == '{"step": 1, "loss": 2.5}\n'
        with pytest.raises(ValueError, match="JSON"):
            metrics.write({"step": 2, "loss": float("nan")})
        metrics.write({"step": 3})
    with model.log(store.METRICS) as metrics:
        metrics.write({"step": 4})
    records = map(json.loads, (model.path / store.METRICS).read_text().splitlines())
    assert [record["step"] for record in records] == [1, 3, 4]


def test_a_checkpoint_comes_back():
    model = made("m")
    with pytest.raises(SeqgenError, match="cannot be resumed"):
        model.read_checkpoint()
    tensors = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.tensor(3)}
    model.write_checkpoint(tensors, {"run": {"step": 3}})
    back, facts = model.read_checkpoint()
    assert facts == {"run": {"step": 3}}
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    path = model.path / store.CHECKPOINTS / store.LAST
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SeqgenError, match=r"damaged.*itself is usable") as caught:
        model.read_checkpoint()
    assert one_line(caught)
    assert model.load()


# ---- locks ----

HOLD = """
    import sys
    from pathlib import Path
    from seqgen.store import StoredModel
    with StoredModel(Path(sys.argv[1])).locked():
        print("locked", flush=True)
        sys.stdin.read()
    """


@pytest.fixture
def held(home):
    model = made("m")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(model.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        yield model, other
        other.kill()


def test_a_second_run_is_refused_until_the_first_is_killed(held):
    model, other = held
    with pytest.raises(SeqgenError, match="m is being trained by another run"), model.locked():
        pass
    other.kill()
    other.wait(30)
    with model.locked():  # nothing stale
        pass


def test_a_model_in_training_is_not_removed(held):
    model, _ = held
    with pytest.raises(SeqgenError, match="being trained"):
        store.remove(model)
    with (
        pytest.raises(SeqgenError, match="being trained"),
        store.building("m", "stem", overwrite=True),
    ):
        pass
    assert model.load()


def test_a_model_in_training_is_not_renamed(held):
    model, other = held
    with pytest.raises(SeqgenError, match="being trained"):
        store.rename(model, "new")
    assert model.load()
    other.kill()
    other.wait(30)
    assert store.rename(model, "new").load() and not model.path.exists()


# ---- renaming, removing ----


def test_rename(tmp_path):
    model, other = made("m"), made("n")
    for used in ("n", "m"):
        with pytest.raises(UsageError, match="already exists"):
            store.rename(model, used)
    for wrong in ("latest", "a/b", "", ".x"):
        with pytest.raises(UsageError):
            store.rename(model, wrong)
    before = sorted(p.name for p in model.path.iterdir() if p.name != store.LOCK)
    renamed = store.rename(model, "x")
    assert renamed.name == "x" and store.find("x") == renamed and renamed.load()
    assert sorted(p.name for p in renamed.path.iterdir() if p.name != store.LOCK) == before
    assert {m.name for m in store.list_models()} == {"x", "n"}
    outside = tmp_path / "elsewhere" / "copy"
    shutil.copytree(other.path, outside)
    assert store.rename(store.find(outside), "moved").path == outside.with_name("moved")


def test_remove(tmp_path):
    model = made("m")
    store.remove(model)
    assert not model.path.exists()
    other = tmp_path / "photos"
    other.mkdir()
    (other / "me.jpg").write_bytes(b"x")
    with pytest.raises(SeqgenError, match="does not look like a model; nothing was removed"):
        store.remove(StoredModel(other))
    assert (other / "me.jpg").exists()


@pytest.mark.parametrize("parts", [(), ("lock", ".config.json.abc.tmp"), ("tokenizer/",)])
@pytest.mark.parametrize("removed_first", [False, True])
def test_the_name_of_what_an_older_version_left_half_made_is_free(parts, removed_first):
    place = fill_folder("m", parts)
    StoredModel(place).write_config("lstm", model={}, training={}, data={})
    if removed_first:
        store.remove(store.find("m"))
        assert not place.exists()
    assert made("m").loadable


@pytest.mark.parametrize("parts", [(), ("lock", ".config.json.abc.tmp"), ("tokenizer/",)])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_nothing_shows_to_be_ours_is_not(parts, overwrite):
    """Not even an empty one, or one with names that seqgen uses too."""
    place = fill_folder("m", parts)
    before = sorted(place.iterdir()), place.stat().st_mtime_ns
    with pytest.raises(UsageError, match="m exists and is not a model; give another --name"):
        made("m", overwrite=overwrite)
    for change in (store.remove, lambda model: store.rename(model, "x")):
        with pytest.raises(SeqgenError, match="does not look like a model; nothing was"):
            change(store.find("m"))
    assert (sorted(place.iterdir()), place.stat().st_mtime_ns) == before


def fill_folder(name, parts):
    """Make a folder among the models, with some files and folders (they end with a slash)."""
    place = store.models_folder() / name
    place.mkdir(parents=True)
    for part in parts:
        if part.endswith("/"):
            (place / part).mkdir()
        else:
            (place / part).write_text("{")
    return place


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_has_weights_is_not_taken_for_half_made(overwrite):
    stored = made("m")
    (stored.path / store.CONFIG).unlink()
    with pytest.raises(UsageError, match="m exists and is not a model; give another --name"):
        made("m", overwrite=overwrite)
    assert (stored.path / store.WEIGHTS).exists()


def test_a_home_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(SeqgenError, match=r"cannot be written: .*set SEQGEN_HOME") as caught:
        made("m")
    assert one_line(caught)
    assert store.list_models() == []


def test_a_home_that_is_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "file"))
    for use in (store.list_models, lambda: store.find("m"), lambda: made("m"), store.cached_files):
        with pytest.raises(SeqgenError, match="file is a file; set it to a folder") as caught:
            use()
        assert one_line(caught)


# ---- texts ----


def test_a_text_from_standard_input_is_kept_once(home):
    first = store.keep_text(iter([b"some ", b"text"]))
    assert first == store.keep_text(iter([b"some text"]))
    assert first.read_bytes() == b"some text"
    assert len(list((home / "cache" / "text").iterdir())) == 1


def test_what_killed_runs_had_begun_to_write_is_taken_away(home):
    """By the next run and by hand; what a living one writes stays, and so does what is whole."""
    whole = store.keep_text(iter([b"some text"]))
    for clear in (store.clean, lambda: made(None), lambda: run(["models", "cache", "--clear"])):
        tokens = home / "cache" / "tokens"
        make_listed_folder(tokens)
        leave_unfinished(tokens / "0f.tok")
        leave_unfinished(whole.with_name("arriving"))
        living = []

        def blocks(clear=clear, living=living):
            yield b"some "
            clear()
            living += [path for path in whole.parent.iterdir() if path != whole]
            yield b"more"

        kept = store.keep_text(blocks())
        assert len(living) == 1
        assert kept.read_bytes() == b"some more"
        assert not list(tokens.iterdir())
        assert set(whole.parent.iterdir()) == {whole, kept} == set(store.cached_files())
        kept.unlink()


def leave_unfinished(path):
    """Begin to write a file in another process, and kill it there."""
    if not (child := os.fork()):
        try:
            with replacing(path) as file:
                file.write(b"half")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert [p.read_bytes() for p in path.parent.glob(f".{path.name}.*.tmp")] == [b"half"]


def test_a_training_text_is_found_where_it_was_or_in_the_cache(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"some text")
    kept = store.keep_text(iter([b"some text"]))
    data = {"files": [str(path)], "sha256": kept.stem + "0" * 32}
    assert store.text_of(data) == (path,)
    path.unlink()
    assert store.text_of(data) == (kept,)
    kept.unlink()
    with pytest.raises(SeqgenError, match=r"text\.txt is gone; give --data FILE"):
        store.text_of(data)


def test_times_are_in_utc():
    now = datetime.fromisoformat(store.now())
    assert now.utcoffset().total_seconds() == 0
    assert abs(now.timestamp() - time.time()) < 5


def test_loading_draws_nothing_and_shares_what_is_shared(tmp_path):
    from seqgen.models.transformer.model import Transformer
    from seqgen.models.transformer.settings import TransformerConfig

    size = {"window": 6, "hidden_size": 8, "num_layers": 1, "num_heads": 2}
    config = TransformerConfig(vocab_size=len("\nab") + 4, tie_weights=True, **size)
    stored = StoredModel(tmp_path / "tied")
    stored.path.mkdir()
    model = Transformer(config)
    tables = {"model": config.to_dict(), "data": {}, "training": {}}
    stored.write_config("transformer", **tables)
    tokenizer = CharTokenizer("\nab")
    tokenizer.save(stored.path / "tokenizer")
    assert tokenizer.vocab_size == config.vocab_size
    stored.write_weights(model)
    before = torch.get_rng_state()
    loaded, _ = stored.load()
    assert torch.equal(torch.get_rng_state(), before)
    assert loaded.head.weight is loaded.embedding.weight
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert all(p.data_ptr() % 64 == 0 and p.requires_grad for p in loaded.parameters())
    assert torch.equal(loaded.waves, model.waves)


def test_the_hash_of_a_large_model_is_kept_until_a_file_changes(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / store.WEIGHTS).write_bytes(b"12345678")
    stored = StoredModel(folder)
    stored.write_config("lstm", model={}, data={}, training={})
    plain = stored.digest
    monkeypatch.setattr("seqgen.store.manifest.CHEAP", 4)
    assert StoredModel(folder).digest == plain
    with monkeypatch.context() as patch:
        patch.setattr("seqgen.store.manifest._hash_of", lambda *what: pytest.fail("read again"))
        assert StoredModel(folder).digest == plain
    (folder / store.WEIGHTS).write_bytes(b"123456789")
    assert StoredModel(folder).digest != plain


def test_tensors_are_written_as_safetensors_writes_them():
    """Byte for byte, of every type and shape, views and unusual names included."""
    random = torch.Generator().manual_seed(1)
    numbers = torch.randn(3, 5, generator=random)
    tensors = {name: numbers.to(getattr(torch, name)) for name in TYPES}
    tensors |= {"transposed": numbers.T, "one": torch.tensor(2.0), "none": torch.zeros(0, 4)}
    tensors |= {"expanded": numbers[:1, :1].expand(2, 3), "single": numbers[0, 1:2].expand(1)}
    tensors["strideless"] = torch.tensor(3).expand(1)
    tensors |= {'ä "quoted"\n': torch.arange(7), "a": torch.arange(3, dtype=torch.uint8)}
    facts = {"facts": '{"run": "ü\\n"}'}
    plain = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    assert b"".join(tensor_pieces(tensors, facts)) == safetensors.torch.save(plain, facts)
    assert b"".join(tensor_pieces(tensors)) == safetensors.torch.save(plain)
