"""Classifiers and taggers: figures against references, parts against their definitions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from places import CORPORA
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, f1_score

from seqgen import registry
from seqgen.errors import SeqgenError, UsageError
from seqgen.plugins.labels.classification import (
    confusion,
    entities,
    estimated,
    macro_f1,
    mcnemar,
    resampled,
)
from seqgen.plugins.labels.examples import (
    SENTENCES,
    Example,
    ExampleEncoder,
    SentenceReader,
    TextReader,
)
from seqgen.text.labels import Classes
from seqgen.text.sources import TokenSources
from seqgen.text.tokenizers import KINDS

TRUNKS = [
    name
    for name, row in registry.ARCHITECTURES.items()
    if set(registry.ON_FEATURES) <= {*row.tasks} and name != "bert"
]
VOCAB, CLASSES = 9, 3
TINY = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "window": 8, "embedding_size": 8}


def labeller(trunk, task, **settings):
    """Return a small model on a trunk, with large random weights, in float64."""
    row = registry.for_task(trunk, task)
    known = {*row.load_config().fields(), *row.load_config().derived}
    config = {name: value for name, value in TINY.items() if name in known} | settings
    model = row.load_model()(row.load_config()(vocab_size=VOCAB, classes=CLASSES, **config))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return model.double().eval()


def random_labels(seed, size=400, classes=5):
    """Return true labels and told ones, of which one is never there."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes - 1, size)
    return truth, np.where(random.random(size) < 0.6, truth, random.integers(0, classes, size))


# ---- figures ---------------------------------------------------------------------------------


def test_confusion_and_macro_f1_are_scikit_learns():
    truth, told = random_labels(0)
    found = confusion(truth, told, 5)
    np.testing.assert_array_equal(found, confusion_matrix(truth, told, labels=range(5)))
    own = macro_f1(found.diagonal(), found.sum(0), found.sum(1))
    assert own == pytest.approx(f1_score(truth, told, average="macro"))
    # A label that is neither there nor told does not count.
    wider = confusion(truth, told, 7)
    assert macro_f1(wider.diagonal(), wider.sum(0), wider.sum(1)) == pytest.approx(own)


@pytest.mark.parametrize("prefixes", ["BI", "I", "BIES"])
def test_entities_are_seqevals(prefixes):
    from seqeval.metrics.sequence_labeling import get_entities

    random = np.random.default_rng(3)
    tags = ["O", *(f"{p}-{kind}" for p in prefixes for kind in ("PER", "LOC")), prefixes[0]]
    for _ in range(300):
        sentence = random.choice(tags, random.integers(1, 12)).tolist()
        theirs = {(kind, a, b + 1) for kind, a, b in get_entities(sentence)}
        assert {(kind or "_", a, b) for kind, a, b in entities(sentence)} == theirs


def test_the_bootstrap_has_the_binomials_spread():
    hits = np.random.default_rng(1).random(900) < 0.7
    samples = resampled(hits[:, None].astype(float))[:, 0] / 900
    assert samples.std() == pytest.approx(np.sqrt(hits.mean() * (1 - hits.mean()) / 900), rel=0.1)
    found = estimated(hits.mean(), samples)
    assert found.low < hits.mean() < found.high
    many = np.random.default_rng(1).random((5000, 1)) < 0.7
    grouped = resampled(many.astype(float))[:, 0] / 5000
    assert grouped.mean() == pytest.approx(many.mean(), abs=2e-3)
    assert grouped.std() == pytest.approx(np.sqrt(0.21 / 5000), rel=0.15)


@pytest.mark.parametrize(("one", "other"), [(0, 0), (0, 3), (5, 2), (7, 7), (40, 90), (900, 1100)])
def test_mcnemars_test_is_the_binomial(one, other):
    exact = binomtest(one, one + other).pvalue if one + other else 1
    assert mcnemar(one, other) == mcnemar(other, one) == pytest.approx(exact, rel=1e-9)


# ---- reading and encoding --------------------------------------------------------------------


def test_what_has_come_is_read_before_more_is_waited_for():
    def pieces():
        yield "Rossi\tItalian\nIva"
        raise AssertionError("nothing else is needed yet")

    batches = TextReader("names").batches(pieces())
    assert next(batches) == [Example(("Rossi",), ("Italian",), 1)]


def test_sentences_in_columns():
    text = "\nthe x DET\r\nfish x NOUN\n\n\nswim x VERB\n"
    found = [example for batch in SentenceReader("f").batches([text]) for example in batch]
    assert found == [Example(("the", "fish"), ("DET", "NOUN"), 2), Example(("swim",), ("VERB",), 6)]
    spaced = SentenceReader("f").batches(["New York\tplace\n"])
    assert [one.words for batch in spaced for one in batch] == [("New York",)]


@pytest.mark.parametrize(
    ("reader", "text", "said"),
    [
        (TextReader, "a\tx\nb x\n", "f, line 2 has no tab; each line is text<TAB>label"),
        (TextReader, "a\tx\n\tx\n", "f, line 2 is an empty text"),
        (TextReader, "a\t \n", "f, line 1 has no label after its tab"),
        (SentenceReader, "a x\n\nb\n", "f, line 3 has one column"),
        (SentenceReader, "a x\nb y z\n", "f, line 2 has 3 columns, and the first has 2"),
    ],
)
def test_lines_that_are_no_example_are_named(reader, text, said):
    with pytest.raises(SeqgenError) as error:
        list(reader("f").batches([text]))
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("kind", ["char", "byte", "word", "whitespace", "bpe"])
def test_a_tag_stands_at_the_last_token_of_its_word(kind):
    words = ("don't", "stop", "(", "élan", "ab,cd", "x")
    text = " ".join(words)
    tokenizer = KINDS[kind].train([f"{text}\n" * 20], 290 if kind == "bpe" else None)
    encoder = ExampleEncoder(SENTENCES, tokenizer, Classes(("A", "B")), tokenizer.bos_id)
    example = Example(words, ("A",) * len(words), 1)
    ids, places = encoder.ids(example), encoder.places(example)
    assert ids[0] == tokenizer.bos_id
    for number, place in enumerate(places.tolist()):
        assert tokenizer.decode(ids[1 : place + 1]) == " ".join(words[: number + 1])


def test_a_tag_stands_at_the_last_uncased_token_of_its_word():
    words = ("Don't", "(", "ab,CD", "x")  # the third is three tokens
    tokenizer = KINDS["uncased"].train([f"{' '.join(words)}\n"])
    encoder = ExampleEncoder(SENTENCES, tokenizer, Classes(("A", "B")), tokenizer.bos_id)
    example = Example(words, ("A",) * len(words), 1)
    assert tokenizer.pieces(encoder.ids(example)[1:]) == ["don't", "(", "ab", ",", "cd", "x"]
    assert encoder.places(example).tolist() == [1, 2, 5, 6]


def test_targets_stand_where_words_end():
    tokenizer = KINDS["char"].train(["ab c\n"])
    encoder = ExampleEncoder(SENTENCES, tokenizer, Classes(("N", "V")), tokenizer.bos_id)
    corpus = encoder.corpus([Example(("ab", "c"), ("V", "N"), 1)], "f")
    assert corpus.tokens.tolist() == [2, 2, 1, 2, 0]
    with pytest.raises(SeqgenError, match=r"f, line 8: unknown label .W. .there are N, V"):
        encoder.corpus([Example(("ab", "c"), ("V", "W"), 7)], "f")


# ---- models ----------------------------------------------------------------------------------


@pytest.mark.fast_for("*-classify", "lstm-tag", "birnn-tag", "encoder-tag", rest="slow")
@pytest.mark.parametrize("task", [task.name for task in registry.ON_FEATURES])
@pytest.mark.parametrize("trunk", TRUNKS)
def test_padding_changes_nothing(trunk, task):
    model = labeller(trunk, task, pooling="all")
    texts = [[1, 5, 6, 7], [1, 4], [1], [1, 3, 8, 4, 5, 6, 3]]
    side_by_side = model(TokenSources.of(texts).rows(range(4)))
    for number, text in enumerate(texts):
        alone = model(TokenSources.of([text]).rows([0]))[0]
        torch.testing.assert_close(side_by_side[number, : len(alone)], alone)


def test_bag_is_linear_in_counts():
    model = labeller("bag", "classify")
    v, w, b = (t.detach().numpy() for t in (model.trunk.embedding.weight, *model.head.parameters()))
    text = [1, 4, 4, 7]
    counts = np.bincount(text[1:], minlength=VOCAB)
    found = model(TokenSources.of([text]).rows([0]))[0, 0].detach().numpy()
    np.testing.assert_allclose(found, w @ (counts @ v) / 3 + b)


@pytest.mark.parametrize("text", [[1, 4, 4, 7, 5], [1, 6, 3], [1, 8], [1]])
def test_a_bag_of_ngrams_is_the_mean_of_all_vectors(text):
    """Joulin et al. (2017): tokens and hashed n-grams, each counted as often as it occurs."""
    model = labeller("bag", "classify", ngrams=3, buckets=11)
    v, of_ngrams, w, b = (
        t.detach().numpy()
        for t in (
            model.trunk.embedding.weight,
            model.trunk.of_ngrams.weight,
            *model.head.parameters(),
        )
    )
    words = text[1:]
    vectors = [v[word] for word in words]
    for n in (2, 3):
        for at in range(len(words) - n + 1):
            number = 0
            for word in words[at : at + n]:
                number = number * 116049371 + word
            number = (number + 2**63) % 2**64 - 2**63
            vectors.append(of_ngrams[(number ^ (number >> 15)) % 11])
    mean = np.mean(vectors or [v[1]], axis=0)
    padded = model(TokenSources.of([text, [1, 3, 8, 4, 5, 6, 3]]).rows([0, 1]))
    np.testing.assert_allclose(padded[0, 0].detach().numpy(), w @ mean + b)


@pytest.mark.parametrize("text", ["abc a", "a", "", " ab  c ", "cab\tab"])
def test_ngrams_within_words_are_those_of_each_word_and_its_ends(text):
    """Bojanowski et al. (2017), section 3.2: < and > stand around each word, here one symbol."""
    alphabet = [" ", "\t", *"abc"]
    model = labeller("bag", "classify", ngrams=4, buckets=13, within_words=True)
    model.spell(["<pad>", "<start>", "<end>", *alphabet, "z"], spelled_out=True)
    of_tokens, of_ngrams = model.trunk.embedding.weight, model.trunk.of_ngrams.weight
    ids = [3 + alphabet.index(letter) for letter in text]
    vectors = [of_tokens[i] for i in ids]
    for word in text.split():
        marked = [VOCAB, *(3 + alphabet.index(letter) for letter in word), VOCAB]
        for n in (2, 3, 4):
            for at in range(len(marked) - n + 1):
                number = 0
                for token in marked[at : at + n]:
                    number = number * 116049371 + token
                number = (number + 2**63) % 2**64 - 2**63
                vectors.append(of_ngrams[(number ^ (number >> 15)) % 13])
    mean = torch.stack(vectors or [of_tokens[1]]).mean(0)
    both = TokenSources.of([[1, *ids], [1, 5, 3, 6, 7, 4, 5, 5, 6, 3, 3]]).rows([0, 1])
    torch.testing.assert_close(model(both)[0, 0], model.head(mean))


def test_ngrams_within_words_are_of_characters():
    with pytest.raises(UsageError, match="add --tokenizer char"):
        labeller("bag", "classify", ngrams=2, within_words=True).spell(["a"] * VOCAB, False)
    with pytest.raises(UsageError, match="needs ngrams"):
        labeller("bag", "classify", within_words=True)


def test_ngrams_have_the_width_of_joulin_et_al():
    """Ten hidden units (their section 3.1)."""
    config = registry.for_task("bag", "classify").load_config()
    made = [config(vocab_size=9, classes=3, ngrams=n).embedding_size for n in (1, 2)]
    assert made == [100, 10]


@pytest.mark.parametrize("trunk", ["birnn", "gru", "encoder"])
def test_pooling_by_its_definition(trunk):
    text = [1, 4, 4, 7, 2]
    source = TokenSources.of([text, [1, 2]]).rows([0, 1])
    model = labeller(trunk, "classify", pooling="all")
    features, last = model.trunk(torch.tensor([text]), [5])
    f = features[0].detach().numpy()
    pooled = np.concatenate([last[0].detach().numpy(), f[1:].max(0), f[1:].mean(0)])
    w, b = (t.detach().numpy() for t in model.head.parameters())
    np.testing.assert_allclose(model(source)[0, 0].detach().numpy(), w @ pooled + b)
    if trunk == "birnn":  # its last state: forward at the end, backward at the beginning
        np.testing.assert_allclose(last[0].detach(), np.r_[f[4, :4], f[0, 4:]])
    else:
        np.testing.assert_allclose(last[0].detach(), f[4])


def test_bidirectional_layers_are_torchs():
    """[h->; h<-] of two LSTMs that read the sentence from both ends."""
    model = labeller("birnn", "tag", num_layers=1)
    forward, backward = model.trunk.encoder.layers[0]
    text = torch.tensor([[1, 5, 2, 8]])
    x = model.trunk.embedding(text)
    there = forward.sequence(x, forward.start(1))[0]
    back = backward.sequence(x.flip(1), backward.start(1))[0].flip(1)
    features, _ = model.trunk(text, [4])
    torch.testing.assert_close(features, torch.cat([there, back], -1))


@pytest.mark.parametrize(("trunk", "sees"), [("lstm", False), ("birnn", True), ("encoder", True)])
def test_who_sees_what_comes_after(trunk, sees):
    model = labeller(trunk, "tag", num_layers=1)
    one, other = (TokenSources.of([[1, 5, 6, end]]).rows([0]) for end in (7, 8))
    same = torch.equal(model(one)[0, :3], model(other)[0, :3])
    assert same is not sees


@pytest.mark.parametrize("trunk", TRUNKS)
def test_every_parameter_has_its_layer_and_the_head_is_last(trunk):
    model = labeller(trunk, "tag")
    groups = model.parameters_in_order()
    assert sorted(map(id, (p for group in groups for p in group))) == sorted(
        map(id, model.parameters())
    )
    assert set(groups[-1]) == set(model.head.parameters())
    assert all(p.requires_grad for p in model.parameters())


def test_the_trunk_of_a_language_model_is_that_model():
    """Its weights are taken over, and its features are those that its head read."""
    row = registry.architecture("lstm")
    config = {"vocab_size": VOCAB, "hidden_size": 8}
    origin = row.load_model()(row.load_config()(**config)).double().eval()
    model = labeller("lstm", "tag")
    model.begin_from(origin, same_labels=False)
    tokens = torch.tensor([[1, 5, 6]])
    torch.testing.assert_close(model.trunk(tokens, [3])[0], origin.hidden(tokens, None)[0])
    again = labeller("lstm", "tag")
    with torch.no_grad():
        model.head.weight.zero_()
    again.begin_from(model, same_labels=True)
    assert not again.head.weight.any()


def test_architectures_by_name():
    assert registry.architecture("lstm-tagger") == registry.for_task("lstm", "tag")
    assert registry.for_task("lstm-tagger", "classify").name == "lstm-classifier"
    assert registry.architecture("bag-classifier").task.model_is.startswith("is a classifier")


# ---- the corpus ------------------------------------------------------------------------------


def test_the_script_gives_the_same_bytes():
    command = [sys.executable, str(CORPORA / "tags.py")]
    made = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    assert made == (CORPORA / "tags.tsv").read_bytes()
