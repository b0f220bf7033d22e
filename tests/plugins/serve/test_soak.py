"""A server under minutes of load, with thousands of idle connections, that is killed at the end."""

import http.client
import itertools
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from test_serve import NAMES, ask, asked_of

SECONDS, IDLE = 300, 10_000
KINDS = ("n-gram", "lstm", "transformer", "mixture", "pairs")
HOSTILE = (
    *(b"", b"{", b"[" * 9_000, b'{"prompt": "\xff"}', b'{"n": NaN}', b'{"n": 1e999}'),
    *(b'{"stop": [""]}', b'{"model": 5}', b'{"pattern": "("}', b'{"max_tokens": -1}'),
)


def serving():
    """Start a server; return its process and its place."""
    command = [sys.executable, "-m", "seqgen", "serve", "--port", "0", "--queue", "1000"]
    command += [part for kind in KINDS for part in ("-m", NAMES[kind])]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    where = urlsplit(process.stderr.readline().split()[-1])
    return process, (where.hostname, where.port)


def megabytes(process):
    """Return the memory of a process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def post(place, body):
    """Return the status of an answer to bytes."""
    connection = http.client.HTTPConnection(*place)
    connection.request("POST", "/v1/completions", body)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.long
def test_five_minutes_of_load():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 500:
        pytest.skip(f"a process may have {hard} connections here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    draw = random.Random(3)
    asked = [one for kind in KINDS for one in asked_of(kind, 6, draw)]
    process, place = serving()
    until, counts, sizes, wrong = time.monotonic() + SECONDS, Counter(), [], []

    def client(number):
        own = random.Random(number)
        while time.monotonic() < until and not wrong:
            try:
                fields, expected = own.choice(asked)
                if own.random() < 0.2:
                    counts[post(place, own.choice(HOSTILE))] += 1
                    continue
                leaves = own.random() < 0.1
                found = ask(place, {**fields, "stream": leaves or own.random() < 0.5}, leaves)
                assert found == (None if leaves else expected)
                counts[200] += 1
                time.sleep(own.random() / 10)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    idle = []
    try:
        for thread in threads:
            thread.start()
        for number in range(IDLE):
            idle.append(socket.create_connection(place, 60))
            if number % 2:
                idle[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        while time.monotonic() < until and not wrong:
            sizes.append(megabytes(process))
            time.sleep(SECONDS / 60)
        for thread in threads:
            thread.join()
        assert not wrong and set(counts) == {200, 400}
        early, late = (sum(part) / len(part) for part in (sizes[: len(sizes) // 3], sizes[-9:]))
        sys.stderr.write(f"{dict(counts)}, {len(idle)} idle, {early:.0f} and {late:.0f} MB\n")
        assert late < 1.1 * early
        # It has nothing to lose: another one gives the same texts.
        process.kill()
        assert process.wait() < 0 and "Traceback" not in process.stderr.read()
        process, place = serving()
        for fields, expected in itertools.islice(asked, 0, None, 6):
            assert ask(place, fields) == expected
    finally:
        process.kill()
        process.wait()
        for own in idle:
            own.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
