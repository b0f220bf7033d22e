"""A server's process against requests that are wrong, slow, or never end."""

import contextlib
import json
import random
import socket
import struct
import sys
import time
from collections import Counter

import pytest
from test_serve import NAMES, ask, asked_of
from test_soak import KINDS, post, serving

from seqgen.plugins.serve.app import BODY_SECONDS

REQUESTS, SLOW = 300, 12
PATHS = ("/v1/completions", "/v1/score", "/tokenize", "/detokenize", "/v1/models", "/", "/metrics")
FIELDS = ("prompt", "max_tokens", "n", "stop", "seed", "logit_bias", "logprobs", "pattern", "model")
FIELDS += ("response_format", "lines", "tokens", "temperature", "label", "stream", "echo", "ban")


def value(draw, depth=0):
    """Return something that JSON can hold, of any type."""
    kind = draw.randrange(9 if depth < 3 else 7)
    if kind < 5:
        numbers = draw.choice([0, -1, 10**30, 1e308, -0.5]), draw.random()
        return draw.choice([None, True, "", "a" * draw.choice([1, 9, 50_000]), *numbers])
    if kind < 7:
        points = [draw.choice([0, 0x7F, 0x85, 0x300, 0x202E, 0xFEFF, 0x1F600]) for _ in range(9)]
        return "".join(map(chr, points)) + draw.choice(["", "\ud800"])
    if kind == 7:
        return [value(draw, depth + 1) for _ in range(draw.choice([0, 1, 2 if depth else 40]))]
    names = draw.sample(["k", "1", "type", "schema", "json_schema", "enum", "\ud800", "\udfff"], 3)
    return {name: value(draw, depth + 1) for name in names[: draw.choice([1, 3])]}


def body_of(draw):
    """Return a body: fields of any types, text that is no JSON, or any bytes."""
    kind = draw.randrange(7)
    if kind == 6:
        form = {draw.choice(["enum", "type", "anyOf", "properties", "pattern"]): value(draw)}
        form = {"type": "json_schema", "json_schema": {"schema": form}}
        return json.dumps({"max_tokens": 2, "response_format": form}).encode()
    if kind < 3:
        names = draw.sample(FIELDS, draw.randrange(1, 4))
        fields = {name: value(draw) for name in [*names, *draw.choice([[]] * 4 + [["\ud800"]])]}
        return json.dumps({"max_tokens": 2, **fields}).encode()
    if kind == 3:
        return draw.choice([b"[", b'{"a":', b'"']) * draw.choice([1, 900, 100_000])
    if kind == 4:
        return draw.randbytes(draw.choice([0, 1, 100, 100_000]))
    return b" " * draw.choice([10, 5_000_000])


def request_of(draw):
    """Return the bytes of a request, which need be none."""
    body, path = body_of(draw), draw.choice(PATHS)
    method = draw.choice(["POST"] * 5 + ["GET", "PUT", "DELETE", "OPTIONS", "\0", "POST " * 9])
    length = draw.choice([len(body)] * 5 + [-1, len(body) + 9, "9" * 40, "x"])
    lines = [f"{method} {path} HTTP/1.1", f"Host: {draw.choice(['localhost'] * 6 + ['', 'x:y:z'])}"]
    lines.append(f"Content-Length: {length}")
    kind = draw.randrange(8)
    if kind == 0:
        lines[-1] = "Transfer-Encoding: chunked"
        body = draw.choice([b"zz\r\n", b"ffffffffffffffffff\r\n", b"5\r\nab", b"0\r\n\r\n"]) + body
    elif kind == 1:
        lines += [f"X-{i}: {'y' * draw.choice([1, 9_000])}" for i in range(draw.choice([1, 200]))]
    elif kind == 2:
        lines += draw.choice([["Expect: 100-continue"], ["Upgrade: websocket"], ["X: \x01"]])
    elif kind == 3:
        return draw.randbytes(draw.choice([1, 500, 70_000]))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def send(place, data, draw):
    """Send bytes and leave in some way; return the status of an answer, or None."""
    with (
        contextlib.closing(socket.create_connection(place, 20)) as own,
        contextlib.suppress(OSError),
    ):
        own.sendall(data)
        leaves = draw.randrange(5)
        if leaves == 0:  # with a reset
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return None
        if leaves == 1:
            return None
        if leaves == 2:  # half of it: what it asks for may still come
            own.shutdown(socket.SHUT_WR)
        own.settimeout(0.3)
        status = own.recv(16).split(b" ")[1:2]
        return int(status[0]) if status else None


@pytest.mark.long
def test_hostile_requests():
    """No answer is a failure of the server's, no traceback is logged; then texts are right."""
    draw = random.Random(11)
    asked = [one for kind in KINDS for one in asked_of(kind, 1, draw)]
    process, place = serving()
    try:
        slow, begun = [], time.monotonic()
        for number in range(SLOW):
            slow.append(socket.create_connection(place, BODY_SECONDS + 30))
            head = f"POST {PATHS[number % 4]} HTTP/1.1\r\nHost: localhost\r\n"
            slow[-1].sendall(head.encode() + b"Content-Length: 99\r\n\r\n{")
        statuses = Counter(send(place, request_of(draw), draw) for _ in range(REQUESTS))
        assert all(status is None or status < 500 for status in statuses), statuses
        sys.stderr.write(f"{dict(statuses)}\n")
        assert statuses[400] > 20 and statuses[404] + statuses[405] > 3
        while slow and time.monotonic() < begun + BODY_SECONDS + 20:
            for own in [*slow]:
                own.sendall(b" ")  # a byte a second is not enough
                own.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    assert own.recv(16).startswith(b"HTTP/1.1 408")
                    own.close()
                    slow.remove(own)
                    continue
                own.setblocking(True)
            time.sleep(1)
        assert slow == []
        for fields, expected in asked:
            assert ask(place, fields) == expected
        assert post(place, json.dumps({"model": NAMES["lstm"], "max_tokens": 1}).encode()) == 200
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        logged = process.communicate()[1]
    assert "Traceback" not in logged
