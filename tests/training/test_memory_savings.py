"""What saves memory in training: losses in pieces, blocks computed again, adapters beside W."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from seqgen import store
from seqgen.engines import fast_layers, tensor_ops
from seqgen.engines.fast_layers import FastLinear, frozen_linear
from seqgen.errors import UsageError
from seqgen.models.low_rank import AdaptedLinear, adapters_of, add_adapters, store_frozen
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.scoring.perplexity import score_held_out
from seqgen.store.loading import load
from seqgen.training import choosing, chunked_loss, reading, session
from seqgen.training.chunked_loss import cross_entropy_in_pieces
from seqgen.training.events import Notice
from seqgen.training.fine_tune import InitialModel
from seqgen.training.reading import cross_entropy
from seqgen.training.resume import resume
from seqgen.training.train import train

SMALL = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "seq_len": 12, "seed": 1}
FEW = {"precision": "float32", "steps": 4, "batch_size": 3}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("so it goes on and on, and it ends so.\n" * 30)
    return path


def tuned(text, name, **settings):
    settings = {**FEW, "seed": 2, "init_from": "base", **settings}
    return train([text], name=name, settings=settings)


@pytest.fixture
def base(text):
    train([text], architecture="transformer", name="base", settings={**SMALL, **FEW})


def weights(name):
    return load_file(store.find(name).path / store.WEIGHTS)


# ---- the loss in pieces ----


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_pieces_have_the_loss_and_the_gradients_of_the_whole(rows, bias, smoothing, monkeypatch):
    torch.manual_seed(1)
    head = nn.Linear(5, 11, bias=bias).double()
    features = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(11, (7,))
    monkeypatch.setattr(chunked_loss, "PIECE", 11 * rows)
    found, wanted = [], []
    for kept in (found, wanted):
        if kept is found:
            sums = cross_entropy_in_pieces(features, head, targets, smoothing)
        else:
            sums = cross_entropy(head(features).log_softmax(-1), targets, smoothing)
        inputs = [features, *head.parameters()]
        kept += [*sums, *torch.autograd.grad(3 * sums[0], inputs)]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_only_what_is_needed_gets_gradients():
    head = nn.Linear(5, 11).requires_grad_(False)
    features = torch.randn(4, 5, requires_grad=True)
    cross_entropy_in_pieces(features, head, torch.arange(4), 0.0)[0].backward()
    assert features.grad.shape == (4, 5) and head.weight.grad is None
    nothing = torch.zeros(0, 5, requires_grad=True)
    minimised, _ = cross_entropy_in_pieces(nothing, head, torch.zeros(0, dtype=torch.long), 0.1)
    minimised.backward()
    assert minimised == 0 and nothing.grad.shape == (0, 5)


@pytest.mark.fast_for("bf16", rest="slow")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_in_pieces_is_the_run_as_a_whole(precision, text, monkeypatch):
    settings = {**SMALL, **FEW, "precision": precision, "label_smoothing": 0.1}
    used = []
    plain = reading.TrainingReader.costs_in_pieces
    monkeypatch.setattr(
        reading.TrainingReader,
        "costs_in_pieces",
        lambda self, *about: used.append(1) or plain(self, *about),
    )
    whole = train([text], architecture="transformer", name="whole", settings=settings)
    assert not used
    monkeypatch.setattr(reading, "LEAST_LOGITS", 1)
    monkeypatch.setattr(chunked_loss, "PIECE", 64)
    pieces = train([text], architecture="transformer", name="pieces", settings=settings)
    assert used
    close = {"abs": 1e-5 if precision == "float32" else 2e-3}
    assert pieces.train_loss == pytest.approx(whole.train_loss, **close)
    assert pieces.val_loss == pytest.approx(whole.val_loss, **close)


# ---- blocks that are computed again ----


def test_checkpointing_changes_no_bit(text):
    settings = {**SMALL, **FEW, "dropout": 0.2}
    for name, checkpointing in (("kept", False), ("again", True)):
        chosen = {**settings, "checkpointing": checkpointing, "row_threads": 1}
        train([text], architecture="transformer", name=name, settings=chosen)
    kept, again = weights("kept"), weights("again")
    assert all(torch.equal(kept[name], again[name]) for name in kept)


@pytest.fixture
def computed(monkeypatch):
    """Collect the blocks that training computes again."""
    blocks, plain = [], tensor_ops.checkpoint

    def noted(block, *inputs, **options):
        blocks.append(block)
        return plain(block, *inputs, **options)

    monkeypatch.setattr(tensor_ops, "checkpoint", noted)
    return blocks


@pytest.mark.slow
def test_an_encoder_computes_its_blocks_again_too(tmp_path, computed):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{'ab' * n} a\t{'ba' * n} b\n" for n in range(1, 30)))
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "encoder_layers": 3}
    settings = {**sizes, **FEW, "dropout": 0.2, "seed": 1, "row_threads": 1}
    for name, checkpointing in (("kept", False), ("again", True)):
        assert not computed
        chosen = {**settings, "checkpointing": checkpointing}
        train([pairs], architecture="seq2seq-transformer", name=name, settings=chosen)
    kept, again = weights("kept"), weights("again")
    assert all(torch.equal(kept[name], again[name]) for name in kept)
    assert len({id(block) for block in computed}) == 3 + 2


@pytest.mark.slow
def test_every_member_computes_its_blocks_again(text, computed):
    settings = {**SMALL, **FEW, "members": 2, "checkpointing": True, "row_threads": 1}
    train([text], architecture="transformer", name="members", settings=settings)
    assert len(computed) % (2 * SMALL["num_layers"] * FEW["steps"]) == 0 and computed
    assert len({id(block) for block in computed}) == 2 * SMALL["num_layers"]


def test_checkpointing_keeps_only_the_inputs_of_blocks():
    config = TransformerConfig(
        vocab_size=11, window=8, hidden_size=16, num_layers=3, num_heads=2, dropout=0.0
    )
    torch.manual_seed(1)
    model = Transformer(config).train()
    saved = []

    def numbers(checkpointing):
        saved.clear()
        model.checkpointing = checkpointing
        with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
            logits, _ = model(torch.arange(8)[None])
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        return gradients, sum(x.numel() for x in saved)

    (kept, most), (again, least) = numbers(False), numbers(True)
    assert all(map(torch.equal, kept, again))
    assert least < most / 2


def test_checkpointing_is_chosen_where_memory_is_short(text, monkeypatch):
    notices = []

    def report(event):
        if isinstance(event, Notice):
            notices.append(event.text)

    settings = {**SMALL, **FEW}
    train([text], architecture="transformer", name="a", settings=settings, report=report)
    assert store.find("a").config["training"]["checkpointing"] is False
    monkeypatch.setattr(choosing, "memory", lambda: 1 << 16)
    train([text], architecture="transformer", name="b", settings=settings, report=report)
    assert store.find("b").config["training"]["checkpointing"] is True
    assert "checkpointing=true: activations of 3 rows of 12 tokens may not fit in memory" in notices


@pytest.mark.parametrize(
    ("architecture", "settings", "message"),
    [
        ("lstm", {"checkpointing": True}, "checkpointing=true is for the transformer"),
        ("transformer", {"checkpointing": True, "compile": True}, "not both"),
        ("transformer", {"lora_base": "bf16"}, "lora_base needs lora"),
        ("transformer", {"lora_base": "int3"}, "lora_base"),
    ],
)
def test_what_does_not_go_together_is_refused(architecture, settings, message, text):
    with pytest.raises(UsageError, match=message):
        train([text], architecture=architecture, settings={**FEW, **settings})


# ---- adapters ----


def adapted(rank=2):
    """Return a layer of two stacked maps with an adapter whose B is not zero."""
    torch.manual_seed(1)
    network = nn.Module()
    network.layer, network.head = FastLinear(6, 7), FastLinear(7, 3)
    network.layer.maps = {"weight": (3, 4)}
    add_adapters(network, rank, 4.0)
    for b in adapters_of(network)["layer.weight"].b:
        nn.init.normal_(b)
    return network


def test_an_adapter_beside_its_matrix_is_that_of_the_updated_matrix():
    network = adapted().double()
    layer = network.layer
    assert isinstance(layer, AdaptedLinear)
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    trained = [p for p in network.parameters() if p.requires_grad]
    assert len(trained) == 4
    both = layer(x), nn.functional.linear(x, layer.weight, layer.bias)
    of_both = [[y, *torch.autograd.grad(y.square().sum(), [x, *trained])] for y in both]
    for one, other in zip(*of_both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_frozen_matrix_keeps_its_type_and_saves_no_copy():
    network = adapted()
    whole = network.layer.weight.detach()
    store_frozen(network, torch.bfloat16)
    frozen = network.layer.parametrizations.weight.original
    assert frozen.dtype == torch.bfloat16 and not frozen.requires_grad
    x = torch.randn(5, 6, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = frozen_linear(x, frozen, network.layer.bias)
    assert not saved and y.grad_fn.weight.data_ptr() == frozen.data_ptr()
    assert y.dtype == torch.float32
    exact = nn.functional.linear(x, frozen.float(), network.layer.bias)
    torch.testing.assert_close(y, exact)
    (d_x,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(d_x, frozen.float().sum(0).expand_as(x))
    torch.testing.assert_close(network.layer.weight, whole, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
def test_adapters_compute_cheap_activations_again(activation, monkeypatch):
    sizes = {"hidden_size": 16, "num_layers": 3, "num_heads": 2, "norm": "rmsnorm"}
    config = TransformerConfig(
        vocab_size=11, window=8, activation=activation, dropout=0.0, bias=False, **sizes
    )
    torch.manual_seed(1)
    model = Transformer(config)
    add_adapters(model, 2, 4.0)
    for adapter in adapters_of(model).values():
        nn.init.normal_(adapter.b[0])
    with torch.no_grad():
        # One norm has a weight of 0, from whose result its input does not follow.
        model.blocks[1].feed_forward_norm.weight[3] = 0.0
    model.train()
    trained, saved, products = [p for p in model.parameters() if p.requires_grad], [], []
    plain = fast_layers.linear
    monkeypatch.setattr(fast_layers, "linear", lambda *a: products.append(a) or plain(*a))

    def numbers():
        saved.clear()
        products.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
            logits, _ = model(torch.arange(8)[None])
        gradients = torch.autograd.grad(logits.square().sum(), trained)
        return gradients, sum(x.numel() for x in saved), len(products)

    again, least, few = numbers()
    monkeypatch.setattr(AdaptedLinear, "keeps_only_input", False)
    kept, most, as_few = numbers()
    assert all(map(torch.equal, kept, again))
    assert least < most
    assert few == as_few  # no product with a frozen matrix is computed again


@pytest.mark.parametrize("zeros", [0, 2])
def test_a_norm_with_a_frozen_weight_has_torchs_gradient(zeros):
    torch.manual_seed(1)
    norm = fast_layers.RMSNorm(6, eps=1e-5).requires_grad_(False)
    norm.weight.normal_()[:zeros] = 0.0
    x, d_y = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)
    found = torch.autograd.grad(norm(x), x, d_y)
    exact = torch.autograd.grad(nn.functional.rms_norm(x, (6,), norm.weight, 1e-5), x, d_y)
    torch.testing.assert_close(found, exact)


def test_the_memory_for_converted_matrices_is_of_one_thread():
    torch.manual_seed(1)
    matrices = [torch.randn(n, n).bfloat16() for n in (3, 40, 7)] * 20
    inputs = [torch.randn(5, len(matrix)) for matrix in matrices]
    exact = [x @ matrix.float().T for x, matrix in zip(inputs, matrices, strict=True)]
    with torch.inference_mode():  # whose tensors take part in no gradient later
        frozen_linear(inputs[1], matrices[1], None)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda *both: frozen_linear(*both, None), inputs, matrices))
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.fast_for("bf16", rest="slow")
@pytest.mark.parametrize("lora_base", [None, "bf16"])
def test_adapters_of_a_base_are_resumed_bit_for_bit(lora_base, base, text):
    settings = {"lora": 2, "lora_base": lora_base, "steps": 6}
    result = tuned(text, "whole", **settings)
    train(
        [text],
        name="half",
        settings={**FEW, "seed": 2, "init_from": "base", **settings},
        stop_after=3,
    )
    resume("half")
    whole, half = weights("whole"), weights("half")
    assert all(torch.equal(whole[name], half[name]) for name in whole)
    assert all(x.dtype == torch.float32 for x in whole.values())
    exact = {"abs": 1e-5} if lora_base is None else {"abs": 0.02}
    assert load_loss("whole") == pytest.approx(result.val_loss, **exact)


def load_loss(name):
    return score_held_out(load(name, "cpu")).nats_per_token


def test_a_model_is_trained_in_the_memory_that_it_was_read_into(base, text, monkeypatch):
    places = []
    read, begin = InitialModel.load, session.Session._trainer

    def place(model):
        return model.get_parameter("embedding.weight").data_ptr()

    def loaded(*about):
        origin = read(*about)
        places.append(place(origin.model))
        return origin

    def begun(self, *about):
        places.append(place(self.loaded.model))
        return begin(self, *about)

    monkeypatch.setattr(InitialModel, "load", loaded)
    monkeypatch.setattr(session.Session, "_trainer", begun)
    for number, settings in enumerate([{"lora": 2}, {}, {"dropout": 0.3}]):
        tuned(text, f"m{number}", **settings)
    assert places[::2] == places[1::2]
