"""Studies that several machines share: a journal file, a real PostgreSQL and a real MariaDB."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from helpers_cli import needs, records, refusal

from seqgen.plugins.tune.storage import open_storage
from seqgen.plugins.tune.study import Study, TrialRecord
from seqgen.settings import Span

pytestmark = needs("tune")

SPACE, RECIPE = {"lr": Span(0.001, 0.1, log=True)}, {"lr": 0.01}
ABOUT, FACTS = {"samplers": "random"}, {"seed": 3, "budget": {"steps": 10}}
SMALL = ("--model", "gru", "--set", "num_layers=1", "--set", "hidden_size=4", "--set")
SMALL = (*SMALL, "batch_size=4", "--set", "seq_len=8", "--search", "lr=1e-3:1e-1:log", "--quiet")
TRIALS = 8


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory):
    """A server of Debian's PostgreSQL, started and stopped here; its URL."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [shutil.which("initdb")]
    if found[-1] is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    programs = Path(found[-1]).parent
    folder = Path(
        subprocess.check_output(["mktemp", "-d", "/tmp/seqgen-pg-XXXXXX"], text=True).strip()
    )
    as_user: list[str] = []
    if os.geteuid() == 0:  # which PostgreSQL refuses to run as
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("there is no user postgres to run the server")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = folder / "data"
    make = [programs / "initdb", "-D", data, "-A", "trust", "-U", "seqgen", "--no-sync"]
    subprocess.run([*as_user, *map(str, make)], check=True, capture_output=True, cwd="/")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [programs / "postgres", "-D", data, "-p", port, "-k", folder, "-h", "127.0.0.1", "-F"]
    log = (folder / "log").open("wb")
    server = subprocess.Popen([*as_user, *map(str, serve)], stderr=log, stdout=log, cwd="/")
    try:
        ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", port, "-q"]
        for _ in range(200):
            if subprocess.run([*map(str, ready)]).returncode == 0:
                break
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"postgresql+psycopg://seqgen@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # which does not wait for clients
        server.wait(60)
        log.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def mariadb():
    """A server of Debian's MariaDB, started and stopped here; its URL, for a driver of MySQL."""
    pytest.importorskip("pymysql", reason="pymysql is not installed")
    programs = [shutil.which(name) for name in ("mariadb-install-db", "mariadbd", "mariadb-admin")]
    if None in programs:
        pytest.skip("MariaDB is not installed (Debian: apt-get install mariadb-server)")
    install, server_program, admin = programs
    with tempfile.TemporaryDirectory(prefix="seqgen-mariadb-") as name:
        folder = Path(name)
        user = pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:  # which MariaDB refuses to run as
            user = "mysql"
            shutil.chown(folder, user)
        begin = folder / "begin.sql"
        begin.write_text(
            "CREATE DATABASE studies;\nCREATE USER seqgen@'127.0.0.1';\n"
            "GRANT ALL ON studies.* TO seqgen@'127.0.0.1';\n"
        )
        begin.chmod(0o644)
        data, plain = folder / "data", "--auth-root-authentication-method=normal"
        make = [install, "--no-defaults", f"--datadir={data}", f"--user={user}", plain]
        subprocess.run(make, check=True, capture_output=True, cwd="/")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        serve = [server_program, "--no-defaults", f"--datadir={data}", f"--user={user}"]
        serve += [f"--socket={folder}/s", f"--port={port}", "--bind-address=127.0.0.1"]
        serve += [f"--pid-file={folder}/pid", f"--init-file={begin}"]
        log = (folder / "log").open("wb")
        server = subprocess.Popen(serve, stdout=log, stderr=log, cwd="/")
        try:
            ping = [admin, "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "seqgen"]
            for _ in range(200):
                if subprocess.run([*ping, "ping"], capture_output=True).returncode == 0:
                    break
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            yield f"mysql+pymysql://seqgen@127.0.0.1:{port}/studies"
        finally:
            server.terminate()
            server.wait(60)
            log.close()


SERVERS = {"postgresql": pytest.mark.slow, "mariadb": pytest.mark.long}


@pytest.fixture(params=["journal", *(pytest.param(n, marks=m) for n, m in SERVERS.items())])
def url(request, tmp_path):
    """Where a study is kept."""
    if request.param in SERVERS:
        return request.getfixturevalue(request.param)
    return str(tmp_path / "study.log")


@pytest.fixture
def name(request):
    """A study of each test's own, in the one database."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")


def a_study(name, url):
    return Study.open(open_storage(name, url), ABOUT, FACTS)


def ended(trial, loss):
    record = {"trial": trial.index, "settings": trial.values, "seconds": 1.0}
    return TrialRecord(**record, val_loss=loss, stopped="steps")


def test_workers_share_trials_and_a_killed_one_is_tried_again(name, url):
    one, other = a_study(name, url), a_study(name, url)
    with one.begin(SPACE, RECIPE, 3) as first, other.begin(SPACE, RECIPE, 3) as second:
        assert (first.index, second.index) == (0, 1)
        with contextlib.ExitStack() as alive:  # what a kill leaves: no lock, and no end
            killed = one._next(SPACE, RECIPE, 3, alive)
            assert killed.index == 2
            with other.begin(SPACE, RECIPE, 3) as none:
                assert none is None
        with other.begin(SPACE, RECIPE, 3) as again:
            assert (again.index, again.values) == (2, killed.values)
            other.end(again, ended(again, 3.0), {"lr": 1})
        one.end(first, ended(first, 1.0), {})
        other.end(second, ended(second, 2.0), {})
    found = [(record.trial, record.val_loss) for record in a_study(name, url).records()]
    assert found == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert one.settings_of(2) == {"lr": 1}


def test_a_study_of_another_seed_or_question_is_refused(capsys, text, name, url):
    asked = ("tune", text, "--storage", url, "--name", name, "--trial-steps", "2", *SMALL)
    before = records(capsys, *asked, "--trials", "1", "--seed", "5")
    assert before[-1]["name"] == name
    assert "has --seed 5" in refusal(capsys, *asked, "--trials", "2", "--seed", "6")
    changed = ("--trials", "2", "--set", "clip_norm=2")
    assert "was begun with other settings" in refusal(capsys, *asked, *changed)
    after = records(capsys, *asked, "--trials", "2")
    assert after[0] == before[0]
    (listed,) = [
        record
        for record in records(capsys, "tune", "--list", "--storage", url)
        if record["name"] == name
    ]
    assert (listed["trials"], listed["complete"]) == (2, 2)
    assert records(capsys, "tune", "--list") == []  # this machine's own
    delete = ("tune", "--delete", name, "--storage", url)
    assert "asks for confirmation" in refusal(capsys, *delete)
    storage = open_storage(name, url)
    with Study(storage, storage.read_facts()).begin(SPACE, RECIPE, 9):
        assert "a process works on the study" in refusal(capsys, *delete, "--yes")
    assert records(capsys, *delete, "--yes", "--quiet")[0]["name"] == name
    assert "there is no study" in refusal(capsys, *delete, "--yes")


def worker(text, name, url, home, trials=TRIALS):
    """Start a worker on a machine of its own: it has no folder in common with others."""
    asked = ("tune", str(text), "--storage", url, "--name", name, "--trials", str(trials), *SMALL)
    asked = (*asked, "--trial-steps", "40", "--json")
    environment = {**os.environ, "SEQGEN_HOME": str(home), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seqgen", *asked]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


def essence(lines):
    """Return what does not depend on time, of the records of trials."""
    found = map(json.loads, lines)
    return {r["trial"]: (r["settings"], r["val_loss"]) for r in found if "trial" in r}


@pytest.mark.slow
def test_four_workers_share_a_study_and_one_is_killed(text, name, url, tmp_path):
    workers = [worker(text, name, url, tmp_path / f"machine{n}") for n in range(4)]
    first = workers[0].stdout.readline()  # it has ended a trial, and is in its next one
    workers[0].kill()
    others = [one.communicate(timeout=600)[0].splitlines() for one in workers[1:]]
    workers[0].communicate()
    assert [one.returncode for one in workers] == [-9, 0, 0, 0]
    found = [essence(lines) for lines in others]
    whole = max(found, key=len)
    assert sorted(whole) == [*range(TRIALS)]
    assert essence([first]).items() <= whole.items()
    assert all(one.items() <= whole.items() for one in found)
    after, _ = worker(text, name, url, tmp_path / "machine9").communicate(timeout=600)
    *trials, last = after.splitlines()
    assert essence(trials) == whole  # one more finds nothing to do
    last = json.loads(last)
    losses = {trial: loss for trial, (_, loss) in whole.items()}
    assert last["best"] == min(losses, key=losses.get)
    assert Path(last["config"]).is_relative_to(tmp_path / "machine9")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("no/folder/j.log", "there is no folder no/folder"),
        (".", "is a folder: give the path of a file in it"),
        ("text.txt", "text.txt is no journal file of Optuna"),
        ("oracle://u:secret@h/d", "a database (postgresql://, mysql://, mariadb://)"),
        ("sqlite:///a.db", "and not sqlite://"),
        ("nothing://x", "and not nothing://"),
        ("postgresql+nothing://x", "--storage is a URL, such as postgresql://USER@HOST/DATABASE"),
        ("://", "--storage is a URL"),
    ],
)
def test_what_is_no_storage_is_refused(capsys, text, monkeypatch, given, said):
    monkeypatch.chdir(text.parent)
    for asked in (("tune", text, "--trials", "2"), ("tune", "--list")):
        line = refusal(capsys, *asked, "--storage", given)
        assert said in line and "secret" not in line
    assert text.read_text().startswith("the cat")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("broken\n", "is no journal file of Optuna"),
        ("[]\n", "is no journal file of Optuna"),
        ('{"op_code": 99, "worker_id": "a"}\n', "is no journal file of Optuna"),
        ('{"op_code": 0, "worker_id": "a"', "is no journal file of Optuna"),
        (None, "is a pipe or a device"),
    ],
)
def test_a_file_that_is_no_journal_stays_as_it_is(capsys, text, content, said):
    file = text.parent / "j.log"
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content)
    assert said in refusal(capsys, "tune", text, "--trials", "1", "--storage", file)
    assert content is None or file.read_text() == content


def test_a_journal_that_was_cut_loses_its_last_record_and_goes_on(capsys, text):
    """As a full disk leaves it."""
    file = text.parent / "j.log"
    asked = ("tune", text, *SMALL, "--trial-steps", "1", "--name", "cut", "--storage", file)
    assert len(records(capsys, *asked, "--trials", "2")) == 3
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    assert len(records(capsys, *asked, "--trials", "2")) == 3
    assert file.read_bytes().startswith(whole[: whole[:-5].rfind(b"\n") + 1])
    assert [json.loads(line) for line in file.read_text().splitlines()]


def test_a_server_that_does_not_answer_is_one_line_without_the_password(capsys, text):
    pytest.importorskip("psycopg")
    line = refusal(
        capsys,
        "tune",
        text,
        "--trials",
        "2",
        "--storage",
        "postgresql+psycopg://u:secret@127.0.0.1:9/d",
    )
    assert line.startswith("seqgen: --storage postgresql+psycopg://u:***@127.0.0.1:9/d: ")
    assert "secret" not in line


def test_a_missing_driver_is_named(capsys, text, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    line = refusal(capsys, "tune", text, "--trials", "2", "--storage", "postgresql+psycopg2://h/d")
    assert line.endswith("needs the package psycopg2-binary: pip install psycopg2-binary")
