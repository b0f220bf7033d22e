"""BERT: what is read and hidden, the model beside that of transformers, pseudo-scores."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from known_models import loaded_as

from seqgen.errors import UsageError
from seqgen.hashing import uniforms
from seqgen.plugins.labels.masking import (
    CHOSEN,
    FATE,
    MASKING,
    WORD,
    MaskDraws,
    Symbols,
    choose,
    each_hidden,
    framed,
    joined,
    masked,
)
from seqgen.plugins.labels.models.bert import Bert, BertConfig
from seqgen.plugins.labels.pseudo_perplexity import masked_loss, pseudo_log_probs, pseudo_scores
from seqgen.presets import preset
from seqgen.registry import architecture
from seqgen.scoring.loop import add_up
from seqgen.scoring.passages import tokenize_passages
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import IGNORED, Batch, portions
from seqgen.text.corpus import Corpus
from seqgen.text.sources import Source
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.training.objective import Objective
from seqgen.training.regimes.base import StepProgress, TextRules

VOCAB = 11
EXACT = {"rtol": 0, "atol": 1e-12}
FORMS = {
    "bert": {},
    "order": {"next_sentence": True},
    "modern": {"positions": "rope", "norm": "rmsnorm", "norm_position": "pre", "bias": False},
    "untied": {"tie_weights": False, "positions": "sinusoidal", "activation": "swiglu"},
}


def loud(**settings) -> Bert:
    """Return a tiny model in float64 with large random weights."""
    shape = {"hidden_size": 8, "num_heads": 2, "num_layers": 2, "dropout": 0.0, "window": 9}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Bert(BertConfig(vocab_size=VOCAB, **{**shape, **settings})).double()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0, 0.4)
    return model.eval()


def text(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(4, VOCAB, shape)


def rows_of(*texts: list[int]):
    lengths = np.array([len(row) for row in texts])
    padded = np.zeros((len(texts), lengths.max()), np.int64)
    for row, ids in zip(padded, texts, strict=True):
        row[: len(ids)] = ids
    return framed(padded, lengths, Symbols.after(VOCAB))


# What is read.


def test_rows_by_hand():
    cls, sep, mask = Symbols.after(VOCAB)
    rows = rows_of([5, 6, 7], [8])
    assert rows.values.tolist() == [[cls, 5, 6, 7, sep], [cls, 8, sep, sep, sep]]
    assert rows.lengths.tolist() == [5, 3]
    assert rows.text.sum(1).tolist() == [3, 1]
    read = masked(rows, np.array([[1, 3], [1, -1]]), Symbols.after(VOCAB))
    assert read.values.tolist() == [[cls, mask, 6, mask, sep], [cls, mask, sep, sep, sep]]
    assert read.targets.tolist() == [[5, 7], [8, IGNORED]]
    alone = each_hidden([5, 6], Symbols.after(VOCAB))
    assert alone.values.tolist() == [[cls, mask, 6, sep], [cls, 5, mask, sep]]
    assert alone.places.tolist() == [[1], [2]] and alone.targets.tolist() == [[5], [6]]


def test_two_parts_by_hand():
    cls, sep, _ = symbols = Symbols.after(VOCAB)
    windows = rows_of([4, 5, 6, 7], [4, 5, 6, 7])
    following = np.array([[4, 5, 6, 7], [8, 9, 10, 8]])
    rows = joined(windows, np.array([1, 2]), following, symbols)
    assert rows.values.tolist() == [[cls, 4, sep, 5, 6, sep], [cls, 4, 5, sep, 10, sep]]
    assert np.flatnonzero(rows.text[0]).tolist() == [1, 3, 4]
    assert np.flatnonzero(rows.text[1]).tolist() == [1, 2, 4]
    segments = loud().encoder.segments(torch.from_numpy(rows.values))
    assert segments.tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]]


@pytest.mark.parametrize("share", [0.05, 0.15, 0.5, 1.0])
def test_how_many_places_are_drawn(share):
    texts = [list(text(n, seed=n)) for n in (20, 1, 7, 3)]
    rows = rows_of(*texts)
    places = choose(rows, share, MaskDraws(seed=3, step=5))
    for row, ids, inside in zip(places, texts, rows.text, strict=True):
        there = row[row >= 0]
        assert len(there) == len(set(there)) == max(1, math.floor(share * len(ids) + 0.5))
        assert inside[there].all() and (np.diff(there) > 0).all()


def test_the_draws_are_the_hash_of_seed_step_row_and_place():
    """A transcription, place by place: the smallest numbers are chosen, then their fate."""
    symbols, words = Symbols.after(VOCAB), np.arange(4, VOCAB)
    ids = text(3, 10)
    rows = framed(ids, np.array([10, 10, 10]), symbols)
    draws = MaskDraws(seed=7, step=2, first_row=40)
    read = masked(rows, choose(rows, 0.4, draws), symbols, words, draws)
    for number, row in enumerate(ids):

        def draw(place, what, number=number):
            return float(uniforms(MASKING, 7, 2, 40 + number, place, what))

        chosen = sorted(sorted(range(1, 11), key=lambda place: draw(place, CHOSEN))[:4])
        expected = [symbols.cls, *row.tolist(), symbols.sep]
        assert read.places[number].tolist() == chosen
        assert read.targets[number].tolist() == [expected[place] for place in chosen]
        for place in chosen:
            if draw(place, FATE) < 0.8:
                expected[place] = symbols.mask
            elif draw(place, FATE) < 0.9:
                expected[place] = int(words[int(draw(place, WORD) * words.size)])
        assert read.values[number].tolist() == expected


def test_eight_ninths_and_a_tenth():
    """Of 60,000 drawn places 80 % are hidden, 10 % hold a random token, 10 % the real one."""
    symbols = Symbols.after(1000)
    ids = np.full((200, 2000), 999)
    rows = framed(ids, np.full(200, 2000), symbols)
    draws = MaskDraws(1, 1)
    places = choose(rows, 0.15, draws)
    read = masked(rows, places, symbols, np.arange(999), draws)
    at = np.take_along_axis(read.values, places, 1)
    shares = [(at == symbols.mask).mean(), (at < 999).mean(), (at == 999).mean()]
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.005)
    assert len(np.unique(at[at < 999])) > 950  # all tokens, evenly
    others = np.ones(read.values.shape, bool)
    np.put_along_axis(others, places, False, 1)
    np.testing.assert_array_equal(read.values[others], rows.values[others])


# The model.


def weights_for_transformers(model: Bert) -> dict[str, torch.Tensor]:
    ours, theirs = model.state_dict(), {}
    whole = {
        "bert.embeddings.word_embeddings": "encoder.inputs",
        "bert.embeddings.position_embeddings": "encoder.position_embedding",
        "bert.embeddings.token_type_embeddings": "encoder.segment_embedding",
        "bert.embeddings.LayerNorm": "encoder.embedding_norm",
        "bert.pooler.dense": "pooler",
        "cls.seq_relationship": "next_sentence",
        "cls.predictions.transform.dense": "transform",
        "cls.predictions.transform.LayerNorm": "transform_norm",
        "cls.predictions.decoder": "head",
    }
    for i in range(model.config.num_layers):
        there, here = f"bert.encoder.layer.{i}.", f"encoder.blocks.{i}."
        whole |= {
            there + "attention.output.dense": here + "attention.output",
            there + "attention.output.LayerNorm": here + "attention_norm",
            there + "intermediate.dense": here + "feed_forward.inner",
            there + "output.dense": here + "feed_forward.output",
            there + "output.LayerNorm": here + "feed_forward_norm",
        }
        for kind in ("weight", "bias"):
            parts = ours[f"{here}attention.query_key_value.{kind}"].chunk(3)
            for name, part in zip(("query", "key", "value"), parts, strict=True):
                theirs[f"{there}attention.self.{name}.{kind}"] = part
    for name, own in whole.items():
        for kind in ("weight", "bias"):
            if f"{own}.{kind}" in ours:
                theirs[f"{name}.{kind}"] = ours[f"{own}.{kind}"]
    theirs["cls.predictions.bias"] = ours["head.bias"]
    return theirs


def in_transformers(model: Bert) -> torch.nn.Module:
    """Return `BertForMaskedLM`, or with next_sentence `BertForPreTraining`, with our weights."""
    transformers = pytest.importorskip("transformers")
    shape = transformers.BertConfig(
        vocab_size=VOCAB + 3,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=model.config.window + 2,
        layer_norm_eps=1e-12,
        attn_implementation="eager",
    )
    order = model.config.next_sentence
    kind = transformers.BertForPreTraining if order else transformers.BertForMaskedLM
    theirs = kind(shape).double().eval()
    theirs.load_state_dict(weights_for_transformers(model), strict=True)
    return theirs


@pytest.mark.parametrize("order", [False, True])
def test_the_weights_give_the_same_in_transformers(order):
    model = loud(next_sentence=order)
    theirs = in_transformers(model)
    symbols = model.config.symbols
    windows = rows_of(*text(2, 9).tolist())
    rows = joined(windows, np.array([2, 5]), text(2, 9, seed=1), symbols)
    lengths = [11, 6]
    values = torch.from_numpy(rows.values)
    there = torch.arange(11) < torch.tensor(lengths)[:, None]
    segments = model.encoder.segments(values)
    with torch.no_grad():
        expected = theirs(input_ids=values, attention_mask=there.long(), token_type_ids=segments)
        logits, follows = model(values, lengths, torch.arange(11).expand(2, 11))
    told = expected.prediction_logits if order else expected.logits
    torch.testing.assert_close(logits[there], told[there], **EXACT)
    if order:
        torch.testing.assert_close(follows, expected.seq_relationship_logits, **EXACT)
    else:
        assert follows is None


LETTERS = CharTokenizer("abcdef")


@pytest.mark.parametrize(
    ("given", "word", "read", "places"),
    [
        ("fabcd", "ab", "fabcd", [2, 3]),
        ("fabcda", "a", "fabcda", [6]),
        ("abcdefabcdefabcdef", "fa", "bcdefabcd", [5, 6]),  # nine fit, around the last of two
        ("abcdefffffffffff", "a", "abcdeffff", [1]),
        ("ffffffffffffffab", "b", "fffffffab", [9]),
        ("cab\nabcd\n", "ca", "cab", [1, 2]),  # lines: without its end, which is no token
        ("cab\n\n", "b", "cab", [3]),
    ],
)
def test_heads_read_what_they_read_in_transformers(given, word, read, places):
    attended = pytest.importorskip("seqgen.plugins.inspect.heads").attended
    model = loud()
    documents = "line" if "\n" in given else "stream"
    found = tokenize_passages(loaded_as(model, LETTERS, documents), [given], 100)
    cls, sep, _ = model.config.symbols
    ids = torch.tensor([[cls, *LETTERS.encode(read), sep]])
    with torch.no_grad():
        theirs = in_transformers(model)(input_ids=ids, output_attentions=True).attentions
    for layer, head in itertools.product(range(2), range(2)):
        seen = attended(found, layer, [head], word)
        (weights,), (figures,) = seen.words, seen.heads
        assert weights.pieces == ["[CLS]", *read, "[SEP]"] and weights.texts == ["", *read, ""]
        assert weights.word_places == places
        expected = theirs[layer][0, head].numpy()
        np.testing.assert_allclose(weights.weights, expected[places].mean(0), rtol=1e-9)
        entropies = -(expected * np.log(expected)).sum(-1)
        assert figures.entropy == pytest.approx(entropies.mean(), rel=1e-9)
        assert figures.entropy_uniform == pytest.approx(math.log(len(read) + 2))
        ended = documents == "line" or len(given) == len(read)
        assert seen.cut == (0 if ended else len(given) - 9)


def test_an_empty_line_is_its_symbols():
    attended = pytest.importorskip("seqgen.plugins.inspect.heads").attended
    found = tokenize_passages(loaded_as(loud(), LETTERS, "line"), ["\nab\n"], 100)
    heads = attended(found, None, None, None).heads
    assert [(h.layer, h.head) for h in heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert heads[0].entropy_uniform == pytest.approx(math.log(2))


@pytest.mark.parametrize("form", [*FORMS, "grouped"])
def test_the_weights_of_heads_lead_to_the_features_that_the_model_has(form):
    model = loud(**FORMS.get(form, {"num_kv_heads": 1, "scale_attention": False}))
    rows = torch.from_numpy(rows_of([5, 6, 7, 8, 9]).values)
    figures = pytest.importorskip("seqgen.plugins.inspect.attention_figures")
    found = figures.attention_weights(model, rows)

    def attend(layer, q, k, v):
        return torch.from_numpy(found[layer])[None] @ v.expand_as(q)

    with torch.no_grad():
        features = model.features(rows, [7])
        torch.testing.assert_close(model.features_by(rows, attend), features, **EXACT)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_hidden_cannot_be_seen(form):
    """Whatever token is hidden, the prediction of it and of all other places is the same."""
    model = loud(**FORMS[form])
    found = []
    for token in (4, 10):
        rows = rows_of([5, 6, token, 7, 8], [9, token, 4])
        read = masked(rows, np.array([[3], [2]]), model.config.symbols)
        with torch.no_grad():
            values, places = torch.from_numpy(read.values), torch.arange(5).expand(2, 5)
            found.append(model(values, read.lengths, places)[0])
        assert read.targets.tolist() == [[token], [token]]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    # What is not hidden can.
    with torch.no_grad():
        rows = rows_of([5, 6, 4, 7, 8], [9, 4, 5])
        read = masked(rows, np.array([[3], [2]]), model.config.symbols)
        other, _ = model(torch.from_numpy(read.values), read.lengths, places)
    assert not torch.allclose(other[1], found[0][1])


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_nothing(form):
    model = loud(**FORMS[form])
    short, long = [5, 6, 7], [8, 9, 4, 5, 6, 7, 8]
    rows = rows_of(short, long)
    places = torch.tensor([[1, 2], [3, 7]])
    with torch.no_grad():
        both, order = model(torch.from_numpy(rows.values), rows.lengths.tolist(), places)
        rows.values[0, 5:] = text(4)  # what stands in the padding is of no account
        again, _ = model(torch.from_numpy(rows.values), rows.lengths.tolist(), places)
        alone, alone_order = model(torch.from_numpy(rows.values[:1, :5]), [5], places[:1])
    torch.testing.assert_close(both, again, **EXACT)
    torch.testing.assert_close(both[:1], alone, **EXACT)
    if order is not None:
        torch.testing.assert_close(order[:1], alone_order, **EXACT)


def test_both_sides_are_read():
    model = loud()
    rows = rows_of([5, 6, 7, 8, 9])
    features = [model.features(torch.from_numpy(rows.values), [7])]
    for place in (1, 5):
        changed = rows.values.copy()
        changed[0, place] = 10
        features.append(model.features(torch.from_numpy(changed), [7]))
    for other in features[1:]:
        assert not torch.allclose(features[0][0, 3], other[0, 3])


# Training.


def trained(model: Bert, end: int | None = None, **settings) -> Objective:
    config = TrainingConfig(seed=3, precision="float64", **settings)
    objective = Objective(model, config, TextRules(end=end))
    return objective.train()


def batch_of(targets: np.ndarray) -> Batch:
    return Batch(targets, targets, True, int((targets != IGNORED).sum()))


def test_the_loss_is_the_mean_over_drawn_places():
    """By a loop over rows, each alone, in the place of one call; with ends of lines left out."""
    model, end = loud(mask=0.4), 2
    targets = np.array([[5, 6, 7, 8, 2], [9, 4, 2, IGNORED, IGNORED], [2] + 4 * [IGNORED]])
    model.survey(np.arange(4, VOCAB), [0, 1, 2, 3])
    objective = trained(model, end)
    loss, nats, _ = objective(batch_of(targets), None, StepProgress(4, 0.1))
    total, draws = 0.0, MaskDraws(3, 4)
    rows = rows_of([5, 6, 7, 8], [9, 4], [])
    read = masked(rows, choose(rows, 0.4, draws), model.config.symbols, np.arange(4, VOCAB), draws)
    for i, (scored, places) in enumerate(((5, 2), (3, 1))):
        each = []
        for place, target in zip(read.places[i, :places], read.targets[i], strict=False):
            values = torch.from_numpy(read.values[i : i + 1, : read.lengths[i]])
            logits, _ = model(values, [read.lengths[i]], torch.tensor([[int(place)]]))
            each.append(-float(logits.log_softmax(-1)[0, 0, target].detach()))
        total += scored * sum(each) / len(each)
    assert float(loss.detach()) == float(nats.detach()) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("order", [False, True])
def test_parts_of_a_batch_add_up(order):
    model = loud(mask=0.3, next_sentence=order)
    model.survey(text(50, seed=4), [0, 1, 2, 3])
    batch = batch_of(text(5, 8))
    whole = trained(model)(batch, None, StepProgress(2, 0.0))
    parts = [
        trained(model)(part.of(batch), None, StepProgress(2, 0.0, part.rows.start))
        for part in portions(5, 3, 0, 1)
    ]
    for name in ("minimised", "nats"):
        found = sum(getattr(part, name) for part in parts)
        torch.testing.assert_close(found, getattr(whole, name), rtol=1e-12, atol=0)


def test_the_order_of_two_parts_is_learned_from_real_and_other_ones():
    """Half of the second parts follow in the text; the loss of both tasks adds up."""
    model = loud(next_sentence=True, mask=0.2)
    source = np.arange(4, 4 + 7 * 900) % 7 + 4  # 4 5 ... 10 4 5 ...: what follows can be told
    model.survey(source, [0, 1, 2, 3])
    begin = np.arange(400) * 3
    targets = source[begin[:, None] + np.arange(9)]
    objective = trained(model)
    loss, nats, _ = objective(batch_of(targets), None, StepProgress(0, 0.0))
    figures = objective.figures()
    assert set(figures) == {"next_sentence_loss", "next_sentence_accuracy"}
    expected = float(nats.detach()) + targets.size * figures["next_sentence_loss"]
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)
    rows, other = objective.current._with_second_part(
        _rows(targets), framed(targets, np.full(400, 9), model.config.symbols), MaskDraws(3, 0)
    )
    assert 0.4 < other.mean() < 0.6
    sep = model.config.symbols.sep
    for row, from_elsewhere in zip(rows.values.tolist(), other, strict=True):
        middle = row.index(sep)
        assert 2 <= middle <= 9 - 1 and row.count(sep) == 2 and row[-1] == sep
        goes_on = row[middle + 1] == (row[middle - 1] - 3) % 7 + 4
        assert goes_on or from_elsewhere


def _rows(targets):
    from seqgen.training.regimes.base import Rows

    return Rows(batch_of(targets), torch.device("cpu"), None)


def test_next_sentences_need_a_text_that_goes_on():
    model = loud(next_sentence=True)
    with pytest.raises(UsageError, match="leave out --documents line"):
        model.survey(text(20), [0], np.array([10, 20]))
    with pytest.raises(UsageError, match="windows of at least 3 tokens"):
        loud(next_sentence=True, window=2).survey(text(20), [0])


def test_in_evaluation_all_drawn_places_are_hidden():
    model = loud(mask=1.0)
    objective = trained(model).eval()
    one, other = (objective(batch_of(text(2, 6)), None, StepProgress(s, 0.0)) for s in (0, 0))
    assert torch.equal(one.nats, other.nats)
    hidden, _ = model(
        torch.tensor([[VOCAB, *[VOCAB + 2] * 6, VOCAB + 1]]), [8], torch.arange(1, 7)[None]
    )
    expected = F.cross_entropy(
        hidden.expand(2, -1, -1).flatten(0, 1),
        torch.from_numpy(text(2, 6)).flatten(),
        reduction="sum",
    )
    torch.testing.assert_close(one.nats, expected)


# Scores.


def test_pseudo_scores_are_a_loop():
    """Each token alone is hidden, in a call of its own, in its row of the window."""
    model = loud()
    tokens = text(23, seed=5).astype(np.uint8)
    tokens[20] = 2
    corpus = Corpus(tokens, np.array([20, 21, 23]), start=1, end=2)
    totals = add_up(pseudo_scores(model, corpus), CharTokenizer("abcdefg"))
    spans = [tokens[:9], tokens[9:18], tokens[18:20], tokens[21:23]]
    cls, sep, mask = model.config.symbols
    total = correct = 0
    with torch.no_grad():
        for span in spans:
            for place, token in enumerate(span.tolist()):
                row = [cls, *span.tolist(), sep]
                row[1 + place] = mask
                places = torch.tensor([[1 + place]])
                logits, _ = model(torch.tensor([row]), [len(row)], places)
                total -= float(logits[0, 0].log_softmax(-1)[token])
                correct += int(logits[0, 0].argmax()) == token
    assert totals.tokens == 22 and totals.correct == correct
    assert totals.nll_nats == pytest.approx(total, rel=1e-12)
    assert totals.perplexity == pytest.approx(math.exp(total / 22), rel=1e-12)


def test_pieces_of_rows_change_no_score(monkeypatch):
    model, tokens = loud(), text(9)
    whole = pseudo_log_probs(model, tokens)
    monkeypatch.setattr("seqgen.plugins.labels.pseudo_perplexity.AT_ONCE", 23)
    np.testing.assert_allclose(pseudo_log_probs(model, tokens)[0], whole[0], rtol=1e-12)
    corpus = Corpus(text(60, seed=2).astype(np.uint8), np.array([60]), start=1)
    few = masked_loss(model, corpus)
    monkeypatch.setattr("seqgen.plugins.labels.pseudo_perplexity.AT_ONCE", 8192)
    assert masked_loss(model, corpus) == pytest.approx(few, rel=1e-12)


def test_held_out_places_do_not_depend_on_the_share_of_training():
    corpus = Corpus(text(60, seed=2).astype(np.uint8), np.array([60]), start=1)
    assert masked_loss(loud(mask=0.05), corpus) == masked_loss(loud(mask=0.5), corpus)
    assert masked_loss(loud(), corpus, most=1) != masked_loss(loud(), corpus)


# For --task.


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_classifier_begins_with_the_features_of_the_masked_model(task):
    origin, row = loud(), architecture("bert").for_task(task)
    config = row.load_config()(**origin.config.to_dict(), classes=3)
    labeller = row.load_model()(config).double().eval()
    labeller.begin_from(origin, same_labels=False)
    source = Source(np.array([[1, 5, 6, 7], [1, 8, 0, 0]]), np.array([4, 2]))
    features, last = labeller.trunk(torch.from_numpy(source.values), [4, 2])
    rows = rows_of([5, 6, 7], [8])
    expected = origin.features(torch.from_numpy(rows.values), [5, 3])
    torch.testing.assert_close(features[0], expected[0, :4], **EXACT)
    torch.testing.assert_close(features[1, :2], expected[1, :2], **EXACT)
    torch.testing.assert_close(last, expected[:, 0], **EXACT)
    assert labeller(source).shape == ((2, 1, 3) if task == "classify" else (2, 4, 3))


# Presets.


@pytest.mark.parametrize("name", ["bert-base", "bert-large"])
def test_the_presets_have_the_shape_of_the_paper(name):
    """As many parameters as transformers' model of the same shape, none of them allocated."""
    transformers = pytest.importorskip("transformers")
    given = preset(name).settings
    known = {k: v for k, v in given.items() if k in BertConfig.fields()}
    config = BertConfig(**{**known, "vocab_size": 30_522 - 3}, window=given["seq_len"])
    layers, size, heads = {"bert-base": (12, 768, 12), "bert-large": (24, 1024, 16)}[name]
    theirs = transformers.BertConfig(
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * size,
    )
    with torch.device("meta"):
        ours, reference = Bert(config), transformers.BertForPreTraining(theirs)
    assert ours.parameter_count() == sum(p.numel() for p in reference.parameters())
    assert (config.mask, config.next_sentence, given["batch_size"]) == (0.15, True, 256)
    assert given["warmup"] * given["steps"] == 10_000
