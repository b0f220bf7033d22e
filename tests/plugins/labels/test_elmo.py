"""ELMo: its layers and its loss against their definitions, and its features in taggers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from helpers_cli import needs, records, refusal
from places import CORPORA
from safetensors.numpy import load_file

from seqgen import registry, store
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.plugins.labels.models.elmo import ELMo, ELMoConfig
from seqgen.plugins.labels.models.features import LayerMix, features_of
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import DocumentBatches, portions
from seqgen.text.corpus import Corpus
from seqgen.text.direction import TwoWayBatches, reverse_corpus
from seqgen.text.sources import TokenSources
from seqgen.training.objective import Objective
from seqgen.training.regimes.base import StepProgress, TextRules

VOCAB, BOS, EOS = 9, 1, 2
SMALL = ("--model", "elmo", "--hidden-size", 6, "--set", "char_filters=2", "--batch-size", 8)
SEEDED = (*SMALL, "--seed", 3, "--quiet")
WORDS = "".join(f"the {'ab'[i % 2]}{i % 5}\n" for i in range(60))
SENTENCES = "".join(f"the DET\n{'ab'[i % 2]}{i % 5} {'AB'[i % 2]}\n\n" for i in range(40))
TAGGER = ("--task", "tag", "--hidden-size", 4, "--seed", 3, "--quiet")


def elmo(**settings) -> ELMo:
    """Return a small model with large random weights, in float64, that reads embeddings."""
    shape = {"vocab_size": VOCAB, "hidden_size": 4, "input": "embedding", "dropout": 0.0}
    model = ELMo(ELMoConfig(**{**shape, **settings})).double().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.7, generator=generator)
    return model


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def by_hand(model, vectors):
    """Return what the layers of one direction make of vectors (T, D): (layers + 1, T, D)."""
    outputs = [vectors]
    for number, layer in enumerate(model.layers):
        w, u, b = (t.detach().numpy() for t in (layer.weight_ih, layer.weight_hh, layer.bias))
        h = c = np.zeros(4)
        rows = []
        for x in outputs[-1]:
            i, f, g, o = np.split(w @ x + u @ h + b, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            rows.append(h)
        outputs.append(np.stack(rows) + (outputs[-1] if number and model.config.residual else 0))
    return np.stack(outputs)


def layers_by_hand(model, text):
    """Return h_k,j of a text from its start symbol on, (layers + 1, L, 2 D)."""
    table = model.embedding.weight.detach().numpy()
    there = by_hand(model.forwards, table[text])
    back = by_hand(model.backwards, table[[text[0], *text[:0:-1]]])
    again = np.concatenate([back[:, :1], back[:, :0:-1]], 1)
    return np.concatenate([there, again], -1)


@pytest.mark.parametrize("residual", [True, False])
def test_layers_are_those_of_the_paper(residual):
    model, text = elmo(residual=residual), [BOS, 5, 6, 7, 5]
    with torch.no_grad():
        found = model.layers(torch.tensor([text]), [5])[:, 0].numpy()
    np.testing.assert_allclose(found, layers_by_hand(model, text), atol=1e-12)
    np.testing.assert_array_equal(found[0, :, :4], found[0, :, 4:])  # the token itself, twice


def test_what_both_directions_share():
    model = elmo(tie_weights=False)
    assert model.forwards.embedding is model.backwards.embedding is model.embedding
    assert model.forwards.head is model.backwards.head is model.head
    groups = model.parameters_in_order()
    assert sorted(id(p) for group in groups for p in group) == sorted(map(id, model.parameters()))
    assert set(groups[-1]) == set(model.head.parameters()) and len(groups) == 4


def test_layers_have_names_of_their_own():
    named_layers = pytest.importorskip("seqgen.plugins.inspect.diagnose.layers").named_layers
    names = ["embedding", "layers.0", "layers.1"]
    expected = [*(f"forwards.{name}" for name in names), "head"]
    assert [name for name, _ in named_layers(elmo())] == expected


def corpus_of(*texts) -> Corpus:
    tokens = np.concatenate([[*text, EOS] for text in texts])
    ends = np.cumsum([len(text) + 1 for text in texts])
    return Corpus(tokens.astype(np.uint32), ends, BOS, 0, end=EOS)


def test_the_loss_is_the_sum_of_both_log_likelihoods():
    """Token by token, each from what stands before it and from what stands after it."""
    model, texts = elmo(), ([5, 6, 7], [8], [3, 3, 4, 5, 8])
    corpus = corpus_of(*texts)
    shape = (3, 64, 0, False)
    batches = TwoWayBatches(
        DocumentBatches(corpus, *shape), DocumentBatches(reverse_corpus(corpus), *shape)
    )
    objective = Objective(model, TrainingConfig(steps=1, precision="float64"), TextRules())
    batch = batches.batch(0)
    loss = objective.train()(batch, None, StepProgress(0, 0.0))
    totals = []
    for lm, order in ((model.forwards, 1), (model.backwards, -1)):
        nats = 0.0
        for text in texts:
            read = [BOS, *text[::order]]
            for at, target in enumerate([*text[::order], EOS]):
                logits, _ = lm(torch.tensor([read[: at + 1]]))
                nats -= logits[0, -1].log_softmax(-1)[target].item()
        totals.append(nats)
    assert loss.minimised.item() == pytest.approx(sum(totals))
    assert loss.nats.item() == pytest.approx(sum(totals) / 2)
    tokens = sum(len(text) + 1 for text in texts)
    found = objective.figures()
    assert [found["forward_loss"], found["backward_loss"]] == pytest.approx(
        [nats / tokens for nats in totals]
    )
    parts = portions(len(batch.tokens), 2, 0, 1)
    pieces = [objective(part.of(batch), None, StepProgress(0, 0.0)) for part in parts]
    assert sum(piece.minimised.item() for piece in pieces) == pytest.approx(sum(totals))


def test_gradients_of_the_loss():
    model = elmo(hidden_size=2, num_layers=1)
    corpus = corpus_of([5, 6, 7], [8])
    shape = (2, 64, 0, False)
    batch = TwoWayBatches(
        DocumentBatches(corpus, *shape), DocumentBatches(reverse_corpus(corpus), *shape)
    ).batch(0)
    objective = Objective(model, TrainingConfig(steps=1, precision="float64"), TextRules())
    names = ["forwards.layers.0.weight_hh", "backwards.layers.0.weight_ih", "forwards.head.bias"]
    names = [f"model.{name}" for name in [*names, "forwards.embedding.weight"]]
    parameters = dict(objective.named_parameters())

    def loss(*values):
        changed = dict(zip(names, values, strict=True))
        call = (batch, None, StepProgress(0, 0.0))
        return torch.func.functional_call(objective, changed, call).minimised

    assert torch.autograd.gradcheck(
        loss, [parameters[name].detach().requires_grad_() for name in names]
    )


# ---- features --------------------------------------------------------------------------------


def test_a_mixture_of_layers_is_its_formula():
    torch.manual_seed(0)
    mix, layers = LayerMix(3).double(), torch.randn(3, 2, 4, 5, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(mix(layers), layers.mean(0))
        mix.w.copy_(torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64))
        mix.gamma.fill_(1.7)
    s = np.exp([0.3, -1.0, 2.0]) / np.exp([0.3, -1.0, 2.0]).sum()
    expected = 1.7 * sum(weight * h for weight, h in zip(s, layers.numpy(), strict=True))
    np.testing.assert_allclose(mix(layers).detach().numpy(), expected, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda w, g: torch.func.functional_call(mix, {"w": w, "gamma": g}, (layers,)),
        [mix.w.detach().requires_grad_(), mix.gamma.detach().requires_grad_()],
    )


def tagger(trunk="bag", origin=None, **settings):
    """Return a small tagger that reads the features of a model; with large random weights."""
    origin = origin or elmo()
    kind = next(
        name
        for name, row in registry.ARCHITECTURES.items()
        if row.estimator is None and type(origin) is row.load_model()
    )
    about = {"architecture": kind, "model": origin.config.to_dict(), "digest": ""}
    row = registry.for_task(trunk, "tag")
    shape = {"hidden_size": 8, "embedding_size": 6, "num_layers": 1, "num_heads": 2, "window": 16}
    known = {*row.load_config().fields(), *row.load_config().derived}
    config = {name: value for name, value in shape.items() if name in known} | settings
    config = row.load_config()(vocab_size=VOCAB, classes=3, feature_model=about, **config)
    model = row.load_model()(config).double().eval()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    model.trunk.features.load_state_dict(features_of(origin).state_dict())
    return model


def test_a_tagger_reads_the_formula():
    """Logits of the linear tagger: W [x_k; gamma sum_j s_j h_k,j] + b."""
    origin, text = elmo(), [BOS, 5, 6, 7]
    layers = layers_by_hand(origin, text)
    model = tagger(origin=origin)
    w, gamma = (t.detach().numpy() for t in (model.trunk.mix.w, model.trunk.mix.gamma))
    s = np.exp(w) / np.exp(w).sum()
    x = model.trunk.embedding.weight.detach().numpy()[text]
    read = np.concatenate([x, gamma * np.einsum("j,jkd->kd", s, layers)], 1)
    head, bias = (t.detach().numpy() for t in model.head.parameters())
    found = model(TokenSources.of([text]).rows([0]))[0].detach().numpy()
    np.testing.assert_allclose(found, read @ head.T + bias, atol=1e-12)
    told = model.layer_weights
    assert list(told) == ["layer 0", "layer 1", "layer 2", "gamma"]
    np.testing.assert_allclose(list(told.values()), [*s, *gamma])


def test_features_may_stand_beside_the_first_layers_output():
    """h_k,1 = [h->_k,1; h<-_k,1; h_LM,k] (Peters et al. 2017), by an Elman tagger."""
    origin, text = elmo(), [BOS, 5, 6, 7]
    settings = {"features_at": "first", "cell": "rnn", "embedding_size": 6}
    deep = tagger("birnn", origin, num_layers=2, **settings)
    flat = tagger("birnn", origin, **settings)
    for model in (deep, flat):
        arrays = {name: t.detach().numpy() for name, t in model.state_dict().items()}
        s = np.exp(arrays["trunk.mix.w"]) / np.exp(arrays["trunk.mix.w"]).sum()
        mixed = np.einsum("j,jkd->kd", s, layers_by_hand(origin, text))
        h_lm, x = arrays["trunk.mix.gamma"] * mixed, arrays["trunk.embedding.weight"][text]

        def layer(index, x, arrays=arrays):
            both = []
            for direction, order in enumerate((1, -1)):
                name = f"trunk.trunk.encoder.layers.{index}.{direction}."
                h, states = np.zeros(4), []
                for vector in x[::order]:
                    fed = arrays[name + "weight_ih"] @ vector + arrays[name + "weight_hh"] @ h
                    h = np.tanh(fed + arrays[name + "bias"])
                    states.append(h)
                both.append(np.array(states)[::order])
            return np.concatenate(both, 1)

        features = np.concatenate([layer(0, x), h_lm], 1)
        if model is deep:
            features = layer(1, features)
        else:  # the last state of a sentence has the features too
            _, last = model.trunk(torch.tensor([text]), [len(text)])
            ends = [features[-1, :4], features[0, 4:8], features[-1, 8:]]
            np.testing.assert_allclose(last[0].detach(), np.concatenate(ends), atol=1e-12)
        wanted = features @ arrays["head.weight"].T + arrays["head.bias"]
        found = model(TokenSources.of([text]).rows([0]))[0].detach().numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_where_features_enter_is_refused_where_it_means_nothing():
    config = registry.architecture("birnn").load_config()
    with pytest.raises(UsageError, match="residual adds up"):
        config(vocab_size=5, residual=True, features_at="first")
    row = registry.for_task("birnn", "tag")
    with pytest.raises(UsageError, match="needs --features"):
        row.load_model()(row.load_config()(vocab_size=5, classes=2, features_at="first"))


@pytest.mark.parametrize(
    ("trunk", "settings"),
    [("bag", {}), ("birnn", {}), ("birnn", {"features_at": "first"}), ("encoder", {})],
)
def test_padding_changes_nothing(trunk, settings):
    model = tagger(trunk, **settings)
    texts = [[BOS, 5, 6, 7], [BOS, 4], [BOS], [BOS, 3, 8, 4, 5, 6, 3]]
    side_by_side = model(TokenSources.of(texts).rows(range(4)))
    for number, text in enumerate(texts):
        alone = model(TokenSources.of([text]).rows([0]))[0]
        torch.testing.assert_close(side_by_side[number, : len(alone)], alone)


def test_features_are_frozen_and_no_parameters():
    model = tagger("birnn", elmo(dropout=0.5))
    kept = {name: t.clone() for name, t in model.trunk.features.state_dict().items()}
    assert kept and not list(model.trunk.features.parameters())
    assert not model.train().trunk.features.training  # no dropout there
    source = TokenSources.of([[BOS, 5, 6]]).rows([0])
    model(source).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not any(name.endswith("head.weight") for name in kept)
    count = sum(p.numel() for group in model.parameters_in_order() for p in group)
    assert count == model.parameter_count()


@needs("vectors")
def test_features_of_language_models_and_of_words():
    text = torch.tensor([[BOS, 5, 6, 7]])
    row = registry.architecture("gru")
    lm = row.load_model()(row.load_config()(vocab_size=VOCAB, hidden_size=4)).double().eval()
    expected = lm.hidden(text, None)[0]
    torch.testing.assert_close(features_of(lm)(text, [4])[0], expected)
    row = registry.architecture("word2vec")
    words = row.load_model()(row.load_config()(vocab_size=VOCAB, embedding_size=4)).eval()
    expected = words.token_vectors()[text]
    torch.testing.assert_close(features_of(words)(text, [4])[0], expected)
    with pytest.raises(UsageError, match="--features takes elmo, word vectors, or"):
        features_of(torch.nn.Linear(1, 1))


# ---- on the command line ---------------------------------------------------------------------


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(WORDS)
    return path


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "tagged.conll"
    path.write_text(SENTENCES)
    return path


def weights(name):
    return load_file(store.find(name).path / store.WEIGHTS)


@pytest.mark.slow
def test_stopping_and_resuming_changes_nothing(words, sentences, capsys):
    (whole,) = records(capsys, "train", words, *SEEDED, "--steps", 8, "--name", "whole")
    records(capsys, "train", words, *SEEDED, "--steps", 8, "--stop-after", 3, "--name", "part")
    (resumed,) = records(capsys, "train", "--resume", "part", "--quiet")
    assert resumed["val_loss"] == whole["val_loss"]
    found = {name: tensor.tobytes() for name, tensor in weights("part").items()}
    assert found == {name: tensor.tobytes() for name, tensor in weights("whole").items()}
    given = (sentences, *TAGGER, "--features", "whole", "--steps", 8)
    (one,) = records(capsys, "train", *given, "--name", "tagger")
    records(capsys, "train", *given, "--stop-after", 3, "--name", "stopped")
    (other,) = records(capsys, "train", "--resume", "stopped", "--quiet")
    assert other["val_loss"] == one["val_loss"]
    assert other["layer_weights"] == one["layer_weights"]
    before, after = weights("whole"), weights("tagger")
    kept = {name.removeprefix("trunk.features.model."): t for name, t in after.items()}
    shared = [name for name in before if ".head." not in name]
    assert shared and all(np.array_equal(kept[name], before[name]) for name in shared)


@pytest.mark.slow
def test_perplexity_of_each_direction(words, tmp_path, capsys):
    (trained,) = records(capsys, "train", words, *SEEDED, "--steps", 30, "--name", "e")
    assert trained["val_bits_per_char"] is None and trained["sample"] is None
    there, back = records(capsys, "perplexity", "-m", "e", "--quiet")
    assert (there["model"], back["model"]) == ("e:forward", "e:backward")
    both = {"forward": there["perplexity"], "backward": back["perplexity"]}
    assert trained["val_perplexities"] == pytest.approx(both)
    nats = there["nats_per_token"] + back["nats_per_token"]
    assert trained["val_loss"] == pytest.approx(nats / 2)
    assert back["protocol"].startswith("each line alone, EOS scored, from right to left")
    assert there["signature"] != back["signature"]
    # The backward direction knows which word follows "the", and the forward one what "the" is.
    assert run(["perplexity", "-m", "e", "--quiet"]) == 0
    assert "e:backward" in capsys.readouterr().out
    (lines,) = [records(capsys, "perplexity", words, "-m", "e", "--per-line", "--quiet")]
    assert len(lines) == 60 and set(lines[0]["bits"]) == {"e:forward", "e:backward"}
    line = refusal(capsys, "perplexity", "-m", "e", "--precision", "int8", "--quiet")
    assert "--precision int8 is for transformers and recurrent models of text" in line


def test_a_tagger_works_without_the_model_of_its_features(words, sentences, capsys, tmp_path):
    records(capsys, "train", words, *SEEDED, "--steps", 2, "--name", "e")
    (made,) = records(
        capsys, "train", sentences, *TAGGER, "--features", "e", "--steps", 5, "--name", "t"
    )
    assert made["architecture"] == "birnn-tagger"
    mixed = made["layer_weights"]
    assert sum(value for name, value in mixed.items() if name != "gamma") == pytest.approx(1)
    assert run(["models", "show", "t"]) == 0
    assert f"e: layer 0 {mixed['layer 0']:.4f}, layer 1" in capsys.readouterr().out
    shutil.rmtree(store.find("e").path)
    elsewhere = shutil.move(store.find("t").path, tmp_path / "elsewhere")
    (found,) = records(capsys, "eval", "-m", elsewhere, "--quiet")
    assert found["nats_per_label"] == pytest.approx(made["val_loss"])
    again = ("--init-from", elsewhere, "--steps", 1, "--lr", "1e-9", "--seed", 1, "--quiet")
    (further,) = records(capsys, "train", sentences, *again, "--name", "again")
    assert further["layer_weights"] == pytest.approx(mixed)
    assert further["val_loss"] == pytest.approx(made["val_loss"], rel=1e-5)


@pytest.mark.fast_for("word2vec-*", "lstm-*")
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        pytest.param("word2vec", ("embedding_size=4",), marks=needs("vectors")),
        pytest.param("glove", ("embedding_size=4",), marks=needs("vectors")),
        ("lstm", ("hidden_size=4",)),
        ("transformer", ("hidden_size=8", "num_heads=2", "seq_len=16")),
    ],
)
def test_features_of_other_models(kind, shape, words, sentences, capsys):
    shape = [part for setting in shape for part in ("--set", setting)]
    how = (*shape, "--tokenizer", "whitespace", "--steps", 2, "--seed", 1, "--quiet")
    records(capsys, "train", words, "--model", kind, *how, "--name", "m")
    given = ("--features", "m", "--model", "bag", "--task", "tag", "--seed", 1, "--quiet")
    (found,) = records(capsys, "train", sentences, *given, "--steps", 2, "--name", "t")
    assert len(found["layer_weights"]) == 2 and next(iter(found["layer_weights"].values())) == 1
    settings = store.find("t").config["data"]
    assert settings["max_source_len"] == (15 if kind == "transformer" else 512)


@pytest.mark.slow
def test_what_makes_no_sense_is_refused(words, sentences, tmp_path, capsys):
    records(capsys, "train", words, *SEEDED, "--steps", 1, "--name", "e")
    tiny = ("--set", "hidden_size=4", "--tokenizer", "whitespace", "--steps", 1, "--quiet")
    tiny = (*tiny, "--documents", "line", "--seed", 1)
    records(capsys, "train", words, "--direction", "backward", *tiny, "--name", "b")
    records(capsys, "train", words, *tiny, "--name", "l")
    records(capsys, "train", words, "--model", "ngram", "--tokenizer", "whitespace", "--name", "n")
    given = (sentences, "--task", "tag", "--steps", 1)
    for arguments, said in {
        ("sample", "-m", "e"): "e reads a text from both of its ends and writes none",
        ("perplexity", "-m", "e", "--per-token"): "writes none: use seqgen train --features",
        ("train", words, "--features", "e"): "--features is for classifiers and taggers",
        ("train", *given, "--features", "n"): "n is of the architecture ngram",
        ("train", *given, "--features", "b"): "b reads from right to left",
        ("train", *given, "--features", "nobody"): "nobody",
        ("train", *given, "--features", "e", "--model", "lstm"): "and not for lstm",
        ("train", *given, "--features", "e", "--init-from", "l"): "give --init-from or --features",
        ("train", *given, "--features", "e", "--tokenizer", "char"): "fixed by --features: e has",
        ("train", *given, "--model", "elmo"): "neither; try --model birnn with --features",
        ("train", words, *SEEDED, "--set", "pointer=3"): "elmo has no pointer",
        ("train", words, *SEEDED, "--set", "input=onehot"): "elmo has no input=onehot",
        (
            "train",
            words,
            *SEEDED,
            "--set",
            "embedding_size=3",
        ): "embedding_size and last_size must be 6",
        ("train", words, *SEEDED, "--tokenizer", "char"): "input=char-cnn is for words",
        ("train", words, *SEEDED, "--direction", "backward"): "elmo learns from a text from both",
        ("train", words, *SEEDED, "--regime", "scheduled"): "is for language models; elmo is none",
    }.items():
        assert said in refusal(capsys, *arguments), arguments


@pytest.mark.long
def test_with_few_sentences_elmos_features_beat_plain_embeddings(tmp_path, capsys):
    """Fifty tagged sentences; the words of the others are read without their tags."""
    blocks = (CORPORA / "tags.tsv").read_text().strip().split("\n\n")
    lines = (" ".join(row.split("\t")[0] for row in b.split("\n")) for b in blocks[:2000])
    (tmp_path / "words.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "few.conll").write_text("\n\n".join(blocks[:50]) + "\n")
    (tmp_path / "test.conll").write_text("\n\n".join(blocks[3500:]) + "\n")
    how = ("--hidden-size", 32, "--set", "char_filters=4", "--epochs", 8, "--seed", 1, "--quiet")
    records(capsys, "train", tmp_path / "words.txt", "--model", "elmo", *how, "--name", "e")
    given = ("--task", "tag", "--val", tmp_path / "test.conll", "--hidden-size", 32, "--seed", 1)
    given = (tmp_path / "few.conll", *given, "--steps", 100, "--quiet")
    (plain,) = records(capsys, "train", *given, "--name", "plain")
    (featured,) = records(capsys, "train", *given, "--features", "e", "--name", "featured")
    assert featured["val_accuracy"] > plain["val_accuracy"] + 0.03
