"""What is checked and measured on a GPU, the most useful first; tiny where there is none.

Speeds are medians of runs that alternate with the baseline's. The baselines are a training loop
as nanoGPT has it (Karpathy 2022: bf16 autocast, fused AdamW, clipped gradients, compiled where
that is faster, the loss read now and then), and the `generate` of the package transformers with
its static cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Tree
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.baselines import PlainGPT, PlainRecurrent
from benchmarks.peers import transformers_gpt2
from benchmarks.shapes import Shape, Texts, gpt2
from benchmarks.train import DROPOUT, Case, flops_per_token, matmul_speed, model_of
from benchmarks.writing_cases import write_texts
from places import CORPORA, ROOT
from torch import nn

from seqgen import hooks
from seqgen.engines.precision import choose_device, in_precision
from seqgen.models.transformer.model import Transformer
from seqgen.presets import SHARED
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import training_batches
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.training.loop import Trainer
from seqgen.training.run import Hooks

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
# What nanoGPT trains in; a processor without bf16 would take minutes for it.
PRECISION = "bf16" if HAS_GPU else "float32"
REPEATS, RUN_SECONDS = (3, 3.0) if HAS_GPU else (1, 0.2)


@dataclass(frozen=True)
class Step:
    """A step: what it is called, what it does, and how many seconds it needs and may take."""

    name: str
    run: Callable[[], dict[str, Any]]
    least_seconds: float
    most_seconds: float


def machine() -> dict[str, Any]:
    """Describe what is measured on: the device, the versions and the commit."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {
        "device": torch.cuda.get_device_name() if HAS_GPU else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": asked.stdout.strip() or None,
    }


def cuda_tests() -> dict[str, Any]:
    """Run the tests of CUDA, and count what came out."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        workers = str(min(4, os.cpu_count() or 1))
        command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider"]
        command = [*command, f"--junitxml={report}", "tests/training/test_cuda.py"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if not report.exists():  # without pytest-xdist there is no -n
            command.remove("-n")
            command.remove(workers)
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        (suite,) = Tree.parse(report).getroot().iter("testsuite")
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    wrong = {"error": "some failed"} if counts["failures"] + counts["errors"] else {}
    return {**counts, "failed": failed, **wrong}


def _case(kind: str) -> Case:
    """Return a model to train and nanoGPT's beside it, with the sizes of its recipes."""
    if kind == "lstm 2 x 512":
        size = 512 if HAS_GPU else 16
        return Case(
            name=kind,
            baseline="nn.LSTM",
            architecture="lstm",
            settings={"hidden_size": size, "num_layers": 2},
            plain=lambda: PlainRecurrent(nn.LSTM, 66, size, 2, DROPOUT),
            batch_size=64 if HAS_GPU else 4,
            seq_len=256 if HAS_GPU else 16,
        )
    layers, size, batch, window, vocab = {
        "transformer 6 x 384": (6, 384, 64, 256, 66),
        "transformer 12 x 768": (12, 768, 12, 1024, 50_304),
    }[kind]
    if not HAS_GPU:
        layers, size, batch, window, vocab = 2, 64, 2, 16, 66
    return Case(
        name=kind,
        baseline="nanoGPT's",
        architecture="transformer",
        settings={
            "hidden_size": size,
            "num_layers": layers,
            "num_heads": size // 64,
            **SHARED["gpt2"],
        },
        plain=lambda: PlainGPT(vocab, window, size, layers, size // 64, DROPOUT),
        batch_size=batch,
        seq_len=window,
        vocab_size=vocab,
    )


def training_speed(kind: str) -> dict[str, Any]:
    """Compare training steps with nanoGPT's loop, compiled and not, in tokens a second."""
    device, case = choose_device(DEVICE), _case(kind)
    ways = (False, True) if HAS_GPU else (False,)  # a compiler may be missing on a CPU
    ours = {f"compiled={way}": _our_training(case, way, device) for way in ways}
    theirs = {f"compiled={way}": _plain_training(case, way, device) for way in ways}
    best_of_ours = max(ours, key=lambda way: ours[way]["tokens_per_second"])
    best_of_theirs = max(theirs, key=lambda way: theirs[way]["tokens_per_second"])
    a, b = ours[best_of_ours], theirs[best_of_theirs]
    reached = a["tokens_per_second"] * flops_per_token(model_of(case), case.seq_len)
    peak = matmul_speed(torch.bfloat16 if HAS_GPU else torch.float32, device)
    return {
        "precision": PRECISION,
        "ratio": a["tokens_per_second"] / b["tokens_per_second"],
        "share_of_matmul_speed": reached / peak,
        "ours": ours,
        "baseline": theirs,
    }


def _our_training(case: Case, compiles: bool, device: torch.device) -> dict[str, Any]:
    torch.manual_seed(0)
    model = model_of(case).to(device)
    batches = training_batches(
        case.corpus(), "stream", model.carries_state, case.batch_size, case.seq_len, seed=0
    )
    config = TrainingConfig(
        minutes=RUN_SECONDS / 60,
        precision=PRECISION,
        optimizer="adamw",
        batch_size=case.batch_size,
        seq_len=case.seq_len,
        compile=compiles,
    )
    if compiles and type(model).over_tensors is not None:
        why_not = Trainer(model, batches, config, Hooks()).compile()
        if why_not is not None:
            return {"tokens_per_second": 0.0, "not_compiled": why_not}

    def run() -> float:
        done = Trainer(model, batches, config, Hooks()).train()
        return done.tokens / done.seconds

    return _median_speed(run, device)


def _plain_training(case: Case, compiles: bool, device: torch.device) -> dict[str, Any]:
    """Train as nanoGPT's `train.py` does: batches drawn from a stream that lies on the device."""
    torch.manual_seed(0)
    model = case.plain().to(device)
    tokens = torch.randint(1, case.vocab_size, (1 << 20,), device=device)
    rule = torch.optim.AdamW(model.parameters(), fused=HAS_GPU)
    network = torch.compile(model) if compiles else model
    offsets = torch.arange(case.seq_len + 1, device=device)
    casts = torch.autocast(DEVICE, torch.bfloat16) if HAS_GPU else contextlib.nullcontext()

    def step() -> None:
        begins = torch.randint(len(tokens) - case.seq_len, (case.batch_size, 1), device=device)
        windows = tokens[begins + offsets]  # (B, T + 1)
        with casts:
            logits = network(windows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        rule.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()

    def run() -> float:
        _wait()
        began, made = time.monotonic(), 0
        while time.monotonic() - began < RUN_SECONDS:
            for _ in range(10):  # the loss of which would be read once
                step()
            made += 10 * case.batch_size * case.seq_len
            _wait()
        return made / (time.monotonic() - began)

    return _median_speed(run, device)


def _wait() -> None:
    if HAS_GPU:
        torch.cuda.synchronize()


def _median_speed(run: Callable[[], float], device: torch.device) -> dict[str, Any]:
    run()  # which sets up
    if HAS_GPU:
        torch.cuda.reset_peak_memory_stats(device)
    speeds = [run() for _ in range(REPEATS)]
    memory = torch.cuda.max_memory_allocated(device) if HAS_GPU else None
    return {
        "tokens_per_second": statistics.median(speeds),
        "least": min(speeds),
        "most": max(speeds),
        "peak_memory": memory,
    }


def decoding(batch: int) -> dict[str, Any]:
    """Compare sampling from GPT-2's form with transformers' generate, in tokens a second."""
    shape = Shape(6, 384) if HAS_GPU else Shape(1, 64)
    tokenizer = CharTokenizer(shape.alphabet)
    first = tokenizer.newline_id
    firsts = [first + i % len(shape.alphabet) for i in range(batch)]
    texts = Texts(firsts, 200 if HAS_GPU else 8)
    found: dict[str, Any] = {}
    model = _on_device(Transformer(gpt2(shape, tokenizer.vocab_size)).eval())
    found["ours"] = _best_speed(write_texts(model, tokenizer, texts))
    for cache in (None, "static"):
        options = {} if cache is None else {"cache_implementation": cache}
        try:
            theirs = transformers_gpt2(
                shape, tokenizer.vocab_size, texts, PRECISION, device=DEVICE, **options
            )
            found[f"transformers, {cache or 'dynamic'} cache"] = _best_speed(theirs)
        except Exception as error:  # another release of it may have no such option
            found[f"transformers, {cache or 'dynamic'} cache"] = f"{type(error).__name__}: {error}"
    speeds = [x for name, x in found.items() if name != "ours" and isinstance(x, float)]
    return {"batch": batch, **found, "ratio": found["ours"] / max(speeds) if speeds else None}


def launches() -> dict[str, Any]:
    """Count what a step of training and of writing starts on the device, and waits for."""
    found: dict[str, Any] = {}
    for kind in ("transformer 6 x 384", "lstm 2 x 512"):
        case, device = _case(kind), choose_device(DEVICE)
        model = model_of(case).to(device)
        batches = training_batches(
            case.corpus(), "stream", model.carries_state, case.batch_size, case.seq_len, seed=0
        )
        config = TrainingConfig(
            steps=10,
            precision=PRECISION,
            batch_size=case.batch_size,
            seq_len=case.seq_len,
            validate_every=1000,
        )
        found[f"training {kind}"] = _profile(
            lambda model=model, batches=batches, config=config: Trainer(
                model, batches, config, Hooks()
            ).train(),
            steps=10,
        )
    shape = Shape(6, 384) if HAS_GPU else Shape(1, 64)
    tokenizer = CharTokenizer(shape.alphabet)
    model = _on_device(Transformer(gpt2(shape, tokenizer.vocab_size)).eval())
    for batch in (1, 64):
        run = write_texts(model, tokenizer, Texts([tokenizer.newline_id] * batch, 20))
        found[f"writing {batch} texts"] = _profile(run, steps=20)
    return found


def _profile(run: Callable[[], Any], steps: int) -> dict[str, Any]:
    """Run twice, the second time profiled; return calls and milliseconds of one step."""
    run()
    _wait()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if HAS_GPU else []
    began = time.monotonic()
    with torch.profiler.profile(activities=kinds) as profile:
        run()
        _wait()
    rows = profile.key_averages()
    of_device = {row.key: row.self_device_time_total / steps / 1e3 for row in rows}
    of_host = {row.key: row.self_cpu_time_total / steps / 1e3 for row in rows}
    return {
        "profiled_ms": (time.monotonic() - began) / steps * 1e3,
        "device_ms": sum(of_device.values()),
        "calls": {row.key: row.count / steps for row in rows if row.key.startswith("cuda")},
        "most_on_device": _largest(of_device),
        "most_on_host": _largest(of_host),
    }


def _largest(milliseconds: dict[str, float]) -> dict[str, float]:
    largest = sorted(milliseconds, key=lambda name: -milliseconds[name])[:10]
    return {name[:60]: round(milliseconds[name], 4) for name in largest if milliseconds[name]}


def _on_device(model: Transformer) -> Transformer:
    """Move a model to the device, as loading a stored one does."""
    model = in_precision(model.to(choose_device(DEVICE)), PRECISION)
    hooks.speed_up_steps(model)
    return model


def _best_speed(run: Callable[[], int]) -> float:
    run()  # which sets up and compiles
    best = 0.0
    for _ in range(REPEATS):
        _wait()
        began = time.monotonic()
        made = run()
        _wait()
        best = max(best, made / (time.monotonic() - began))
    return best


def _seqgen(home: Path, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "seqgen", *arguments, "--json"],
        env={**os.environ, "SEQGEN_HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def _text() -> Path:
    """Return tiny Shakespeare where it is, else the play that the project brings."""
    folders = [os.environ.get("SEQGEN_TEST_DATA"), ROOT / "shared/data", ROOT / "../shared/data"]
    for folder in filter(None, folders):
        if Path(folder, "tinyshakespeare.txt").exists() and HAS_GPU:
            return Path(folder, "tinyshakespeare.txt")
    return CORPORA / "play.txt"


def resuming_and_texts() -> dict[str, Any]:
    """Check that a run in two parts gives the same weights, and two devices the same texts."""
    steps = 60 if HAS_GPU else 6
    sizes = ["--hidden-size", "64", "--layers", "2", "--seed", "1", "--device", DEVICE]
    # What follows from the number of steps is fixed, so that the first half of a run is a run.
    fixed = ["--lr", "0.003", "--set", "schedule=constant", "--set", "warmup=0", "--val", "none"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for kind in ("lstm", "transformer"):
            train = ["train", str(CORPORA / "play.txt"), "--model", kind, *sizes, *fixed]
            _seqgen(home, *train, "--steps", str(steps), "--name", f"{kind}-whole")
            _seqgen(home, *train, "--steps", str(steps // 2), "--name", f"{kind}-parts")
            resume = ["train", "--resume", f"{kind}-parts", "--steps", str(steps)]
            _seqgen(home, *resume, "--device", DEVICE)
            whole, parts = (
                hashlib.sha256((home / f"models/{kind}-{way}/model.safetensors").read_bytes())
                for way in ("whole", "parts")
            )
            found[f"{kind}, resumed weights equal"] = whole.hexdigest() == parts.hexdigest()
            if whole.hexdigest() != parts.hexdigest():
                found["error"] = f"the weights of a resumed {kind} are others"
            sample = ["sample", "-m", f"{kind}-whole", "--num-samples", "20", "--max-tokens", "60"]
            texts = [
                [record["text"] for record in _seqgen(home, *sample, "--seed", "2", *place)]
                for place in (["--device", "cpu"], ["--device", DEVICE])
            ]
            found[f"{kind}, equal texts of 20"] = sum(a == b for a, b in zip(*texts, strict=True))
    return found


def minutes_of_the_default() -> dict[str, Any]:
    """Train the default for five minutes, and tell its loss in nats a character."""
    minutes = "5" if HAS_GPU else "0.05"
    with tempfile.TemporaryDirectory() as folder:
        train = ["train", str(_text()), "--minutes", minutes, "--seed", "1", "--device", DEVICE]
        (result,) = _seqgen(Path(folder), *train, "--name", "m")
    return {"text": _text().name, "minutes": float(minutes), **result}


# On a GPU all of it takes about ten minutes; what was cut off is the first of the next call.
STEPS = [
    Step("training transformer 6 x 384", partial(training_speed, "transformer 6 x 384"), 20, 100),
    Step("training lstm 2 x 512", partial(training_speed, "lstm 2 x 512"), 20, 100),
    Step("decoding 1 text", partial(decoding, 1), 15, 60),
    Step("decoding 64 texts", partial(decoding, 64), 15, 60),
    Step("launches and waits", launches, 20, 60),
    Step("resuming and texts", resuming_and_texts, 30, 150),
    Step("tests of CUDA", cuda_tests, 60, 240),
    Step("training transformer 12 x 768", partial(training_speed, "transformer 12 x 768"), 60, 240),
    Step("five minutes of the default", minutes_of_the_default, 330 if HAS_GPU else 10, 345),
]
