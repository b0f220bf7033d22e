"""Models by name: downloads from a hub, and uploads to it, on loopback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hf_models import TEXT, checkpoint
from hub_server import TOKEN, Hub, git_hash, sha256
from safetensors.torch import save_file

from seqgen import store
from seqgen.plugins.exchange.exchange import export_model, import_model
from seqgen.plugins.exchange.hf_models import read_model
from seqgen.store.loading import load

hub_library = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

NAME = "someone/tiny-Gpt2"
ADDRESS = f"hf:{NAME}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model as transformers saves it."""
    return checkpoint("gpt2", tmp_path_factory.mktemp("hub") / "tiny")


@pytest.fixture
def server():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def hub(server, tmp_path, monkeypatch):
    """The server as the hub of this process, with an empty cache and no token."""
    from huggingface_hub import constants

    cache = tmp_path / "cache"
    settings = {
        "ENDPOINT": server.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
        "HF_TOKEN_PATH": str(tmp_path / "token"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
        "DOWNLOAD_CHUNK_SIZE": 1000,
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(
        "huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE",
        settings["HUGGINGFACE_CO_URL_TEMPLATE"],
        raising=False,
    )
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds, sleep=time.sleep: sleep(seconds / 100))
    server.cache = cache
    return server


def models():
    return [model.name for model in store.list_models()]


def refused(cli, *command):
    """Return the one line of a refused command; nothing is stored and no file is left half."""
    known = models()
    code, out, err = cli(*command)
    assert code in (1, 2) and out == "" and models() == known, err
    assert not list(store.models_folder().glob(".*")) if store.models_folder().exists() else True
    *_, line = err.strip("\n").split("\n")
    assert line.startswith("seqgen: ") and "Traceback" not in err
    return line


def same_weights(name, folder):
    given, wanted = store.find(name).weights(), read_model(folder, None).tensors
    return given.keys() == wanted.keys() and all(torch.equal(given[k], wanted[k]) for k in wanted)


def test_a_model_is_imported_by_name_with_the_files_it_needs_and_no_others(hub, folder, cli):
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    others = {
        "pytorch_model.bin": b"pickle",
        "tf_model.h5": b"x",
        "onnx/model.onnx": b"x",
        "README.md": b"# tiny",
        "model.fp16.safetensors": b"x",
        "vocab.json": b"{}",
    }
    commit = hub.add(NAME, {**files, **others})
    code, out, err = cli("import", ADDRESS, "--json")
    record = json.loads(out)
    assert code == 0 and record["name"] == "tiny-Gpt2"
    assert same_weights("tiny-Gpt2", folder)
    fetched = set(hub.downloads())
    assert fetched <= {*files} and {"config.json", "model.safetensors", "tokenizer.json"} <= fetched
    size = sum(len(files[name]) for name in fetched)
    first, last = err.strip().split("\n")
    assert first.startswith(f"{ADDRESS} at commit {commit[:12]}: {size / 1000:.1f} kB"), first
    assert last == f"tiny-Gpt2: imported from {ADDRESS}"
    origin = {"repository": NAME, "revision": "main", "commit": commit}
    assert store.find("tiny-Gpt2").record["imported"] == origin
    shown = cli("models", "show", "tiny-Gpt2")[1]
    assert f"imported from {ADDRESS}, revision main, commit {commit[:12]}" in shown


def test_an_import_without_a_name_replaces_the_model_of_its_name(hub, folder, cli):
    hub.add(NAME, folder)
    for _ in range(2):
        assert cli("import", ADDRESS, "--overwrite")[0] == 0
    assert models() == ["tiny-Gpt2"]
    assert cli("import", ADDRESS)[0] == 0
    assert sorted(models()) == ["tiny-Gpt2", "tiny-Gpt2-2"]


def test_a_second_import_comes_from_the_cache_without_the_hub(hub, folder, cli, monkeypatch):
    hub.add(NAME, folder)
    assert cli("import", ADDRESS, "--name", "first")[0] == 0
    hub.requests.clear()
    code, _, err = cli("import", ADDRESS, "--name", "second")
    assert code == 0 and hub.downloads() == [] and "all of it cached already" in err
    hub.close()
    code, _, err = cli("import", ADDRESS, "--name", "third")
    assert code == 0 and "from the cache, because the hub cannot be reached" in err
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert cli("import", ADDRESS, "--name", "fourth", "--quiet") == (0, "", "")
    assert all(same_weights(name, folder) for name in ("first", "second", "third", "fourth"))
    origins = [store.find(name).record["imported"] for name in ("first", "fourth")]
    assert origins[0] == origins[1]
    line = refused(cli, "import", "hf:someone/other")
    assert "HF_HUB_OFFLINE is set" in line and "someone/other is not in the cache" in line
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert "does not answer" in refused(cli, "import", "hf:someone/other")


def test_a_cut_download_is_resumed_where_it_was_cut(hub, folder, cli):
    hub.add(NAME, folder)
    hub.repositories[NAME].cut["model.safetensors"] = [5000, 7000]
    code, out, err = cli("import", ADDRESS)
    assert code == 0 and out == "" and err.count("\n") == 2
    ranges = [one for _, path, one in hub.requests if path.endswith("model.safetensors") and one]
    assert ranges == ["bytes=5000-", "bytes=12000-"] and same_weights("tiny-Gpt2", folder)


def test_a_download_that_ends_is_run_again(hub, folder, cli):
    hub.add(NAME, folder)
    hub.repositories[NAME].cut["model.safetensors"] = [0] * 20
    line = refused(cli, "import", ADDRESS)
    assert "does not answer" in line and "run the command again when it can be reached" in line
    hub.repositories[NAME].refused = "broken"
    line = refused(cli, "import", ADDRESS)
    assert f"model.safetensors of {ADDRESS} is not in the cache" in line
    hub.repositories[NAME].refused = ""
    hub.repositories[NAME].cut.clear()
    hub.requests.clear()
    assert cli("import", ADDRESS)[0] == 0 and same_weights("tiny-Gpt2", folder)
    assert "config.json" not in hub.downloads()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_file_of_another_hash_is_deleted(hub, folder, cli, file):
    hub.add(NAME, folder)
    hub.repositories[NAME].altered.add(file)
    line = refused(cli, "import", ADDRESS)
    assert line == (
        f"seqgen: {file} of {ADDRESS} arrived damaged (its hash is not the hub's) and was deleted: "
        "run the command again"
    )
    content = (folder / file).read_bytes()
    assert not [
        path
        for path in hub.cache.rglob("*")
        if path.name in (file, sha256(content), git_hash(content))
    ]
    hub.repositories[NAME].altered.clear()
    assert cli("import", ADDRESS)[0] == 0 and same_weights("tiny-Gpt2", folder)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ("gated", "is gated: ask for access at"),
        ("private", "or it is private: check the name, or log in with hf auth login"),
        ("forbidden", "your token may not access someone/tiny-Gpt2"),
        ("broken", "does not answer"),
    ],
)
def test_a_refusal_says_what_to_do(hub, folder, cli, refusal, said):
    hub.add(NAME, folder)
    hub.repositories[NAME].refused = refusal
    assert said in refused(cli, "import", ADDRESS)


@pytest.mark.parametrize("silent", ["list", "HEAD", "GET", "body"])
def test_a_hub_that_stays_silent_is_given_up(silent, hub, folder, cli, monkeypatch):
    monkeypatch.setattr("seqgen.plugins.exchange.hub.SILENCE", 0.4)
    monkeypatch.setattr("seqgen.plugins.exchange.hub.PATIENCE", 0.1)
    hub.add(NAME, folder)
    hub.repositories[NAME].silent = silent
    begun = time.monotonic()
    code, _, said = cli("import", ADDRESS)
    assert code == 1 and time.monotonic() - begun < 15
    *waited, problem = said.splitlines()
    waiting = f"waiting for {hub.url}, 0.4 seconds at most (about {NAME})"
    assert waiting in waited or silent == "body"
    assert problem.startswith(f"seqgen: {hub.url} ") and "answer" in problem
    assert models() == []


def test_what_is_not_there_is_named(hub, folder, cli, tmp_path, monkeypatch):
    hub.add(NAME, folder)
    assert "has no model someone/else" in refused(cli, "import", "hf:someone/else")
    line = refused(cli, "import", f"{ADDRESS}@v2")
    assert f"{NAME} has no revision 'v2'" in line
    for address in ("hf:gpt2", "hf:", "hf:a/b/c", "hf:a/b@", "hf:a/b:", "hf:../b", "hf:a/.."):
        assert "hf:OWNER/NAME" in refused(cli, "import", address), address
    monkeypatch.chdir(tmp_path)
    line = refused(cli, "import", "gpt2")
    assert "seqgen import hf:openai-community/gpt2" in line and "seqgen import FOLDER" in line
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    line = refused(cli, "train", text, "--init-from", "gpt2")
    assert "hf:openai-community/gpt2" in line and "seqgen import FOLDER" in line


def test_only_pickles_are_refused_before_any_is_downloaded(hub, folder, cli):
    files = {"config.json": (folder / "config.json").read_bytes(), "pytorch_model.bin": b"pickle"}
    hub.add(NAME, files)
    line = refused(cli, "import", ADDRESS)
    assert "as a pickle (pytorch_model.bin), which can run any code" in line
    assert hub.downloads() == []
    hub.add("someone/nothing", {"README.md": b"hello"})
    assert "it has no config.json" in refused(cli, "import", "hf:someone/nothing")


def test_a_full_disk_is_said_before_the_download(hub, folder, cli, monkeypatch):
    hub.add(NAME, folder)
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    line = refused(cli, "import", ADDRESS)
    assert "1.0 kB of free space" in line and "HF_HOME" in line and hub.downloads() == []


@pytest.mark.slow
def test_revisions_are_branches_tags_and_commits(hub, folder, tmp_path, cli):
    old = hub.add(NAME, folder, "v1")
    other = checkpoint("qwen3", tmp_path / "other")
    new = hub.add(NAME, other)
    hub.repositories[NAME].revisions["refs/pr/1"] = old
    for revision, commit, wanted in (
        ("v1", old, folder),
        (old, old, folder),
        ("main", new, other),
    ):
        name = f"of-{revision}"
        assert cli("import", f"{ADDRESS}@{revision}", "--name", name)[0] == 0
        assert store.find(name).record["imported"]["commit"] == commit
        assert same_weights(name, wanted)


@pytest.mark.slow
def test_shards_are_downloaded_by_their_index(hub, tmp_path, cli):
    sharded = checkpoint("gpt2", tmp_path / "sharded", max_shard_size="40KB")
    shards = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    assert len(shards) > 1
    hub.add(
        NAME,
        {path.name: path.read_bytes() for path in sharded.iterdir()}
        | {"consolidated.safetensors": b"x"},
    )
    assert cli("import", ADDRESS)[0] == 0 and same_weights("tiny-Gpt2", sharded)
    assert {*shards} <= {*hub.downloads()} and "consolidated.safetensors" not in hub.downloads()


@pytest.mark.parametrize(
    "index",
    [b"{", b"[]", b"{}", b'{"weight_map": {"a": "../x.safetensors"}}', b'{"weight_map": {"a": 1}}'],
)
def test_a_damaged_index_is_one_line(hub, folder, cli, index):
    files = {"config.json": b"{}", "model.safetensors.index.json": index}
    hub.add(NAME, files)
    assert "model.safetensors.index.json" in refused(cli, "import", ADDRESS)


def test_a_missing_shard_is_named(hub, cli):
    index = b'{"weight_map": {"a": "model-1.safetensors"}}'
    hub.add(NAME, {"config.json": b"{}", "model.safetensors.index.json": index})
    assert "it has no model-1.safetensors" in refused(cli, "import", ADDRESS)


def test_options_of_other_imports_are_refused_before_the_download(hub, folder, cli):
    hub.add(NAME, folder)
    assert "--like is for n-gram models" in refused(cli, "import", ADDRESS, "--like", "x")
    assert cli("import", ADDRESS, "--name", "taken")[0] == 0
    hub.requests.clear()
    assert "already exists" in refused(cli, "import", ADDRESS, "--name", "taken")
    assert hub.requests == []


def test_the_missing_package_is_named(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for command in (("import", ADDRESS), ("push", "x", ADDRESS)):
        assert refused(cli, *command).endswith(": pip install huggingface_hub")


@pytest.fixture(scope="module")
def gguf(folder, tmp_path_factory):
    """The tiny model as a GGUF file."""
    home = tmp_path_factory.mktemp("gguf")
    before = os.environ.get("SEQGEN_HOME")
    os.environ["SEQGEN_HOME"] = str(home / "home")
    try:
        stored = import_model(folder, name="tiny")
        export_model(load(stored.name, "cpu"), "gguf", home / "tiny.gguf")
    finally:
        os.environ["SEQGEN_HOME"] = before or ""
    return (home / "tiny.gguf").read_bytes()


def test_a_gguf_file_is_chosen_by_its_quantization(hub, gguf, cli):
    files = {f"tiny.{kind}.gguf": gguf for kind in ("F32", "Q4_K_M", "q8_0")}
    commit = hub.add(NAME, {**files, "more/tiny-IQ2_XS.gguf": b"x", "README.md": b"x"})
    assert cli("import", f"{ADDRESS}:q4_k_m")[0] == 0
    assert hub.downloads() == ["tiny.Q4_K_M.gguf"] and models() == ["tiny.Q4_K_M"]
    origin = {"repository": NAME, "revision": "main", "commit": commit, "file": "tiny.Q4_K_M.gguf"}
    assert store.find("tiny.Q4_K_M").record["imported"] == origin
    assert f"{ADDRESS}, file tiny.Q4_K_M.gguf" in cli("models", "show", "tiny.Q4_K_M")[1]
    assert cli("import", f"{ADDRESS}@main:tiny.q8_0.gguf", "--name", "b")[0] == 0
    listed = ", ".join(f"{ADDRESS}:{kind}" for kind in ("IQ2_XS", "F32", "Q4_K_M", "Q8_0"))
    assert f"no GGUF file called Q5_K_M: give one of {listed}" in refused(
        cli, "import", f"{ADDRESS}:Q5_K_M"
    )
    assert f"has several GGUF files: give one of {listed}" in refused(cli, "import", ADDRESS)
    hub.add(NAME, {"a-Q4_0.gguf": gguf, "b-Q4_0.gguf": gguf})
    line = refused(cli, "import", f"{ADDRESS}:Q4_0")
    assert f"several GGUF files called Q4_0: give one of {ADDRESS}:a-Q4_0.gguf, {ADDRESS}:b" in line
    hub.add(NAME, {"tiny.gguf": gguf})
    assert cli("import", ADDRESS, "--name", "only")[0] == 0
    assert store.find("only").record["imported"]["file"] == "tiny.gguf"


def test_a_repository_without_gguf_says_so(hub, folder, cli):
    hub.add(NAME, folder)
    assert "has no GGUF files: leave out :Q4_0" in refused(cli, "import", f"{ADDRESS}:Q4_0")


def test_fine_tuning_imports_the_model_once(hub, folder, tmp_path, cli):
    hub.add(NAME, folder)
    text = tmp_path / "text.txt"
    text.write_text(TEXT * 4)
    command = ("train", text, "--init-from", ADDRESS, "--steps", 1, "--batch-size", 2)
    command += ("--seq-len", 16, "--seed", 1)
    code, _, err = cli(*command, "--name", "tuned")
    assert code == 0 and f"{ADDRESS} is imported as tiny-Gpt2" in err
    assert store.find("tuned").config["training"]["init_from"] == "tiny-Gpt2"
    code, _, err = cli(*command, "--name", "again")
    assert code == 0 and f"{ADDRESS} is already imported as tiny-Gpt2" in err
    assert sorted(models()) == ["again", "tiny-Gpt2", "tuned"]
    hub.add(NAME, {**{p.name: p.read_bytes() for p in folder.iterdir()}, "README.md": b"new"})
    assert cli(*command, "--name", "third")[0] == 0 and "tiny-Gpt2-2" in models()
    assert "has no model a/b" in refused(cli, *command[:3], "hf:a/b")


@pytest.mark.slow
def test_adapters_find_their_base_by_the_name_of_its_repository(hub, folder, tmp_path, cli):
    hub.add(NAME, folder)
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    table = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "base_model_name_or_path": NAME}
    (adapters / "adapter_config.json").write_text(json.dumps({**table, "fan_in_fan_out": True}))
    module = "base_model.model.transformer.h.0.mlp.c_fc"
    tensors = {f"{module}.lora_A.weight": torch.ones(2, 32)}
    save_file(
        tensors | {f"{module}.lora_B.weight": torch.ones(128, 2)},
        adapters / "adapter_model.safetensors",
    )
    hub.add("someone/tiny-lora", adapters)
    line = refused(cli, "import", "hf:someone/tiny-lora")
    assert f"adapters of '{NAME}', and no model is imported from there" in line
    assert cli("import", ADDRESS)[0] == 0
    code, _, err = cli("import", "hf:someone/tiny-lora")
    assert code == 0, err
    assert store.find("tiny-lora").config["adapter"]["base"]["name"] == "tiny-Gpt2"
    assert cli("export", "tiny-lora", "--format", "peft", "--out", tmp_path / "out")[0] == 0
    written = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert written["base_model_name_or_path"] == NAME


@pytest.fixture
def book(tmp_path, cli):
    text = tmp_path / "secret-name.txt"
    text.write_text(TEXT * 4)
    command = ("train", text, "--model", "transformer", "--layers", 1, "--hidden-size", 8)
    command += ("--heads", 2, "--steps", 2, "--seq-len", 16, "--batch-size", 2, "--seed", 1)
    assert cli(*command, "--name", "book")[0] == 0
    return "book"


def test_a_pushed_model_comes_back_as_it_was(hub, book, tmp_path, cli, monkeypatch):
    line = refused(cli, "push", book, "hf:me/book")
    assert line.startswith("seqgen: push needs a token") and "hf auth login" in line
    assert hub.requests == []
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub._commit_api.is_xet_available", lambda: False)
    code, out, err = cli("push", book, "hf:me/book", "--private", "--message", "first", "--json")
    assert code == 0, err
    record, repository = json.loads(out), hub.repositories["me/book"]
    assert repository.private and hub.messages == ["first"]
    assert record["commit"] == repository.revisions["main"]
    assert record["url"] == f"{hub.url}/me/book" and record["format"] == "hf"
    files = repository.commits[record["commit"]]
    assert sorted(files) == record["files"] and record["bytes"] == sum(map(len, files.values()))
    assert cli("export", book, "--format", "hf", "--out", tmp_path / "out")[0] == 0
    for path in (tmp_path / "out").iterdir():
        assert files[path.name] == path.read_bytes()
    card = files["README.md"].decode()
    stored = store.find(book)
    assert f"| parameters | {stored.record['parameters']:,} |" in card
    assert f"| validation loss, nats/token | {stored.record['result']['val_loss']:.4f}" in card
    assert "seqgen import hf:me/book" in card and "transformers" in card
    assert "secret-name" not in card and str(tmp_path) not in b"".join(files.values()).decode(
        "latin-1"
    )
    assert cli("import", "hf:me/book", "--name", "back")[0] == 0
    given, wanted = store.find("back").weights(), store.find(book).weights()
    assert given.keys() == wanted.keys() and all(torch.equal(given[k], wanted[k]) for k in wanted)


@pytest.mark.slow
def test_a_second_push_keeps_the_model_card(hub, book, cli, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub._commit_api.is_xet_available", lambda: False)
    hub.add("me/book", {"README.md": b"my own words"})
    code, _, err = cli("push", book, "hf:me/book", "--format", "gguf")
    assert code == 0, err
    files = hub.repositories["me/book"].commits[hub.repositories["me/book"].revisions["main"]]
    assert files["README.md"] == b"my own words" and {*files} == {"README.md", "book-f32.gguf"}
    assert cli("import", "hf:me/book:f32", "--name", "back")[0] == 0


def test_refused_uploads_are_one_line(hub, book, cli, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "hf auth login" in refused(cli, "push", book, "hf:me/book")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.add("them/book", {})
    hub.repositories["them/book"].refused = "forbidden"
    assert "your token may not access them/book" in refused(cli, "push", book, "hf:them/book")
    assert "push writes to the main branch" in refused(cli, "push", book, "hf:me/book@v1")
    assert "hf:OWNER/NAME" in refused(cli, "push", book, "book")
    assert "is for low-rank adapters" in refused(cli, "push", book, "hf:me/b", "--format", "peft")
    assert "me/b" not in hub.repositories
    hub.close()
    assert "does not answer" in refused(cli, "push", book, "hf:me/book")


def environment(server, tmp_path):
    own = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
    return {**os.environ, **own, "HF_HUB_OFFLINE": "0", "SEQGEN_HOME": str(tmp_path / "home")}


@pytest.mark.slow
def test_a_process_with_the_usual_variables(server, folder, tmp_path):
    server.add(NAME, folder)
    command = [sys.executable, "-m", "seqgen", "import", ADDRESS, "--name"]
    environ = environment(server, tmp_path)
    done = subprocess.run([*command, "a"], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "" and done.stderr.count("\n") == 2
    server.close()
    environ["HF_HUB_OFFLINE"] = "1"
    done = subprocess.run([*command, "b"], env=environ, capture_output=True, text=True, check=True)
    assert "from the cache" in done.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_imported(server, folder, tmp_path):
    server.add(NAME, folder)
    server.repositories[NAME].cut["model.safetensors"] = [0] * 100
    environ = environment(server, tmp_path)
    command = [sys.executable, "-m", "seqgen", "import", ADDRESS]
    running = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    while "model.safetensors" not in server.downloads():
        time.sleep(0.05)
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert running.returncode == 130 and "Traceback" not in err
    assert not list((tmp_path / "home").rglob("config.json"))
    assert not [p for p in Path(tmp_path / "hf").rglob("*.incomplete") if p.stat().st_size]
    server.repositories[NAME].cut.clear()
    subprocess.run(command, env=environ, check=True, capture_output=True)
