"""Words from their characters: the equation, the table of all words, and models that read it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from architectures import Case
from helpers_cli import records, refusal

from seqgen.cli import run
from seqgen.models.recurrent.cells.gru import GRUConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.plugins.labels.models.char_cnn import BEGIN, BYTES, END, SpelledEmbedding
from seqgen.store.loading import load

SETTINGS = {
    **{"input": "char-cnn", "hidden_size": 6, "num_layers": 1, "vocab_size": 7, "dropout": 0.0},
    **{"char_size": 3, "char_filters": 2, "char_widths": 3, "char_length": 8, "char_highways": 2},
}
WORDS = ["a", "cat", "caterpillar", "", "é", "tac", "the"]


def embedding(**settings) -> SpelledEmbedding:
    """Return a small one in float64, with words."""
    torch.manual_seed(0)
    made = SpelledEmbedding(GRUConfig(**{**SETTINGS, **settings})).double()
    made.spell(WORDS)
    return made


def by_hand(made: SpelledEmbedding, word: str, length: int = 8) -> np.ndarray:
    """Return the vector of a word by the equations of Kim et al. (2016), in NumPy loops."""
    weights = {name: p.detach().numpy() for name, p in made.named_parameters()}
    ids = [BEGIN, *(BYTES + byte for byte in word.encode()), END][:length]
    c = weights["characters.weight"][ids + [0] * (length - len(ids))]  # (L, C)
    y = []
    for number in range(3):
        h, b = weights[f"convolutions.{number}.weight"], weights[f"convolutions.{number}.bias"]
        width = h.shape[-1]
        for one, bias in zip(h, b, strict=True):  # one: (C, w)
            places = range(length - width + 1)
            y.append(max(np.tanh((c[i : i + width].T * one).sum() + bias) for i in places))
    y = np.array(y)
    for number in range(2):
        layer = f"highways.{number}"
        w_t, b_t = weights[f"{layer}.gate.weight"], weights[f"{layer}.gate.bias"]
        w_h, b_h = weights[f"{layer}.transform.weight"], weights[f"{layer}.transform.bias"]
        t = 1 / (1 + np.exp(-(w_t @ y + b_t)))
        y = t * np.maximum(0, w_h @ y + b_h) + (1 - t) * y
    return y


def test_a_words_vector_is_that_of_the_paper():
    made = embedding()
    found = made(torch.arange(7)).detach().numpy()
    for vector, word in zip(found, WORDS, strict=True):
        np.testing.assert_allclose(vector, by_hand(made, word), rtol=1e-12)
    assert found.shape == (7, 2 + 4 + 6)


def test_the_table_of_all_words_is_what_training_computes():
    made = embedding()
    tokens = torch.tensor([[5, 1, 1], [0, 6, 5]])
    trained = made(tokens)
    with torch.no_grad():
        torch.testing.assert_close(made(tokens), trained)
        before = made.weight
        assert made.weight is before
        made.convolutions[0].bias.add_(0.5)
        assert made.weight is not before
    torch.testing.assert_close(made(tokens).detach(), made.weight[tokens])
    assert copy.deepcopy(made).weight.equal(made.weight)


def test_the_gradient_is_that_of_the_words_that_occur():
    made = embedding(char_highways=1)
    tokens = torch.tensor([[5, 1, 1]])
    made(tokens).pow(2).sum().backward()
    own = {name: p.grad.clone() for name, p in made.named_parameters()}
    made.zero_grad()
    made.vectors(torch.arange(7))[tokens].pow(2).sum().backward()
    for name, parameter in made.named_parameters():
        torch.testing.assert_close(own[name], parameter.grad)


@pytest.mark.parametrize("architecture", ["lstm", "gru", "rnn"])
def test_training_in_bf16_is_training(architecture):
    """The vectors come out of maps that an autocast rounds; recurrent kernels take float32."""
    settings = {name: value for name, value in SETTINGS.items() if name != "input"}
    model = Case(architecture, "", {**settings, "input": "char-cnn"}).build(torch.float32)
    tokens = torch.tensor([[1, 2, 3, 1, 6]])
    wanted = model(tokens)[0]
    with torch.autocast("cpu", torch.bfloat16):
        got, _ = model(tokens)
    assert (got - wanted).norm() < 2**-5 * wanted.norm()
    got.square().sum().backward()
    assert model.embedding.characters.weight.grad.abs().sum() > 0


def test_filters_grow_with_their_width_up_to_200():
    config = GRUConfig(vocab_size=5, input="char-cnn", char_filters=50, char_widths=7)
    assert config.filters == [50, 100, 150, 200, 200, 200, 200]
    assert config.input_size == 1100  # the large model of Kim et al.


def test_steps_over_arrays_read_the_same_vectors():
    torch.manual_seed(0)
    model = RecurrentLM(GRUConfig(**SETTINGS)).eval()
    tokens = [3, 1, 1, 6]
    with torch.no_grad():
        whole, _ = model(torch.tensor([tokens]), model.start(1))
        state, each = model.start(1), []
        for token in tokens:
            logits, state = model.step([token], state)
            each.append(logits[0])
    np.testing.assert_allclose(np.stack(each), whole[0].numpy(), atol=1e-5)


@pytest.fixture
def text(tmp_path):
    """A text of a few words."""
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat\nthe cats sat\n" * 30)
    return path


SMALL = ("--layers", 1, "--hidden-size", 8, "--batch-size", 4, "--seq-len", 8, "--seed", 1)
CHARACTERS = ("--set", "input=char-cnn", "--set", "char_filters=2", "--set", "char_length=10")


def train(*arguments) -> None:
    """Train in this process."""
    assert run(["train", *map(str, arguments), "--quiet"]) == 0


def test_a_word_model_trains_stores_its_spelling_and_resumes(text, capsys):
    common = (text, "--tokenizer", "word", "--model", "lstm", *SMALL, *CHARACTERS, "--steps", 6)
    train(*common, "--name", "whole")
    train(*common, "--name", "parts", "--stop-after", 3)
    assert run(["train", "--resume", "parts", "--quiet"]) == 0
    whole, parts = load("whole"), load("parts")
    weights = [loaded.model.state_dict() for loaded in (whole, parts)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    number = whole.tokenizer.encode("the cats").tolist()[-1]
    row = whole.model.embedding.spelling[number].tolist()
    assert bytes(i - BYTES for i in row[1:6]) == b" cats"
    assert row[6:] == [END, 0, 0, 0]
    (found,) = records(capsys, "perplexity", "-m", "whole")
    result = whole.stored.record["result"]
    assert found["nll_nats"] / found["tokens"] == pytest.approx(result["val_loss"], rel=1e-6)
    train(text, "--init-from", "whole", "--steps", 2, "--name", "tuned")
    assert load("tuned").model.embedding.spelling.equal(whole.model.embedding.spelling)
    assert records(capsys, "sample", "-m", "whole", "--max-tokens", 5, "--seed", 1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--tokenizer", "char"), "input=char-cnn is for words"),
        (("--tokenizer", "word", "--set", "tie_weights=true"), "tie_weights needs"),
        (("--tokenizer", "word", "--set", "char_widths=11"), "char_widths must be at most"),
    ],
)
def test_what_makes_no_sense_is_refused(text, capsys, more, said):
    arguments = (text, "--model", "gru", *SMALL, *CHARACTERS, "--steps", 1, *more)
    assert said in refusal(capsys, "train", *arguments)
