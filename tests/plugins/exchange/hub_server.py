"""A hub of models on loopback that speaks the part of the Hugging Face Hub's API that tests use."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

TOKEN = "hf_token_of_the_test"
# Files that the hub stores by LFS, under their SHA-256; others have git's hash.
LARGE = (".safetensors", ".gguf", ".bin", ".onnx")
REFUSED = {
    "gated": (403, "GatedRepo"),
    "private": (401, "RepoNotFound"),
    "forbidden": (403, ""),
    "broken": (500, ""),
}


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Repository:
    """Commits by name, the latest last, and what goes wrong with this repository.

    Attributes:
        commits: files by commit.
        revisions: the commit of each branch or tag.
        refused: a key of `REFUSED`, or "" if all may read it.
        cut: after how many bytes the connection is cut, by file; once each.
        altered: files whose content arrives with one byte changed.
        private: what `create_repo` asked for.
        silent: requests that are never answered: "list", "HEAD", "GET", or "body", which stops
            within a file.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    cut: dict[str, list[int]] = field(default_factory=dict)
    altered: set[str] = field(default_factory=set)
    private: bool = False
    silent: str = ""

    def commit(self, files: dict[str, bytes], revision: str = "main") -> str:
        name = sha256(repr((sorted(files.items()), len(self.commits))).encode())[:40]
        self.commits[name], self.revisions[revision] = files, name
        return name


class Hub(ThreadingHTTPServer):
    """The server; `requests` has the method, path and range of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.messages: list[str] = []
        self.is_closed = False
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def add(self, name: str, files: dict[str, bytes] | Path, revision: str = "main") -> str:
        """Commit files, or those of a folder, to a repository; returns the commit."""
        if isinstance(files, Path):
            files = {path.name: path.read_bytes() for path in files.iterdir()}
        return self.repositories.setdefault(name, Repository()).commit(files, revision)

    def downloads(self) -> list[str]:
        """Return the names of the files whose content was asked for."""
        return [
            p.rpartition("/")[2] for m, p, _ in self.requests if m == "GET" and "/resolve/" in p
        ]

    def close(self) -> None:
        self.is_closed = True
        self.closed.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address) -> None:
        """Say nothing of a client that has gone."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_) -> None:
        """Keep the tests' output clean."""

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def answer_json(self, value) -> None:
        self.answer(200, json.dumps(value).encode(), Content_Type="application/json")

    def begin(self) -> list[str]:
        if self.server.is_closed:  # on a connection from before
            raise ConnectionAbortedError
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append((self.command, path, self.headers.get("Range")))
        return path.strip("/").split("/")

    def authorized(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self.answer(401, b"{}")
        return False

    def find(self, name: str, revision: str) -> tuple[Repository, str] | None:
        """Return a repository and the commit of a revision, or answer with an error."""
        repository = self.server.repositories.get(name)
        if repository is None or repository.refused:
            status, code = REFUSED[repository.refused] if repository else (404, "RepoNotFound")
            self.answer(status, b"{}", **({"X_Error_Code": code} if code else {}))
            return None
        commit = repository.revisions.get(revision, revision)
        if commit not in repository.commits:
            self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
            return None
        return repository, commit

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        match self.begin():
            case ["api", "models", owner, name, "revision", *revision]:
                self.list_files(f"{owner}/{name}", "/".join(revision))
            case [owner, name, "resolve", revision, *file]:
                self.send_file(f"{owner}/{name}", revision, "/".join(file))
            case _:
                self.answer(404, b"{}")

    def list_files(self, name: str, revision: str) -> None:
        found = self.find(name, revision)
        if found is None:
            return
        repository, commit = found
        if repository.silent == "list":
            self.stay_silent()
        siblings = []
        for file, content in repository.commits[commit].items():
            row = {"rfilename": file, "size": len(content), "blobId": git_hash(content)}
            if file.endswith(LARGE):
                sha = sha256(content)
                row["lfs"] = {"sha256": sha, "size": len(content), "pointerSize": 130}
            siblings.append(row)
        about = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []}
        self.answer_json({**about, "private": repository.private, "downloads": 0, "likes": 0})

    def send_file(self, name: str, revision: str, file: str) -> None:
        found = self.find(name, revision)
        if found is None:
            return
        repository, commit = found
        if repository.silent == self.command:
            self.stay_silent()
        content = repository.commits[commit].get(file)
        if content is None:
            self.answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
            return
        etag = sha256(content) if file.endswith(LARGE) else git_hash(content)
        headers = {"ETag": f'"{etag}"', "X_Repo_Commit": commit, "Accept_Ranges": "bytes"}
        start = 0
        if asked := self.headers.get("Range"):
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if file in repository.altered:
            content = content[:-1] + bytes([content[-1] ^ 1])
        rest = content[start:]
        cuts = repository.cut.get(file)
        if repository.silent == "body" and self.command == "GET":
            cuts = [len(rest) // 2]
        if self.command == "HEAD" or not cuts:
            self.answer(206 if asked else 200, rest, **headers)
            return
        after = cuts.pop(0)
        self.send_response(206 if asked else 200)
        for key, value in {"Content-Length": str(len(rest)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(rest[:after])
        self.wfile.flush()
        if repository.silent == "body":
            self.stay_silent()
        self.close_connection = True

    def stay_silent(self) -> None:
        self.server.closed.wait(60)
        raise ConnectionAbortedError

    def body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().strip(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_POST(self) -> None:
        path, body = self.begin(), self.body()
        if not self.authorized():
            return
        match path:
            case ["api", "repos", "create"]:
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                private = bool(asked.get("private")) or asked.get("visibility") == "private"
                made = name not in self.server.repositories
                repository = self.server.repositories.setdefault(name, Repository(private=private))
                if repository.refused:
                    self.answer(403, b"{}")
                    return
                if made:
                    repository.commit({})
                url = f"{self.server.url}/{name}"
                self.answer(
                    200 if made else 409,
                    json.dumps({"url": url, "id": name, "name": name}).encode(),
                )
            case ["api", "validate-yaml"]:
                self.answer_json({"errors": [], "warnings": []})
            case ["api", "models", _, _, "preupload", "main"]:
                modes = [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                        "shouldIgnore": False,
                    }
                    for file in json.loads(body)["files"]
                ]
                self.answer_json({"files": modes})
            case [_, git, "info", "lfs", "objects", "batch"] if git.endswith(".git"):
                objects = [
                    {**row, "actions": {"upload": {"href": f"{self.server.url}/lfs/{row['oid']}"}}}
                    for row in json.loads(body)["objects"]
                ]
                self.answer_json({"transfer": "basic", "objects": objects})
            case ["api", "models", owner, name, "commit", "main"]:
                self.commit(f"{owner}/{name}", map(json.loads, body.splitlines()))
            case _:
                self.answer(404, b"{}")

    def do_PUT(self) -> None:
        match self.begin():
            case ["lfs", oid]:
                content = self.body()
                assert sha256(content) == oid
                self.server.blobs[oid] = content
                self.answer(200)
            case _:
                self.answer(404, b"{}")

    def commit(self, name: str, lines: Iterable[dict]) -> None:
        repository = self.server.repositories[name]
        files = dict(repository.commits[repository.revisions["main"]])
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = self.server.blobs[value["oid"]]
        oid = repository.commit(files)
        url = f"{self.server.url}/{name}/commit/{oid}"
        self.answer_json({"commitUrl": url, "commitOid": oid, "success": True})
