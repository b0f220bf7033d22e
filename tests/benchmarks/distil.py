"""Does one network learn more from a mixture of two than from as much training of its own?

    python -m tests.benchmarks.distil TEXT [--steps 2000] [--size 128] [--lr 0.02] [--dropout 0.05]

Characters, the last tenth held out. Two LSTMs of different seeds train for two fifths of the steps
each. The last fifth of the processor time goes to the first of them, which learns the mean of both
distributions at half the peak rate. One network beside them trains for all the steps. A line of
JSON tells losses in nats per character and processor seconds.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from seqgen.cli.shell.output import put_record
from seqgen.engines.precision import arithmetic
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.scoring.loop import score_corpus
from seqgen.settings.training import TrainingConfig
from seqgen.store.torch_models import choose_products
from seqgen.text.batches import Batches, training_batches
from seqgen.text.corpus import Corpus
from seqgen.training.loop import Trainer
from seqgen.training.optimizers import UpdateRule, clip_gradients, rate
from seqgen.training.run import Hooks

# Steps of training that take as long as one of the student: two more networks are read, forward.
STEPS_OF_STUDENT = 5 / 3


def corpora(text: str) -> tuple[Corpus, Corpus, int]:
    """Return the two parts of a text, and the size of its vocabulary with a start symbol."""
    symbols, ids = np.unique(np.array(list(text)), return_inverse=True)
    tokens = (ids + 1).astype(np.uint16)
    cut = tokens.size * 9 // 10
    parts = (Corpus(part, np.array([part.size]), start=0) for part in (tokens[:cut], tokens[cut:]))
    return *parts, symbols.size + 1


def mixture_of(models: list[RecurrentLM], tokens: torch.Tensor, states: list) -> tuple:
    """Return the mean of the models' distributions (B, T, V), and their states after the tokens."""
    with torch.no_grad():
        read = [model(tokens, state) for model, state in zip(models, states, strict=True)]
    return sum(logits.softmax(-1) for logits, _ in read) / len(models), [state for _, state in read]


def distil(
    student: RecurrentLM, teachers: list[RecurrentLM], batches: Batches, config: TrainingConfig
) -> None:
    """Train a network to predict what the mixture of others predicts."""
    rule = UpdateRule(student, config)
    student.train()
    state, states = None, [None] * len(teachers)
    for step in range(config.steps):
        batch = batches.batch(step)
        tokens = torch.from_numpy(batch.tokens).long()
        if batch.fresh:
            state, states = None, [None] * len(teachers)
        with arithmetic(config.precision, tokens.device):
            wanted, states = mixture_of(teachers, tokens, states)
            logits, state = student(tokens, state)
            loss = -(wanted * logits.log_softmax(-1)).sum() / batch.count
        for parameter in student.parameters():
            parameter.grad = None
        loss.backward()
        clip_gradients(student.parameters(), config)
        rule.step(rate(config, step / config.steps, step))
        state = state.detach()
    student.eval()


def loss_of(model: RecurrentLM, corpus: Corpus) -> float:
    """Return the loss of a text, in nats per token."""
    model.eval()
    scored = list(score_corpus(model, corpus, want="log_probs"))
    return -sum(part.log_probs.sum() for part in scored) / corpus.tokens.size


def loss_of_mixture(models: list[RecurrentLM], corpus: Corpus) -> float:
    """Return the same of the mean of distributions."""
    each = [
        np.concatenate([part.log_probs for part in score_corpus(model, corpus, want="log_probs")])
        for model in models
    ]
    return -float(np.logaddexp.reduce(each, axis=0).mean() - np.log(len(models)))


def main() -> None:
    """Train three networks and a student."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--precision", choices=("float32", "bf16"), default="bf16")
    given = parser.parse_args()
    torch.set_num_threads(1)
    choose_products(torch.device("cpu"))
    train, held_out, symbols = corpora(given.text.read_text(encoding="utf-8"))
    shape = {"vocab_size": symbols, "hidden_size": given.size, "num_layers": 2}
    shape |= {"embedding_size": 64, "dropout": given.dropout}
    recipe = {**LSTMConfig.recipe, "lr": given.lr, "precision": given.precision}
    hooks = Hooks(keep_best=bool, checkpoint=bool, report=lambda event: None)

    def trained(steps: int, seed: int) -> tuple[RecurrentLM, float]:
        torch.manual_seed(seed)
        model = RecurrentLM(LSTMConfig(**shape))
        config = TrainingConfig(**recipe, steps=steps, seed=seed)
        batches = training_batches(train, "stream", True, config.batch_size, config.seq_len, seed)
        began = time.process_time()
        Trainer(model, batches, config, hooks).train()
        return model, time.process_time() - began

    one, seconds = trained(given.steps, 1)
    record = {"one": loss_of(one, held_out), "one_seconds": seconds}
    pairs = [trained(given.steps * 2 // 5, seed) for seed in (1, 2)]
    members = [model for model, _ in pairs]
    record |= {f"member_{i}": loss_of(model, held_out) for i, model in enumerate(members, 1)}
    record["mixture"] = loss_of_mixture(members, held_out)
    student = RecurrentLM(LSTMConfig(**shape))
    student.load_state_dict(members[0].state_dict())
    steps = round(given.steps / 5 / STEPS_OF_STUDENT)
    config = TrainingConfig(**recipe, steps=steps, seed=3)
    config = replace(config, lr=given.lr / 2)
    batches = training_batches(train, "stream", True, config.batch_size, config.seq_len, 3)
    began = time.process_time()
    distil(student, members, batches, config)
    seconds = sum(taken for _, taken in pairs) + time.process_time() - began
    put_record({**record, "student": loss_of(student, held_out), "student_seconds": seconds})


if __name__ == "__main__":
    main()
