r"""Tokens a second, and the wait for the first one, of a server with one client and with several.

    python -m benchmarks.serving NAME [--clients 1,4,16] [--tokens 128] [--rounds 3]
    python -m benchmarks.serving NAME --address http://127.0.0.1:8080 --process PID \
        --fields '{"cache_prompt": false}'  # another server, such as llama.cpp's

Each client streams one text after the other, with a prompt and a seed of its own. The numbers of
clients take turns, so that what else the machine does slows them alike; the medians of the rounds
are written. The clients are a process of their own. Of a server that the script started, or whose
process is given, it also writes tokens per second of processor time, of all that the server does.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

PROMPT = "the king said to the duke of york, and went on: "


def stream(place: str, body: dict) -> tuple[float, int]:
    """Return the seconds to the first token of a text, and the number of events."""
    connection = http.client.HTTPConnection(place)
    begun = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(response.read().decode())
    first, count = 0.0, 0
    for line in response:
        if line.startswith(b"data: {"):
            first = first or time.perf_counter() - begun
            count += 1
    connection.close()
    return first, count


def load(
    place: str, fields: dict, clients: int, tokens: int, texts: int
) -> tuple[float, list[float]]:
    """Return tokens a second of all clients together, and the waits for first tokens."""
    waits, counts = [], []

    def client(number: int) -> None:
        for text in range(texts):
            prompt = PROMPT[: 8 + (number * 7 + text) % 40]
            body = {"prompt": prompt, "max_tokens": tokens, "stream": True, **fields}
            wait, count = stream(place, body | {"seed": 1000 * number + text})
            waits.append(wait)
            counts.append(count)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begun), waits


def processor_seconds(process: int | None) -> float:
    """Return the processor time of a process so far; 0 where it is not known."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    place: str,
    fields: dict,
    numbers: list[int],
    tokens: int,
    rounds: int,
    process: int | None = None,
) -> None:
    """Write a line for each number of clients."""
    speeds = {number: [] for number in numbers}
    costs = {number: [] for number in numbers}
    waits = {number: [] for number in numbers}
    # Loads the model, and ends here if the server refuses it.
    stream(place, {"prompt": PROMPT, "max_tokens": 8, "stream": True, **fields})
    for _ in range(rounds):
        for number in numbers:
            begun = processor_seconds(process)
            speed, first = load(place, fields, number, tokens, 2)
            costs[number].append((processor_seconds(process) - begun) / (number * 2 * tokens))
            speeds[number].append(speed)
            waits[number] += first
    base = speeds[numbers[0]]
    for number in numbers:
        ratio = statistics.median(a / b for a, b in zip(speeds[number], base, strict=True))
        p50, p99 = (sorted(waits[number])[int(q * (len(waits[number]) - 1))] for q in (0.5, 0.99))
        sys.stdout.write(
            f"{number:3} clients  {statistics.median(speeds[number]):8.1f} tokens/s  x{ratio:5.2f}"
            f"  first token p50 {1000 * p50:6.0f} ms  p99 {1000 * p99:6.0f} ms"
        )
        cost, one = (statistics.median(costs[n]) for n in (number, numbers[0]))
        if cost:  # or the process is not given, or not the server
            sys.stdout.write(f"  {1 / cost:8.1f} tokens/s of processor time  x{one / cost:5.2f}")
        sys.stdout.write("\n")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--address", help="of a server that runs already, of this or another kind")
    parser.add_argument("--process", type=int, help="its number")
    parser.add_argument("--fields", type=json.loads, default={}, help="more of each request")
    given = parser.parse_args()
    fields = {"model": given.model, **given.fields}
    numbers = [int(number) for number in given.clients.split(",")]
    if given.address:
        place = urlsplit(given.address).netloc
        measure(place, fields, numbers, given.tokens, given.rounds, given.process)
        return
    command = [sys.executable, "-m", "seqgen", "serve", "-m", given.model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        said = server.stderr.readline()
        if "http" not in said:
            raise SystemExit(said.strip())
        address = said.split()[-1]
        try:
            how = numbers, given.tokens, given.rounds, server.pid
            measure(urlsplit(address).netloc, fields, *how)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
