"""Models on the Hugging Face Hub: their addresses, and downloads by huggingface_hub.

huggingface_hub has its own cache, token and settings (`HF_HOME`, `HF_TOKEN`, `HF_ENDPOINT`,
`HF_HUB_OFFLINE`), which all tools that use it share.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shutil
import textwrap
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen import __version__
from seqgen.cli.shell.output import say
from seqgen.errors import SeqgenError, UsageError, first_line
from seqgen.packages import require_packages
from seqgen.plugins.exchange.formats import ADAPTERS, PICKLES

PREFIX = "hf:"
ADDRESS = re.compile(
    r"hf:(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[^\s:@]+))?(:(?P<file>[^\s:]+))?"
)
CONFIG, ADAPTER_WEIGHTS = "config.json", "adapter_model.safetensors"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
# A repository with one of these has a model in its root.
FIRST = (WEIGHTS, INDEX, ADAPTERS)
# What a folder has besides its weights that an import reads, if it is there.
ABOUT = (
    *(CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "chat_template.jinja", "source.spm", "target.spm"),
    "target_vocab.json",
)
# Vocabularies that are read where there is no `tokenizer.json`.
WITHOUT_TOKENIZER = ("vocab.json", "merges.txt", "tokenizer.model")
# Weights of formats other than safetensors, whose loaders may run what is in them.
UNSAFE = PICKLES | {".h5", ".msgpack"}
# How GGUF files are named for what their weights are quantized to: `smol-Q4_K_M.gguf`.
QUANTIZED = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|F32))\.gguf$", re.IGNORECASE
)
SHA256_DIGITS, BLOCK = 64, 1 << 20
LOG_IN = "log in with hf auth login (or set HF_TOKEN)"
UNAUTHORIZED, FORBIDDEN = 401, 403
# Seconds after which it is said that the hub has not answered yet, and after which it is given up.
# huggingface_hub by itself waits without an end for some answers, and asks again for minutes.
PATIENCE, SILENCE = 3, 20
# Characters that a message has of an error of the HTTP client.
LONGEST_REASON = 90


class UnreachableHubError(SeqgenError):
    """The hub cannot be asked: there is no network, or `HF_HUB_OFFLINE` is set."""


@dataclass(frozen=True)
class HubAddress:
    """The address of a model: `hf:OWNER/NAME`, `hf:OWNER/NAME@REVISION`, `hf:OWNER/NAME:FILE`.

    Attributes:
        repository: OWNER/NAME.
        revision: a branch, tag or commit.
        file: a GGUF file, or what it is quantized to; None for the model in the repository's root.
    """

    repository: str
    revision: str = "main"
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """Parse an address.

        Raises:
            UsageError: it is none.
        """
        found = ADDRESS.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text} is no address of a model on the hub: give hf:OWNER/NAME, "
                "hf:OWNER/NAME@REVISION, or hf:OWNER/NAME:Q4_K_M for a GGUF file"
            )
        return cls(**{name: part for name, part in found.groupdict().items() if part is not None})

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}"

    @property
    def name(self) -> str:
        """Name of the repository, without its owner."""
        return self.repository.partition("/")[2]


def is_address(path: str | Path) -> bool:
    """Check whether what is to be imported is named by an address of the hub."""
    return str(path).startswith(PREFIX)


@dataclass(frozen=True)
class HubFile:
    """A file of a repository.

    Attributes:
        size: in bytes.
        digest: SHA-256 of a large file, or the hash that git gives a small one; None if unknown.
    """

    size: int
    digest: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit.

    Attributes:
        address: that was asked for.
        commit: that the revision stands for.
        files: by path in the repository.
        folder: of the cache, where the hub cannot be reached; else None.
    """

    address: HubAddress
    commit: str
    files: Mapping[str, HubFile]
    folder: Path | None = None

    @property
    def origin(self) -> dict[str, str]:
        """Return the origin for the record of an imported model.

        Raises:
            SeqgenError: see `gguf_file`.
        """
        name = self.gguf_file()
        file = {} if name is None else {"file": name}
        where = {"repository": self.address.repository, "revision": self.address.revision}
        return {**where, "commit": self.commit, **file}

    def gguf_file(self) -> str | None:
        """Choose the GGUF file that the address names; None for the model in the root.

        An address without a file means the only GGUF file of a repository that has nothing else.

        Raises:
            SeqgenError: none or several match; lists those there are.
        """
        known = sorted(name for name in self.files if name.endswith(".gguf"))
        asked = self.address.file
        if asked is None and (not known or not self.files.keys().isdisjoint(FIRST)):
            return None
        wanted = (asked or "").casefold()
        matching = [name for name in known if wanted in (name.casefold(), quantization_of(name))]
        found = known if asked is None else matching
        if len(found) == 1:
            return found[0]
        labels = [quantization_of(name) or name for name in found or known]
        distinct = len({*labels}) == len(labels)
        choices = [x if "." in x else x.upper() for x in (labels if distinct else found or known)]
        listed = ", ".join(f"{self.address}:{choice}" for choice in choices)
        number = "several GGUF files" if found else "no GGUF file"
        named = "" if asked is None else f" called {asked}"
        if not choices:
            raise SeqgenError(f"{self.address} has no GGUF files: leave out :{asked}")
        raise SeqgenError(f"{self.address} has {number}{named}: give one of {listed}")

    def fetch(self, name: str) -> Path:
        """Return the path of a file in the cache, after downloading it if it is not there.

        Raises:
            SeqgenError: it cannot be downloaded, or arrived damaged.
        """
        if self.folder is not None:
            return self.folder / name
        from huggingface_hub import hf_hub_download

        where = self.address
        with reporting_hub_errors(where.repository, where.revision):
            found = hf_hub_download(where.repository, name, revision=where.revision, **caller())
        path = Path(found)
        if self.commit not in path.parts:
            raise SeqgenError(f"{where} was changed during the download: run the command again")
        check_content(path, self.files[name], f"{name} of {where}")
        return path

    def missing(self, names: Collection[str]) -> int:
        """Compute how many bytes of some files have to be downloaded."""
        from huggingface_hub import try_to_load_from_cache

        def is_cached(name: str) -> bool:
            found = try_to_load_from_cache(self.address.repository, name, revision=self.commit)
            return isinstance(found, str)

        return sum(self.files[name].size for name in names if not is_cached(name))


def quantization_of(name: str) -> str | None:
    """Parse the quantization from the name of a GGUF file, in lower case."""
    found = QUANTIZED.search(name)
    return found and found[1].casefold()


def open_snapshot(address: HubAddress) -> Snapshot:
    """Look up what a repository has: on the hub, or in the cache if that cannot be reached.

    Raises:
        UnreachableHubError: nor is it in the cache.
        SeqgenError: there is no such repository or revision, or it may not be read.
    """
    require_packages("hf:OWNER/NAME", "huggingface_hub")
    from huggingface_hub import HfApi

    try:
        with reporting_hub_errors(address.repository, address.revision):
            api = HfApi(**caller())
            info = api.model_info(
                address.repository,
                revision=address.revision,
                files_metadata=True,
                timeout=SILENCE,
            )
    except UnreachableHubError:
        cached = _cached_snapshot(address)
        if cached is None:
            raise
        return cached
    files = {
        file.rfilename: HubFile(file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id)
        for file in info.siblings or ()
    }
    return Snapshot(address, str(info.sha), files)


def caller() -> dict[str, str]:
    """Name this program to the hub."""
    return {"library_name": "seqgen", "library_version": __version__}


def _cached_snapshot(address: HubAddress) -> Snapshot | None:
    """Find a repository in the cache; None if it is not there."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        found = [
            revision
            for repository in scan_cache_dir(constants.HF_HUB_CACHE).repos
            if (repository.repo_id, repository.repo_type) == (address.repository, "model")
            for revision in repository.revisions
            if address.revision in (revision.commit_hash, *revision.refs)
        ]
    except CacheNotFound:
        return None
    for revision in found:
        folder = revision.snapshot_path
        files = {
            file.file_path.relative_to(folder).as_posix(): HubFile(file.size_on_disk)
            for file in revision.files
        }
        return Snapshot(address, revision.commit_hash, files, folder)
    return None


@dataclass(frozen=True)
class LocalModel:
    """A file or folder on this machine that a model is imported from.

    Attributes:
        path: of it.
        stem: a name for the model.
        origin: what the model's record says: a path, or `Snapshot.origin`.
    """

    path: Path
    stem: str
    origin: str | Mapping[str, str]


def download(snapshot: Snapshot, tell: Callable[[str], None], shows_progress: bool) -> LocalModel:
    """Download the files of a model that an import reads, and no others.

    Args:
        snapshot: the repository.
        tell: takes lines about what is done.
        shows_progress: draw huggingface_hub's bars on standard error.

    Raises:
        SeqgenError: the repository has no model that can be imported, or the download fails.
    """
    from seqgen.cli.shell.tables import byte_size

    with hub_output(shows_progress):
        gguf = snapshot.gguf_file()
        names = _folder_files(snapshot) if gguf is None else [gguf]
        size = sum(snapshot.files[name].size for name in names)
        missing = 0 if snapshot.folder else snapshot.missing(names)
        _check_space(missing)
        begun = f"{snapshot.address} at commit {snapshot.commit[:12]}: {byte_size(size)}"
        if snapshot.folder:
            tell(f"{begun}, from the cache, because the hub cannot be reached")
        else:
            rest = "" if missing == size else f", of which {byte_size(missing)} are not cached yet"
            tell(f"{begun}{rest}" if missing else f"{begun}, all of it cached already")
        paths = [snapshot.fetch(name) for name in names]
    if gguf is not None:
        return LocalModel(paths[0], paths[0].stem, snapshot.origin)
    # All of them lie in the root of the repository.
    return LocalModel(paths[0].parent, snapshot.address.name, snapshot.origin)


def _folder_files(snapshot: Snapshot) -> list[str]:
    """List the files to import from the root of a repository.

    Raises:
        SeqgenError: it has no weights that can be imported.
    """
    files, where = snapshot.files, snapshot.address
    if ADAPTERS in files:
        needed = [ADAPTERS, ADAPTER_WEIGHTS]
    elif INDEX in files:
        from seqgen.plugins.exchange.hf_weights import shards_of

        shards = shards_of(snapshot.fetch(INDEX).parent)
        needed = [CONFIG, INDEX, *(path.name for path in shards)]
    else:
        needed = [CONFIG, WEIGHTS]
    missing = next((name for name in needed if name not in files), None)
    if missing is None:
        unread = WITHOUT_TOKENIZER if "tokenizer.json" not in files else ()
        about = [name for name in (*ABOUT, *unread) if name in files]
        return [*dict.fromkeys([*needed, *about])]
    pickled = next((name for name in sorted(files) if Path(name).suffix in UNSAFE), None)
    if pickled is not None and not any(name.endswith(".safetensors") for name in files):
        raise SeqgenError(
            f"{where} has its weights as a pickle ({pickled}), which can run any code when it is "
            "loaded, so seqgen never loads it; use another revision or repository with "
            "safetensors files"
        )
    if snapshot.folder:
        raise UnreachableHubError(
            f"{missing} of {where} is not in the cache, and the hub cannot be reached: run the "
            "command again with a network"
        )
    raise SeqgenError(f"{where} cannot be imported: it has no {missing}")


def _check_space(size: int) -> None:
    """Refuse a download that the disk has no space for, before it begins."""
    from huggingface_hub import constants

    from seqgen.cli.shell.tables import byte_size

    cache = Path(constants.HF_HUB_CACHE)
    existing = next((folder for folder in (cache, *cache.parents) if folder.exists()), None)
    free = size if existing is None else shutil.disk_usage(existing).free
    if free < size:
        raise SeqgenError(
            f"{cache} has {byte_size(free)} of free space, and the download needs "
            f"{byte_size(size)}: make room, or set HF_HOME to a folder on another disk"
        )


def check_content(path: Path, file: HubFile, what: str) -> None:
    """Delete a downloaded file and raise an error if it is not what the hub has.

    huggingface_hub checks the length only.
    """
    if file.digest is None:
        return
    if len(file.digest) == SHA256_DIGITS:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() != file.digest:
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise SeqgenError(
            f"{what} arrived damaged (its hash is not the hub's) and was deleted: run the command "
            "again"
        )


@contextlib.contextmanager
def hub_output(shows_progress: bool) -> Iterator[None]:
    """Let huggingface_hub draw its bars or print nothing, and no warnings, within a block."""
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
        logging,
    )

    verbosity, was_disabled = logging.get_verbosity(), are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as that an environment variable has precedence
        (enable_progress_bars if shows_progress else disable_progress_bars)()
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            (disable_progress_bars if was_disabled else enable_progress_bars)()


@contextlib.contextmanager
def _giving_up(repository: str) -> Iterator[None]:
    """Within a block, wait `SILENCE` seconds at most for a byte of an answer, and say so.

    Only where huggingface_hub lets others make its HTTP client, which is so from version 1.0 on.
    """
    import huggingface_hub

    if not hasattr(huggingface_hub, "set_client_factory"):
        yield
        return
    from huggingface_hub.utils._http import default_client_factory

    def client() -> Any:
        made = default_client_factory()
        made.send = functools.partial(_send, made.send, repository)
        return made

    huggingface_hub.set_client_factory(client)
    try:
        yield
    finally:
        huggingface_hub.set_client_factory(default_client_factory)


def _send(send: Callable[..., Any], repository: str, request: Any, **options: Any) -> Any:
    """Send a request of the HTTP client, and give up if there is no answer.

    Raises:
        UnreachableHubError: no byte came in time. It is no error of the client, after which
            huggingface_hub would try again.
    """
    given = request.extensions.get("timeout") or {}
    limits = {part: given.get(part) for part in ("connect", "read", "write", "pool")}
    limits = {part: SILENCE if x is None else min(x, SILENCE) for part, x in limits.items()}
    request.extensions["timeout"] = limits
    server = f"{request.url.scheme}://{request.url.netloc.decode()}"
    waiting = f"waiting for {server}, {limits['read']:g} seconds at most (about {repository})"
    timer = threading.Timer(PATIENCE, say, [waiting])
    timer.daemon = True
    if limits["read"] > PATIENCE:
        timer.start()
    try:
        return send(request, **options)
    except Exception as error:
        if not any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__):
            raise
        raise UnreachableHubError(
            f"{server} accepts connections but does not answer about {repository}: run the command "
            "again later, or set HF_ENDPOINT to another hub"
        ) from None
    finally:
        timer.cancel()


@contextlib.contextmanager
def reporting_hub_errors(repository: str, revision: str = "main") -> Iterator[None]:
    """Turn the errors of huggingface_hub into one line that says what to do.

    Raises:
        UnreachableHubError: there is no connection.
        SeqgenError: in the place of any other error of the hub.
    """
    from huggingface_hub import constants, errors

    # The base of all errors of the HTTP client, which was requests, and is httpx.
    known = ("requests", "httpx", "httpx2")
    mro = errors.HfHubHTTPError.__mro__
    client_error = [one for one in mro if one.__module__.partition(".")[0] in known][-1]
    hub = constants.ENDPOINT
    try:
        with _giving_up(repository):
            yield
    except errors.GatedRepoError:
        said = f"{repository} is gated: ask for access at {hub}/{repository}, then {LOG_IN}"
    except errors.RevisionNotFoundError:
        said = f"{repository} has no revision {revision!r} on {hub}"
    except errors.RepositoryNotFoundError:
        said = f"{hub} has no model {repository}, or it is private: check the name, or {LOG_IN}"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise UnreachableHubError(_unreachable(repository, error)) from None
    except errors.EntryNotFoundError:
        said = f"{repository} has changed on {hub}: run the command again"
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status not in (UNAUTHORIZED, FORBIDDEN):
            raise UnreachableHubError(_unreachable(repository, error)) from None
        said = f"your token may not access {repository}: {LOG_IN} with one that may"
    except errors.HFValidationError as error:
        raise UsageError(f"{repository}: {first_line(error)}") from None
    except client_error as error:
        raise UnreachableHubError(_unreachable(repository, error)) from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error).rstrip(".")
        said = f"the transfer of {repository} failed: {reason}; run the command again to go on"
    else:
        return
    raise SeqgenError(said)


def _unreachable(repository: str, error: Exception) -> str:
    """Say that the hub did not answer, and what to do."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return f"{repository} is not in the cache, and HF_HUB_OFFLINE is set: unset it to download"
    reason = textwrap.shorten(first_line(error).rstrip("."), LONGEST_REASON, placeholder="...")
    return (
        f"{constants.ENDPOINT} does not answer, and {repository} is not complete in the cache: "
        f"run the command again when it can be reached ({reason})"
    )
