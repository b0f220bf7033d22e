"""Clients that others wrote: the `openai` package and lm-evaluation-harness, where installed."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from test_serve import NAMES, alone, live, prompts_of  # noqa: F401

from seqgen.store.loading import Work, load

TASK = """
task: lines
dataset_path: json
dataset_kwargs: {data_files: %s}
test_split: train
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{line}}"
metric_list: [{metric: bits_per_byte}]
"""


@pytest.mark.slow
def test_openai(live):  # noqa: F811
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{live.address}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == list(NAMES.values())
    for kind in ("n-gram", "lstm", "transformer", "pairs"):
        prompts = prompts_of(kind)[1:3]
        how = {"model": NAMES[kind], "prompt": prompts, "seed": 4, "max_tokens": 12, "top_p": 0.9}
        expected = alone(kind, prompts, num_samples=2, seed=4, max_tokens=12, top_p=0.9, top_k=20)
        more = {"n": 2, "logprobs": 2, "extra_body": {"top_k": 20}}
        whole = client.completions.create(**how, **more)
        assert [choice.text for choice in whole.choices] == expected
        assert whole.usage.completion_tokens == sum(
            len(choice.logprobs.tokens) for choice in whole.choices
        )
        written = [""] * 4
        for event in client.completions.create(**how, **more, stream=True):
            for choice in event.choices:
                written[choice.index] += choice.text
        assert written == expected
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=NAMES["lstm"], prompt="", temperature=-1)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="another", prompt="")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["n-gram", "lstm"])
def test_lm_evaluation_harness(kind, tmp_path):
    """Its log-likelihoods of lines are those of `perplexity --per-line --no-end`."""
    pytest.importorskip("lm_eval")
    lines = [text.strip() for text in alone(kind, [""], num_samples=8, seed=2, max_tokens=60)]
    lines = [" ".join(line.split()) for line in lines]
    loaded = load(NAMES[kind], work=Work())
    lines = [line for line in lines if line and loaded.tokenizer.first_unknown(line) is None]
    assert len(lines) > 4
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"line": x}) + "\n" for x in lines))
    (tmp_path / "lines.yaml").write_text(TASK % (tmp_path / "lines.jsonl"))
    command = [sys.executable, "-m", "seqgen", "serve", "-m", NAMES[kind], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = server.stderr.readline().split()[-1]
            about = f"base_url={address}/v1/completions,model={NAMES[kind]},num_concurrent=2"
            how = ["--model", "local-completions", "--model_args", about, "--tasks", "lines"]
            how += ["--include_path", str(tmp_path), "--output_path", str(tmp_path / "out")]
            how += ["--log_samples"]
            done = subprocess.run(
                [sys.executable, "-m", "lm_eval", *how],
                capture_output=True,
                text=True,
                env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
            )
            assert done.returncode == 0, done.stderr[-2000:]
        finally:
            server.terminate()
    (log,) = (tmp_path / "out").rglob("samples_*.jsonl")
    samples = [json.loads(line) for line in log.read_text().splitlines()]
    found = {sample["doc"]["line"]: sample["filtered_resps"][0] for sample in samples}
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "seqgen", "perplexity", str(tmp_path / "lines.txt")]
    command += ["-m", NAMES[kind], "--per-line", "--no-end", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    records = [json.loads(record) for record in told.splitlines()]
    assert [record["text"] for record in records] == lines
    for record in records:
        likelihood = found[record["text"]]
        likelihood = likelihood[0] if isinstance(likelihood, list) else likelihood
        assert float(likelihood) == pytest.approx(-record["nll_nats"], abs=1e-4)
