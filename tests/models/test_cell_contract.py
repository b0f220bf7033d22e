"""What holds for the cell of every recurrent architecture: its forms are one equation."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from architectures import CASES, FORMS, Case, over
from torch.autograd import gradcheck
from torch.func import functional_call

from seqgen import registry
from seqgen.engines.ops import ArrayOps
from seqgen.engines.tensor_ops import TensorOps
from seqgen.engines.tensor_products import weights_as_arrays
from seqgen.models.recurrent import array_layer
from seqgen.models.recurrent.cell import Cell
from seqgen.models.recurrent.linear_maps import loop_maps, tensor_maps
from seqgen.models.recurrent.model import RecurrentLM

B, T, E, V = 3, 5, 4, 6
EXACT = {"rtol": 0, "atol": 1e-11}


# What a model does around its cells, which are the same with any of these.
AROUND = "num_layers", "input", "embedding_size", "residual", "tie_weights"


def cells():
    """Return a case for each cell of each recurrent architecture, and each form of it."""
    found = {}
    forms = [Case(name, form, s) for name, some in FORMS.items() for form, s in some.items()]
    for case in [*CASES, *forms]:
        known = case.architecture in registry.ARCHITECTURES
        if known and issubclass(registry.architecture(case.architecture).load_model(), RecurrentLM):
            form = {k: v for k, v in case.settings.items() if k not in AROUND}
            form = {**case.config(**form).to_dict(), **dict.fromkeys(AROUND)}
            found.setdefault((case.architecture, str(form)), case)
    return list(found.values())


RECURRENT = cells()


def made(case, **more):
    """Return a layer of the case's cell with random parameters, its input and the parts before."""
    torch.manual_seed(4)
    layer = Cell(E, case.config(**{"hidden_size": 5, **more})).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.6)
    before = tuple(torch.randn_like(part) for part in layer.start(B))
    return layer, torch.randn(B, T, E, dtype=torch.float64), before


def over_arrays(layer, inputs=None):
    """Return the `ArrayLayer` with a cell's weights."""
    return array_layer.ArrayLayer(layer.equation, weights_as_arrays(layer), inputs)


def step_by_step(layer, x, state):
    """Return what `loop` does, by steps whose weights are in the graph as they are."""
    outputs = []
    for x_t in x.unbind(1):
        state = layer.step(x_t, state)
        outputs.append(state[0])
    return torch.stack(outputs, 1), state


def same(got, wanted):
    (y, after), (y_wanted, after_wanted) = got, wanted
    torch.testing.assert_close(y, y_wanted, **EXACT)
    for part, part_wanted in zip(after, after_wanted, strict=True):
        torch.testing.assert_close(part, part_wanted, **EXACT)


@over(RECURRENT)
@pytest.mark.parametrize("graph", [True, False])
def test_the_loop_is_its_steps(case, graph):
    layer, x, before = made(case)
    with torch.set_grad_enabled(graph):
        same(layer.loop(x, before), step_by_step(layer, x, before))


@over(RECURRENT)
@pytest.mark.parametrize("graph", [True, False])
def test_what_is_faster_is_the_loop(case, graph):
    layer, x, before = made(case)
    wanted = layer.loop(x, before)
    with torch.set_grad_enabled(graph):
        got = layer.equation.fast_sequence(layer, x, before, layer.noise(B))
        same(layer.sequence(x, before), wanted)
    if got is not None:
        same(got, wanted)
    if got is not None and graph:
        leaves = [*layer.parameters()]
        grads, grads_wanted = (
            torch.autograd.grad(y.square().sum(), leaves) for y in (got[0], wanted[0])
        )
        for gradient, gradient_wanted in zip(grads, grads_wanted, strict=True):
            torch.testing.assert_close(gradient, gradient_wanted, **EXACT)


@pytest.mark.fast_for("ids-3-*", "vectors-1-*")
@over(RECURRENT)
@pytest.mark.parametrize("rows", [1, B])
@pytest.mark.parametrize("given", ["ids", "vectors"])
@torch.no_grad()
def test_the_step_over_arrays_is_the_step(case, rows, given):
    layer, _, before = made(case)
    vectors = torch.randn(V, E, dtype=torch.float64)
    of_arrays = over_arrays(layer, vectors.numpy() if given == "ids" else None)
    tensors = tuple(part[:rows].clone() for part in before)
    arrays = tuple(part.numpy().copy() for part in tensors)
    for t in range(T):
        ids = np.arange(t, t + rows) % V
        kept = [part.copy() for part in arrays]
        after = of_arrays.step(ids if given == "ids" else vectors.numpy()[ids], arrays)
        for part, copy in zip(arrays, kept, strict=True):
            np.testing.assert_array_equal(part, copy)  # a state is not written over
        tensors, arrays = layer.step(vectors[ids], tensors), after
        for tensor, array in zip(tensors, arrays, strict=True):
            np.testing.assert_allclose(array, tensor.numpy(), **EXACT)


@pytest.mark.fast_for("2-*", "100-lstm-plain", "100-rnn-tanh")
@over(RECURRENT)
@pytest.mark.parametrize("piece", [2, 100])
@torch.no_grad()
def test_a_sequence_over_arrays_is_the_sequence(case, piece, monkeypatch):
    monkeypatch.setattr(array_layer, "PIECE", piece)
    layer, x, before = made(case)
    y, after = over_arrays(layer).sequence(x.numpy(), tuple(part.numpy() for part in before))
    same((torch.from_numpy(y), tuple(map(torch.from_numpy, after))), layer.sequence(x, before))


@pytest.mark.fast_for(
    "rnn-tanh",
    "gru-after",
    "lstm-plain",
    "mgu-default",
    "mingru-default",
    "rhn-highway",
    rest="slow",
)
@over(RECURRENT)
def test_gradients_of_the_loop(case):
    layer, x, before = made(case, hidden_size=3)
    names = [name for name, _ in layer.named_parameters()]
    begun = len(before)

    def run(x, *values):
        weights = {f"layer.{name}": w for name, w in zip(names, values[begun:], strict=True)}
        y, after = functional_call(Looped(layer), weights, (x, values[:begun]))
        return y, *after

    values = x[:2, :3], *(part[:2] for part in before), *layer.parameters()
    assert gradcheck(run, tuple(value.detach().requires_grad_() for value in values))


class Looped(torch.nn.Module):
    """The loop as a module's forward, so that its weights can be handed in."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, state):
        return self.layer.loop(x, state)


@pytest.mark.fast_for("input-*", "*-lstm-plain", "*-rnn-tanh")
@over(RECURRENT)
@pytest.mark.parametrize("frozen", ["nothing", "recurrent", "input"])
def test_gradients_of_a_part_of_the_loop_are_those_of_its_steps(case, frozen):
    """An output in the middle alone: nothing comes back to the calls after it."""
    layer, x, before = made(case)
    of_input = {layer.weight_ih, layer.bias}
    for parameter in layer.parameters():
        kind = "input" if parameter in of_input else "recurrent"
        parameter.requires_grad_(kind != frozen)
    leaves = [x.requires_grad_(), *(p for p in layer.parameters() if p.requires_grad)]
    found = [
        torch.autograd.grad(form(x, before)[0][:, 2].square().sum(), leaves, allow_unused=True)
        for form in (layer.loop, lambda x, state: step_by_step(layer, x, state))
    ]
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, **EXACT)


@over(RECURRENT)
def test_matrices_declare_the_maps_in_them(case):
    layer, _, _ = made(case)
    for name, rows in layer.maps.items():
        assert sum(rows) == len(layer.get_parameter(name))
    assert layer.start(2)[0].shape == (2, layer.sizes[0])


def test_a_map_may_be_called_twice_a_step_or_never():
    torch.manual_seed(0)
    weight, idle = (torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
    maps = {"hh": (weight, bias), "idle": (idle, None)}
    x, h = torch.randn(3, 2, 4, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)

    def run(w, x, h):
        for x_t in x:
            h = torch.tanh(w.hh(torch.sigmoid(w.hh(h, x_t)), 0.5 * h))
        return h.sum()

    w, steps, (begun,) = loop_maps(maps, {}, x, (h,))
    leaves = (weight, bias)
    got = torch.autograd.grad(run(w, steps, begun), leaves, retain_graph=True)
    wanted = torch.autograd.grad(run(tensor_maps(maps, {}), x, h), leaves)
    for gradient, gradient_wanted in zip(got, wanted, strict=True):
        torch.testing.assert_close(gradient, gradient_wanted, **EXACT)


def test_a_loop_that_nothing_comes_back_through_is_given_back():
    weight = torch.randn(4, 4, requires_grad=True)
    w, x, (h,) = loop_maps({"hh": (weight, None)}, {}, torch.randn(3, 2, 4), (torch.zeros(2, 4),))
    y, seen = w.hh(h, x[0]), weakref.ref(w.hh)
    del w, x, h, y
    assert seen() is None


CALLS = {
    "sigmoid": lambda ops, x, v: [ops.sigmoid(x)],
    "tanh": lambda ops, x, v: [ops.tanh(x)],
    "relu": lambda ops, x, v: [ops.relu(x)],
    "exp": lambda ops, x, v: [ops.exp(x)],
    "join": lambda ops, x, v: [ops.join(x, 2 * x)],
    "where": lambda ops, x, v: [ops.where(x > 0, x, 2 * x)],
    "softmax": lambda ops, x, v: [ops.softmax(x)],
    "layer_norm": lambda ops, x, v: [ops.layer_norm(x, v, None), ops.layer_norm(x, v, v)],
    "split": lambda ops, x, v: [*ops.split(x, 1, 3, 2)],
    "gates": lambda ops, x, v: [*ops.gates(x, ops.sigmoid, ops.tanh, ops.sigmoid)],
    "other gates": lambda ops, x, v: [*ops.gates(x, ops.tanh, ops.tanh, ops.relu)],
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("rows", [1, 2])
def test_an_operation_is_the_same_over_tensors_and_arrays(name, rows):
    torch.manual_seed(1)
    x, v = 3 * torch.randn(rows, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    kept = x.clone()
    tensors, arrays = CALLS[name](TensorOps, x, v), CALLS[name](ArrayOps, x.numpy(), v.numpy())
    assert torch.equal(x, kept)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), rtol=0, atol=1e-14)


def test_gates_are_each_functions_own():
    x = torch.randn(2, 6)
    a, b, c = x.chunk(3, -1)
    gates = TensorOps.gates(x, TensorOps.sigmoid, TensorOps.sigmoid, TensorOps.tanh)
    for got, wanted in zip(gates, (a.sigmoid(), b.sigmoid(), c.tanh()), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
