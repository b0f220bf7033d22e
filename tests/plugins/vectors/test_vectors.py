"""Writing from vectors: files of them, models trained on them, and commands that take them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers_cli import records, refusal
from helpers_io import quick
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import seqgen
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.scoring.perplexity import held_out_pairs, perplexity
from seqgen.store import check_removable
from seqgen.store.loading import load
from seqgen.text.pairs import VectorPairs, open_pairs
from seqgen.text.vector_files import open_vectors
from seqgen.training.resume import resume
from seqgen.training.train import train

TINY = {"hidden_size": 8, "num_layers": 1, "steps": 4, "seed": 1, "batch_size": 8}
TINY |= {"precision": "float32"}
HEADS = {"seq2seq": {}, "seq2seq-transformer": {"num_heads": 2}}
COUNT = 40


@pytest.fixture
def sides(tmp_path) -> tuple[Path, Path]:
    """Return a file of sequences of three one-hot vectors, and their letters."""
    letters = np.random.default_rng(0).integers(0, 5, (COUNT, 3))
    np.save(tmp_path / "v.npy", np.eye(5, dtype=np.float16)[letters])
    lines = ["".join("abcde"[letter] for letter in row) + "\n" for row in letters]
    (tmp_path / "t.txt").write_text("".join(lines))
    return tmp_path / "v.npy", tmp_path / "t.txt"


def trained(sides, name="t", architecture="seq2seq", **settings):
    settings = {**TINY, **HEADS[architecture], **settings}
    how = {"architecture": architecture, "name": name, "settings": settings}
    train([sides[0]], targets=[sides[1]], **how)
    return load(name)


# ---- files ----


@pytest.mark.parametrize("shape", [(4, 3), (4, 2, 3), (4, 2, 5, 3)])
@pytest.mark.parametrize("kind", ["<f2", ">f4", "<f8", "u1", "?"])
def test_arrays_of_every_shape_and_type(shape, kind, tmp_path):
    array = (np.arange(np.prod(shape)).reshape(shape) % 7).astype(kind)
    np.save(tmp_path / "c.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    save_file({"x": array.astype(array.dtype.newbyteorder("<"))}, tmp_path / "s.safetensors")
    for name in ("c.npy", "f.npy", "s.safetensors"):
        file = open_vectors(tmp_path / name)
        assert (len(file), file.sources.features) == (4, shape[-1])
        read = file.sources.rows([2, 0]).values
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, array[[2, 0]].reshape(2, -1, 3).astype(np.float32))


def test_values_stay_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("seqgen.mapped_tensors.READ_UP_TO", 0)  # smaller files are read
    np.save(tmp_path / "v.npy", np.ones((4, 2, 3), np.float32))
    save_file({"x": np.ones((4, 3), np.float32)}, tmp_path / "v.safetensors")
    for name in ("v.npy", "v.safetensors"):
        values = open_vectors(tmp_path / name).sources.take(np.array([1, 3])).values
        assert isinstance(values, np.memmap) or isinstance(values.base, np.memmap)


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=6), data=st.data(), seed=st.integers(0)
)
@quick
def test_sources_of_different_lengths_and_some_of_them(lengths, data, seed, tmp_path):
    random = np.random.default_rng(seed)
    each = [random.normal(size=(n, 2)).astype(np.float32) for n in lengths]
    path = tmp_path / "ragged.safetensors"
    save_file({"values": np.concatenate(each), "lengths": np.array(lengths)}, path)
    file = open_vectors(path)
    for number, own in enumerate(each):
        np.testing.assert_array_equal(file.vectors(number).values, own)
    targets = tmp_path / "ragged.txt"
    targets.write_text("".join(f"{n}\n" for n in range(len(each))))
    pairs, left = open_pairs([path], [targets]), list(range(len(each)))
    for _ in range(2):  # some, and some of those
        flags = st.lists(st.booleans(), min_size=len(left), max_size=len(left))
        wanted = np.array(data.draw(flags), dtype=bool)
        pairs, left = pairs.some(wanted), [n for n, w in zip(left, wanted, strict=True) if w]
        assert [int(target) for _, target in pairs] == left
        for number, (source, _) in zip(left, pairs, strict=True):
            np.testing.assert_array_equal(source.values, each[number])
        read = pairs.encoded_sources(None, None)
        assert read.lengths.tolist() == [lengths[number] for number in left]


def test_the_hash_of_pairs_is_of_both_sides_and_of_no_file_type(tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "a.npy", array)
    save_file({"any": array.astype(np.float64)}, tmp_path / "a.safetensors")
    np.save(tmp_path / "b.npy", array + 1)
    (tmp_path / "t").write_text("w\nx\ny\nz\n")
    (tmp_path / "u").write_text("w\nx\ny\nq\n")
    named = [("a.npy", "t"), ("a.safetensors", "t"), ("b.npy", "t"), ("a.npy", "u")]
    found = [open_pairs([tmp_path / s], [tmp_path / t]).survey() for s, t in named]
    assert found[0] == found[1]
    assert len({facts.sha256 for facts in found}) == 3
    assert (found[0].lines, found[0].characters) == (4, 8)


class Malice:
    """What would do something if it were ever unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


def broken_files(folder: Path) -> dict[str, str]:
    """Write files that are no good; return what is to be said of each."""
    nan = np.zeros((3, 2, 2), np.float32)
    nan[1, 1, 0] = np.nan
    good = np.ones((4, 3), np.float32)
    np.save(folder / "flat.npy", np.zeros(4))
    np.save(folder / "empty.npy", np.zeros((0, 4)))
    np.save(folder / "nan.npy", nan)
    np.save(folder / "huge.npy", np.array([[1e300]]))
    np.save(folder / "text.npy", np.array([["a", "b"]]))
    np.save(folder / "complex.npy", np.array([[1j]]))
    np.save(folder / "objects.npy", np.array([[Malice()]]), allow_pickle=True)
    (folder / "pickle.npy").write_bytes(pickle.dumps(Malice()))
    np.savez(folder / "zip.npz", a=good)
    (folder / "zip.npz").rename(folder / "zip.npy")
    np.save(folder / "cut.npy", good)
    (folder / "cut.npy").write_bytes((folder / "cut.npy").read_bytes()[:-4])
    (folder / "none.npy").write_bytes(b"")
    header = (folder / "flat.npy").read_bytes()
    for name, shape in (
        ("open", b"(3, "),
        ("absurd", b"(%d, 3)" % 10**30),
        ("vast", b"(%d,4)" % 10**18),
    ):
        text = b"{'descr': '<f4', 'fortran_order': False, 'shape': " + shape
        text += b"" if name == "open" else b", }"
        (folder / f"{name}.npy").write_bytes(header[:8] + len(text).to_bytes(2, "little") + text)
    save_file({"a": good, "b": good}, folder / "two.safetensors")
    save_file({}, folder / "no.safetensors")
    lengths = {"short": [1, 2], "zero": [4, 0], "negative": [5, -1]}
    for name, counts in lengths.items():
        both = {"values": good, "lengths": np.array(counts)}
        save_file(both, folder / f"{name}.safetensors")
    wrapped = np.array([2**63 + 6, 2**63 - 2], np.uint64)  # whose sum is 4 in 64 bits
    save_file({"values": good, "lengths": wrapped}, folder / "wrapped.safetensors")
    save_file({"values": good, "lengths": good}, folder / "real.safetensors")
    save_file({"x": good}, folder / "torn.safetensors")
    (folder / "torn.safetensors").write_bytes((folder / "torn.safetensors").read_bytes()[:-4])
    half = torch.ones(4, 3, dtype=torch.bfloat16)
    from safetensors.torch import save_file as save_torch

    save_torch({"x": half}, folder / "brain.safetensors")
    return {
        "flat.npy": "has shape (4,); it must be (N, F)",
        "empty.npy": "has shape (0, 4): it contains no vectors",
        "nan.npy": "source 1 (from 0 on) has a value that is not a finite number",
        "huge.npy": "source 0 (from 0 on) has a value that is not a finite number",
        "text.npy": "vectors are numbers",
        "complex.npy": "vectors are numbers",
        "objects.npy": "is damaged or no npy file",
        "pickle.npy": "is damaged or no npy file",
        "zip.npy": "is damaged or no npy file",
        "cut.npy": "is damaged or no npy file",
        "none.npy": "is damaged or no npy file",
        **dict.fromkeys(["open.npy", "absurd.npy", "vast.npy"], "is damaged or no npy file"),
        "two.safetensors": "these tensors: a, b; it should have only one, or values and lengths",
        "no.safetensors": "has these tensors: none",
        "short.safetensors": "has lengths that sum to 3, and 4 vectors",
        "zero.safetensors": "has a source without a vector",
        "wrapped.safetensors": "has a source of more than its 4 vectors",
        "negative.safetensors": "has a source without a vector",
        "real.safetensors": "a whole number a source",
        "torn.safetensors": "is damaged or no safetensors file",
        "brain.safetensors": "has the type BF16; save its vectors as F16 or F32",
        "gone.npy": "there is no file ",
        "x.npz": "the name of one ends in .npy or .safetensors",
    }


def test_files_that_are_no_good_are_said_in_one_line(tmp_path):
    for name, said in broken_files(tmp_path).items():
        with pytest.raises(SeqgenError) as error:
            open_vectors(tmp_path / name)
        assert said in str(error.value), name
        assert str(tmp_path / name) in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("count", [3, 5])
def test_as_many_targets_as_sources(count, tmp_path):
    np.save(tmp_path / "v.npy", np.ones((4, 3)))
    (tmp_path / "t").write_text("x\n" * count)
    wanted = rf"v\.npy has 4 sources and .*t has {count} lines; line n must be the target"
    pairs = open_pairs([tmp_path / "v.npy"], [tmp_path / "t"])
    for read in (pairs, pairs.targets(), pairs.some(np.array([1, 0, 0, 0], dtype=bool))):
        with pytest.raises(SeqgenError, match=wanted):
            list(read)


def test_vectors_come_in_one_file_with_targets(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.ones((4, 3)))
    for sources, targets in ((["a.npy", "b.npy"], ["t"]), (["a.npy"], [])):
        paths = [[tmp_path / name for name in names] for names in (sources, targets)]
        with pytest.raises(UsageError, match="one file of vectors, and their targets by --target"):
            open_pairs(*paths)


# ---- training ----


@pytest.mark.fast_for("seq2seq")
@pytest.mark.parametrize("architecture", list(HEADS))
def test_going_on_is_bit_for_bit(architecture, sides):
    more = {"steps": 9, "dropout": 0.3}
    whole = trained(sides, "whole", architecture, **more)
    settings = {**TINY, **HEADS[architecture], **more}
    how = {"architecture": architecture, "name": "cut", "settings": settings}
    train([sides[0]], targets=[sides[1]], stop_after=4, **how)
    assert resume("cut").steps == 9
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, load("cut").model.state_dict()[name]), name
    results = [load(name).stored.record["result"]["val_loss"] for name in ("whole", "cut")]
    assert results[0] == results[1]


def test_held_out_vectors_stay_with_the_model(sides, capsys):
    loaded = trained(sides)
    held_out, array = list(held_out_pairs(loaded)), np.load(sides[0])
    letters = sides[1].read_text().split()
    assert len(held_out) == COUNT // 10
    for source, target in held_out:
        assert "".join("abcde"[v.argmax()] for v in source.values) == target
    kept = load_file(loaded.stored.path / "validation" / "source.safetensors")
    assert (kept["values"].dtype, kept["values"].shape) == (array.dtype, (12, 5))
    assert {target for _, target in held_out} <= set(letters)
    sides[0].unlink()
    (scored,) = records(capsys, "perplexity", "-m", "t", "--precision", "float32")
    result = loaded.stored.record["result"]
    assert scored["nats_per_token"] == pytest.approx(result["val_loss"], abs=1e-9)
    check_removable(loaded.stored)  # knows all files


def test_resuming_notices_other_vectors(sides):
    settings = {**TINY, "steps": 6}
    how = {"architecture": "seq2seq", "name": "t", "settings": settings, "stop_after": 2}
    train([sides[0]], targets=[sides[1]], **how)
    array = np.load(sides[0])
    array[0, 0, 0] += 1
    np.save(sides[0], array)
    with pytest.raises(SeqgenError, match="is not the text t was trained on"):
        resume("t")
    assert resume("t", changed_data=True).steps == 6


def test_held_out_files_of_both_sides(sides, tmp_path):
    np.save(tmp_path / "w.npy", np.eye(5)[[[0, 1], [2, 3]]])
    (tmp_path / "w.txt").write_text("ab\ncd\n")
    apart = {"val": str(tmp_path / "w.npy"), "val_target": str(tmp_path / "w.txt")}
    assert [target for _, target in held_out_pairs(trained(sides, **apart))] == ["ab", "cd"]
    np.save(tmp_path / "w.npy", np.ones((2, 7)))
    with pytest.raises(SeqgenError, match="reads vectors of 5 numbers, not vectors of 7 numbers"):
        trained(sides, "other", **apart)
    apart["val"] = str(tmp_path / "w.txt")
    with pytest.raises(SeqgenError, match="reads vectors of 5 numbers, not text"):
        trained(sides, "text", **apart)


def test_fine_tuning_takes_vectors_of_the_same_width(sides, tmp_path):
    first = trained(sides, "first")
    settings = {"init_from": "first", "steps": 1, "lr": 1e-9, "seed": 0}
    train([sides[0]], targets=[sides[1]], name="second", settings=settings)
    for one, other in zip(first.model.parameters(), load("second").model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    np.save(tmp_path / "w.npy", np.ones((COUNT, 7)))
    with pytest.raises(SeqgenError, match="first reads vectors of 5 numbers, not vectors of 7"):
        train([tmp_path / "w.npy"], targets=[sides[1]], settings=settings)
    (tmp_path / "p.tsv").write_text("a\tb\n" * 20)
    with pytest.raises(SeqgenError, match="first reads vectors of 5 numbers, not text"):
        train([tmp_path / "p.tsv"], settings=settings)


def test_long_sources_are_left_out(sides):
    with pytest.raises(SeqgenError, match="every pair to train on is too long"):
        trained(sides, max_source_len=2)
    config = trained(sides, architecture="seq2seq-transformer", max_source_len=3).model.config
    assert (config.source_features, config.source_vocab_size) == (5, None)


# ---- commands ----


def test_the_command_line(sides, tmp_path, capsys):
    both = ["--source-vectors", sides[0], "--target", sides[1], "--seed", "1", "--steps", "60"]
    shape = ["--model", "seq2seq", "--hidden-size", "16", "--lr", "0.02", "--name", "t"]
    (made,) = records(capsys, "train", *both, *shape, "--quiet")
    assert made["name"] == "t"
    loaded = load("t")
    found = records(capsys, "beam-search", "-m", "t", "--source-vectors", sides[0])
    assert [record["index"] for record in found] == list(range(COUNT))
    assert {(r["prompt"], r["source_unknown"]) for r in found} == {("", 0)}
    assert found[7]["source"] == "v.npy[7]"
    few = records(
        capsys, "beam-search", "-m", "t", "--source-vectors", sides[0], "--batch-size", "3"
    )
    assert [r["text"] for r in few] == [r["text"] for r in found]
    written = tmp_path / "written.txt"
    written.write_text("".join(record["text"] + "\n" for record in found))
    lines = records(
        capsys, "perplexity", written, "--source-vectors", sides[0], "--per-line", "-m", "t"
    )
    for line, record in zip(lines, found, strict=True):
        assert line["source"] == record["source"]
        if record["finish_reason"] == "eos":
            assert line["nll_nats"] == pytest.approx(-record["logprob"], abs=1e-4)
    (whole,) = records(capsys, "perplexity", written, "--source-vectors", sides[0], "-m", "t")
    assert whole["nll_nats"] == pytest.approx(sum(line["nll_nats"] for line in lines), rel=1e-5)
    pairs = open_pairs([sides[0]], [written])
    assert isinstance(pairs, VectorPairs)
    assert perplexity(loaded, pairs).nll_nats == pytest.approx(whole["nll_nats"])
    capsys.readouterr()
    sampled = ["sample", "-m", "t", "--greedy", "--source-vectors", str(sides[0])]
    assert run(sampled) == 0
    assert len(capsys.readouterr().out.splitlines()) == COUNT


def test_a_model_writes_from_the_vectors_it_is_given(sides, capsys):
    """After some training, the first letter follows the first vector."""
    trained(sides, steps=150, lr=0.02, hidden_size=16, dropout=0.0)
    found = records(capsys, "beam-search", "-m", "t", "--source-vectors", sides[0])
    right = [
        r["text"][:1] == t[0] for r, t in zip(found, sides[1].read_text().split(), strict=True)
    ]
    assert np.mean(right) >= 0.9


@pytest.mark.slow
def test_held_out_vectors_are_evaluated_and_compared(sides, tmp_path, capsys):
    """`eval` and `compare` of a file of vectors against the commands that they stand for."""
    trained(sides, "a", steps=60, lr=0.02, hidden_size=16)
    trained(sides, "b", seed=2)
    both = ["--source-vectors", sides[0], "--target", sides[1]]
    (found,) = records(capsys, "eval", *both, "-m", "a")
    (scored,) = records(capsys, "perplexity", sides[1], "--source-vectors", sides[0], "-m", "a")
    assert found["perplexity"] == scored
    texts = records(capsys, "beam-search", "-m", "a", "--source-vectors", sides[0])
    right = [r["text"] == t for r, t in zip(texts, sides[1].read_text().split(), strict=True)]
    assert found["translations"]["exact_match"] == np.mean(right)
    assert 0 < np.mean(right) < 1
    (lengths,) = found["translations"]["by_length"]
    assert (lengths["unit"], lengths["most"], lengths["pairs"]) == ("vectors", 3, COUNT)
    one, other = records(capsys, "compare", "a", "b", *both)
    assert (one["best"], other["bleu"]["pairs"]) == ("a", COUNT)
    assert one["perplexity"] == pytest.approx(scored["perplexity"])


def test_measuring_other_vectors_than_a_model_reads(sides, tmp_path, capsys):
    trained(sides)
    train([sides[1]], architecture="ngram", name="text", settings={"documents": "line"})
    np.save(tmp_path / "w.npy", np.ones((COUNT, 7)))
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    vectors, target = ["--source-vectors", sides[0]], ["--target", sides[1]]
    for command, data in (["eval", "-m"], []), (["compare"], ["--data"]):
        said = {
            "t reads vectors of 5 numbers, not vectors of 7 numbers": [
                *("--source-vectors", tmp_path / "w.npy"),
                *target,
            ],
            "t reads vectors of 5 numbers, not text": [*data, tmp_path / "pairs.tsv"],
            "--source-vectors and --target go together": vectors,
            "give --source or --source-vectors": [*vectors, *target, "--source", sides[1]],
        }
        for problem, arguments in said.items():
            assert problem in refusal(capsys, *command, "t", *arguments, "--quiet")
        line = refusal(capsys, *command, "text", *vectors, *target, "--quiet")
        of_sources = "--source-vectors is for models that write from sources"
        assert line == f"seqgen: {of_sources}; text is a model of text"


def test_vectors_and_text_are_not_mistaken_for_one_another(sides, tmp_path, capsys):
    trained(sides)
    train([sides[1]], architecture="ngram", name="text", settings={"documents": "line"})
    np.save(tmp_path / "w.npy", np.ones((2, 7)))
    wide = ["--source-vectors", tmp_path / "w.npy"]
    own = "t reads vectors of 5 numbers, not "
    for command in (["beam-search"], ["sample", "--greedy"]):
        wanted = "seqgen: t writes from vectors: give --source-vectors FILE"
        assert refusal(capsys, *command, "-m", "t", "--quiet") == wanted
        assert own + "text; give a file of such" in refusal(capsys, *command, "abc", "-m", "t")
        assert own + "vectors of 7 numbers" in refusal(capsys, *command, *wide, "-m", "t")
        line = refusal(capsys, *command, *wide, "-m", "text")
        assert line == "seqgen: text reads text, not vectors"
        line = refusal(capsys, *command, "abc", *wide, "-m", "t")
        assert "give PROMPT or --source-vectors, not both" in line
        line = refusal(capsys, *command, "--source-vectors", sides[1], "-m", "t")
        assert "--source-vectors takes a file that ends in .npy or .safetensors" in line
        assert "--echo is for models of text" in refusal(
            capsys, *command, "--source-vectors", sides[0], "-m", "t", "--echo"
        )
    assert own + "text" in refusal(capsys, "perplexity", sides[1], "-m", "t")
    wrong = refusal(capsys, "perplexity", sides[1], "--source-vectors", sides[0], "-m", "text")
    assert "text reads text, not vectors" in wrong
    few = refusal(capsys, "perplexity", sides[1], *wide, "-m", "t")
    assert own + "vectors of 7 numbers" in few
    assert "one FILE" in refusal(capsys, "perplexity", "--source-vectors", sides[0], "-m", "t")


def test_sides_that_do_not_go_together(sides, capsys):
    vectors, target = ["--source-vectors", sides[0]], ["--target", sides[1]]
    how = ["--model", "seq2seq", "--steps", "1"]
    said = {
        "--source-vectors and --target go together": [*vectors],
        "give --source or --source-vectors, not both": [*vectors, *target, "--source", sides[1]],
        "give DATA, or --source-vectors and --target": [*vectors, *target, sides[1]],
        "standard input can be only one of the files": ["--source", "-", "--target", "-"],
        "takes a file that ends in .npy": ["--source-vectors", sides[1], *target],
        "--source-tokenizer has no meaning": [*vectors, *target, "--source-tokenizer", "word"],
    }
    for problem, arguments in said.items():
        assert problem in refusal(capsys, "train", *arguments, *how)
    line = refusal(capsys, "train", *vectors, *target, "--model", "lstm")
    assert line == "seqgen: lstm learns from a text: it takes no --target"


def test_mixtures_read_vectors_of_one_width(sides, tmp_path, capsys):
    trained(sides, "a")
    trained(sides, "b", seed=2)
    np.save(tmp_path / "w.npy", np.ones((COUNT, 7)))
    trained((tmp_path / "w.npy", sides[1]), "wide")
    train([sides[1]], architecture="ngram", name="text", settings={"documents": "line"})
    assert len(records(capsys, "beam-search", "-m", "a+b", "--source-vectors", sides[0])) == COUNT
    for other in ("wide", "text"):
        with pytest.raises(SeqgenError, match="read their sources differently"):
            load(f"a+{other}")


def test_vectors_from_python(sides):
    loaded, file = trained(sides), open_vectors(sides[0])
    model = seqgen.load("t")
    one = [beam.text for beam in model.beam_search(file.vectors(3))]
    several = [beam.text for beam in model.beam_search(file.vectors(n) for n in (2, 3))]
    assert one == several[1:]
    record = next(model.sample([file.vectors(5)], seed=1))
    assert (record.of_source.source, record.model) == ("v.npy[5]", loaded.stored.name)
    assert "".join(model.stream(file.vectors(5), seed=1)) == record.text
