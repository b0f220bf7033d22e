"""`seqgen push`: export a model and upload it to the Hugging Face Hub, with a model card."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen import __version__, store
from seqgen.errors import SeqgenError, UsageError
from seqgen.packages import require_packages
from seqgen.plugins.exchange.exchange import default_format, export_model
from seqgen.plugins.exchange.formats import NumberType, exported_formats
from seqgen.plugins.exchange.hub import (
    LOG_IN,
    HubAddress,
    caller,
    hub_output,
    reporting_hub_errors,
)
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import load
from seqgen.wording import plural

CARD = "README.md"
# What programs on the hub load a model of a format with.
LIBRARIES = {"hf": "transformers", "peft": "peft", "gguf": "gguf", "onnx": "onnx"}
SHOWN_DIGITS = 4


@dataclass(frozen=True)
class Upload:
    """Upload to a repository of the Hub: files and destination.

    Attributes:
        address: `hf:OWNER/NAME`.
        file_format: a format of `seqgen export`; None for the default of the model.
        number_type: of the weights in a GGUF file.
        merge: of low-rank adapters: write base and adapters as one model.
        private: of a new repository.
    """

    address: str
    file_format: str | None = None
    number_type: NumberType = "f32"
    merge: bool = False
    private: bool = False

    @property
    def repository(self) -> str:
        """The repository, OWNER/NAME.

        Raises:
            UsageError: the address is none, or names a revision or a file.
        """
        parsed = HubAddress.parse(self.address)
        if self.address != str(parsed):
            raise UsageError(f"push writes to the main branch: give {parsed} alone")
        return parsed.repository


def push_model(
    name: str, upload: Upload, message: str | None = None, shows_progress: bool = False
) -> dict[str, Any]:
    """Export a model to a temporary folder and upload it.

    Args:
        name: of the model.
        upload: what and where to.
        message: of the commit.
        shows_progress: draw the progress of the upload on standard error.

    Returns:
        `name`, `repository`, `format`, `url`, `commit`, `files` and `bytes`.

    Raises:
        UsageError: see `Upload.repository` and `export_model`.
        SeqgenError: there is no token, the format cannot hold the model, or the upload fails.
    """
    repository = upload.repository
    require_packages("push", "huggingface_hub")
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise SeqgenError(f"push needs a token of the Hugging Face Hub that may write: {LOG_IN}")
    loaded = load(name, "cpu")
    file_format = upload.file_format or default_format(loaded, upload.merge, upload.number_type)
    with (
        tempfile.TemporaryDirectory(prefix="seqgen-push-") as made,
        hub_output(shows_progress),
        reporting_hub_errors(repository),
    ):
        folder, api = Path(made), HfApi(**caller())
        _export(loaded, file_format, upload, folder)
        api.create_repo(repository, private=upload.private or None, exist_ok=True)
        if not api.file_exists(repository, CARD):
            (folder / CARD).write_text(_card(loaded, file_format, repository), encoding="utf-8")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        size = sum(path.stat().st_size for path in files)
        said = message or f"{loaded.stored.name}, exported by seqgen {__version__}"
        commit = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=said, commit_description=""
        )
    return {
        "name": loaded.stored.name,
        "repository": repository,
        "format": file_format,
        "url": f"{api.endpoint}/{repository}",
        "commit": commit.oid,
        "files": [path.relative_to(folder).as_posix() for path in files],
        "bytes": size,
    }


def _export(loaded: LoadedModel, file_format: str, upload: Upload, folder: Path) -> None:
    """Export a model into a folder, as one file in it if the format is a file."""
    out = folder
    if exported_formats()[file_format].form != "folder":
        kind = f"-{upload.number_type}" if file_format == "gguf" else ""
        out = folder / f"{loaded.stored.name}{kind}.{file_format}"
    export_model(loaded, file_format, out, upload.merge, upload.number_type)


def _card(loaded: LoadedModel, file_format: str, repository: str) -> str:
    """Write a model card with the figures of a model's record.

    It names no file or folder of the user.
    """
    stored = loaded.stored
    config, record = stored.config, stored.record
    result, data = store.result_of(stored), store.data_of(record)
    origin = record.get("imported")
    base = origin["repository"] if isinstance(origin, dict) else None
    library = LIBRARIES.get(file_format)
    head = [
        *([f"library_name: {library}"] if library else []),
        "pipeline_tag: text-generation",
        *([f"base_model: {base}"] if base else []),
        "tags:\n- seqgen",
    ]
    rows = {
        "architecture": config["architecture"],
        "parameters": f"{record.get('parameters') or 0:,}",
        "tokenizer": f"{loaded.tokenizer.kind}, {plural(loaded.tokenizer.vocab_size, 'token')}",
        "context window": getattr(loaded.model, "window", None),
        "training text": data.get("characters") and plural(data["characters"], "character"),
        "training steps": result.get("steps"),
        "validation loss, nats/token": _rounded(result.get("val_loss")),
        "validation, bits/character": _rounded(result.get("val_bits_per_char")),
        "imported from": base and f"{base} at commit {origin['commit'][:12]}",
    }
    table = [f"| {name} | {value} |" for name, value in rows.items() if value is not None]
    verb = "Imported and exported" if origin else "Trained"
    blocks = [
        "\n".join(["---", *head, "---"]),
        f"# {repository.partition('/')[2]}",
        f"{verb} with seqgen {__version__}.",
        "\n".join(["| | |", "|---|---|", *table]),
        *(_seqgen_use(repository, stored.name) if exported_formats()[file_format].importer else ()),
        *(_transformers_use(repository) if file_format == "hf" else ()),
    ]
    return "\n\n".join(blocks) + "\n"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, SHOWN_DIGITS)


def _seqgen_use(repository: str, name: str) -> tuple[str, str]:
    commands = [f"seqgen import hf:{repository} --name {name}", f"seqgen sample -m {name}"]
    return "In seqgen:", "\n".join(["```sh", *commands, "```"])


def _transformers_use(repository: str) -> tuple[str, str]:
    program = [
        "```python",
        "from transformers import pipeline",
        "",
        f'print(pipeline("text-generation", "{repository}")("The")[0]["generated_text"])',
        "```",
    ]
    return "In transformers:", "\n".join(program)
