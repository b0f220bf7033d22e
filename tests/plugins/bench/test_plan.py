import json
import shutil
import subprocess
import sys

import pytest
import torch
from helpers_cli import records, refusal
from places import TESTS

from seqgen import registry
from seqgen.engines.precision import arithmetic
from seqgen.plugins.bench.plan import Planned, PlanStep, Shape, activations, plan, states, traffic
from seqgen.settings import UsageError
from seqgen.settings.training import TrainingConfig
from seqgen.training.optimizers import UpdateRule

SHAPE = Shape(layers=2, hidden_size=24, heads=4, vocab_size=50)


def step_of(**more):
    given = {"batch_size": 8, "seq_len": 16, "precision": "float32", "optimizer": "adamw"}
    return PlanStep(**{**given, **more})


def model_of(shape, window=16):
    row = registry.architecture("transformer")
    config = row.load_config()(
        vocab_size=shape.vocab_size,
        window=window,
        num_layers=shape.layers,
        hidden_size=shape.hidden_size,
        num_heads=shape.heads,
        tie_weights=shape.tied,
        dropout=0.0,
    )
    return row.load_model()(config)


def nbytes(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("hidden_size", [24, 40])
@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_those_of_the_model(layers, hidden_size, tied):
    shape = Shape(layers=layers, hidden_size=hidden_size, heads=4, vocab_size=50, tied=tied)
    assert shape.parameters == model_of(shape).parameter_count()


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        ("sgd", {"momentum": 0.9}),
        ("adagrad", {}),
        ("rmsprop", {}),
        ("adam", {}),
        ("adamw", {}),
        ("muon", {}),
    ],
)
def test_a_process_holds_parameters_gradients_and_states_as_planned(optimizer, more):
    model, step = model_of(SHAPE), step_of(optimizer=optimizer)
    rule = UpdateRule(model, TrainingConfig(optimizer=optimizer, steps=1, **more))
    tokens = torch.zeros(2, 16, dtype=torch.long)
    model(tokens)[0].sum().backward()
    rule.step(1.0)
    one = plan(SHAPE, step, 1, False)
    assert one.parameters == nbytes(model.parameters())
    assert one.gradients == nbytes(p.grad for p in model.parameters())
    # The counters of steps have no dimension, or one element.
    assert one.optimizer_states == nbytes(t for t in rule.tensors().values() if t.numel() > 1)
    assert (one.buckets, one.gathered, one.moved) == (0, 0, 0)


def saved_bytes(shape, rows, length, precision):
    """Return the bytes that a forward pass keeps for the backward one, parameters left out."""
    model = model_of(shape, length).train()
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)  # kept, so that none is reused
        return tensor

    tokens = torch.randint(0, shape.vocab_size, (rows, length))
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, arithmetic(precision, torch.device("cpu")):
        model(tokens)
    return sum(size for size, _ in saved.values())


@pytest.mark.parametrize("hidden_size", [48, 96])
def test_activations_are_what_a_pass_keeps(hidden_size):
    shape = Shape(layers=2, hidden_size=hidden_size, heads=4, vocab_size=20)
    expected = 4 * 32 * activations(shape, step_of())
    assert saved_bytes(shape, 4, 32, "float32") == pytest.approx(expected, rel=0.02)


def test_activations_of_bf16_are_what_a_pass_keeps_besides_casts_and_weights_of_attention():
    shape = Shape(layers=2, hidden_size=48, heads=4, vocab_size=20)
    rows, length = 8, 64
    expected = rows * length * activations(shape, step_of(precision="bf16"))
    # On a CPU attention keeps its weights, and matrices are cast for every pass.
    weights = 2 * shape.layers * rows * shape.heads * length * length
    casts = 2 * (shape.layers * shape.block_matrices + shape.vocab_size * shape.hidden_size)
    kept = saved_bytes(shape, rows, length, "bf16")
    assert kept == pytest.approx(expected + weights + casts, rel=0.03)


def ring(ranks, numbers, rounds):
    """Return how many numbers each rank of a ring sends, part after part, in so many rounds."""
    part = numbers // ranks
    sent = [0] * ranks
    for _ in range(rounds * (ranks - 1)):
        for rank in range(ranks):
            sent[rank] += part
    return sent


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_traffic_is_that_of_a_ring(ranks):
    numbers = SHAPE.parameters // (ranks * 12) * ranks * 12
    whole = traffic(SHAPE, step_of(), ranks, False)["all_reduce"] / SHAPE.parameters
    assert ring(ranks, numbers, 2) == [pytest.approx(whole * numbers / 4)] * ranks
    scattered = traffic(SHAPE, step_of(), ranks, True)["reduce_scatter"] / SHAPE.parameters
    assert ring(ranks, numbers, 1) == [pytest.approx(scattered * numbers / 4)] * ranks


def test_sharding_divides_what_is_kept_and_moves_half_as_much_again():
    step = step_of(batch_size=64)
    for ranks in (2, 8, 64):
        whole, divided = (plan(SHAPE, step, ranks, sharded) for sharded in (False, True))
        assert divided.parameters * ranks == pytest.approx(whole.parameters)
        assert divided.optimizer_states * ranks == pytest.approx(whole.optimizer_states)
        assert divided.activations == whole.activations
        blocks = SHAPE.layers * SHAPE.block
        again = (2 * blocks + SHAPE.outside + SHAPE.parameters) / (2 * SHAPE.parameters)
        assert divided.moved == pytest.approx(whole.moved * again)
        assert whole.all_gather == whole.reduce_scatter == divided.all_reduce == 0
    assert plan(SHAPE, step, 1, True).moved == 0


def test_rows_divide_what_is_computed():
    one, four = (plan(SHAPE, step_of(), ranks, False) for ranks in (1, 4))
    assert one.flops == 4 * four.flops
    assert one.activations == 4 * four.activations
    parts = plan(SHAPE, step_of(accumulate=2), 4, False)
    assert (2 * parts.logits, parts.flops) == (four.logits, four.flops)


@pytest.mark.parametrize("parameters", [10**6, 10**8, 10**9, 7 * 10**9])
def test_a_number_of_parameters_is_nearly_met(parameters):
    shape = Shape.of(Planned(parameters=parameters))
    assert shape.parameters == pytest.approx(parameters, rel=0.12 if parameters > 10**7 else 4)
    assert shape.hidden_size % shape.heads == 0
    wide = Shape.of(Planned(parameters=10**9, hidden_size=2048))
    assert wide.hidden_size == 2048
    assert wide.parameters == pytest.approx(10**9, rel=0.05)


def test_states_of_muon_are_between_those_of_sgd_and_adam():
    sgd, muon, adam = (states(SHAPE, step_of(optimizer=name)) for name in ("sgd", "muon", "adam"))
    assert sgd < muon < adam


@pytest.mark.parametrize("sharded", [False, True])
def test_a_record_a_number_of_ranks(capsys, sharded):
    flags = ("--shard",) if sharded else ()
    found = records(capsys, *("bench", "plan", "--parameters", "1e9", "--ranks", "1,64", *flags))
    assert [one["ranks"] for one in found] == [1, 64]
    parts = ("parameters", "gradients", "buckets", "optimizer_states", "gathered")
    for one in found:
        held = sum(one[part] for part in (*parts, "activations", "logits"))
        assert one["held"] == pytest.approx(held)
        assert one["compute_seconds"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --parameters N, or --layers N and --hidden-size N"),
        (("--layers", "2"), "give --parameters N"),
        (("--parameters", "x"), "--parameters must be a whole number"),
        (("--parameters", "1e9", "--layers", "2", "--hidden-size", "64"), "give --parameters"),
        (("--layers", "2", "--hidden-size", "64", "--heads", "7"), "7 does not divide 64"),
        (("--parameters", "1e9", "--ranks", "0"), "--ranks must be at least 1"),
        (("--parameters", "1e9", "--ranks", "8", "--batch-size", "4"), "fewer rows than"),
        (("--parameters", "1e9", "--optimizer", "adamv"), "did you mean 'adam'"),
        (
            ("--parameters", "1e9", "--precision", "int8"),
            "--precision must be one of float32, float64, bf16, not 'int8'",
        ),
    ],
)
def test_bad_inputs_are_one_line(capsys, arguments, said):
    assert said in refusal(capsys, "bench", "plan", *arguments)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="--heads must divide"):
        Shape.of(Planned(vocab_size=10, layers=1, hidden_size=10, heads=3))


@pytest.mark.slow
@pytest.mark.fast_for("2-*")
@pytest.mark.parametrize(
    ("ranks", "flags", "times"),
    [
        (2, (), 2),  # 2 (N - 1) times the gradients, over all ranks
        (3, (), 4),
        # Gathered twice; gloo reduces for all and drops the rest, where NCCL only scatters.
        (2, ("--shard",), 4),
    ],
)
def test_processes_move_what_is_planned(ranks, flags, times):
    alone = ["unshare", "--net", sys.executable]
    if not shutil.which("unshare") or subprocess.run([*alone, "-c", ""], check=False).returncode:
        pytest.skip("needs a network of its own")
    numbers = 1 << 19
    script = TESTS / "traffic.py"
    command = [*alone, str(script), str(ranks), str(numbers), "3", *flags]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout.splitlines()[-1])["bytes_a_step"]
    assert found == pytest.approx(times * 4 * numbers, rel=0.01)  # headers are 0.3 percent
