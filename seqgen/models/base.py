"""Base classes of torch models: language models, neural or estimated from counts."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.engines.parts import Pieces, fill
from seqgen.engines.weights import FLOATS, require_types
from seqgen.models.inference import Configured, HiddenStateModel, InferenceModel
from seqgen.models.low_rank import adapter_tensors, adapters_of
from seqgen.models.network import Network

if TYPE_CHECKING:
    from seqgen.models.state import State
    from seqgen.settings import ModelConfig


class TorchModel(nn.Module, Configured):
    """Torch module that can be trained and stored.

    `type(model)(model.config)` has the same shape.

    Attributes:
        counted: it is estimated from counts, not trained by gradients; its row in the registry
            names the estimator.
        carries_state: a state goes on from one training window to the next (truncated BPTT).
        recurrent: it reads a token and the hidden state before it, whose size never changes; such a
            model can be exported as one step.
        both_ways: it reads each text from both of its ends.
    """

    counted: ClassVar[bool] = False
    carries_state: ClassVar[bool] = False
    recurrent: ClassVar[bool] = False
    both_ways: ClassVar[bool] = False

    def parameter_count(self) -> int:
        """Count the trained parameters; shared ones count once, adapters not at all."""
        of_adapters = (p for adapter in adapters_of(self).values() for p in adapter.parameters())
        every = sum(p.numel() for p in self.parameters())
        return every - sum(p.numel() for p in of_adapters)

    @property
    def device(self) -> torch.device:
        """Device of the model's tensors."""
        tensor = next(itertools.chain(self.parameters(), self.buffers()), None)
        return torch.device("cpu") if tensor is None else tensor.device

    def ids(self, ids: np.ndarray) -> Tensor:
        """Convert token ids of any shape to an int64 tensor on the model's device."""
        return torch.from_numpy(ids).to(self.device)

    @property
    def precision(self) -> str:
        """Data type of the computation, or the precision of quantized matrices."""
        quantized = getattr(self, "quantized", None)
        if quantized:
            return {"bf16": "bfloat16"}.get(quantized, quantized)
        tensors = itertools.chain(self.parameters(), self.buffers())
        kinds = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
        return str(next(kinds, torch.float32)).removeprefix("torch.")

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        """Give a new model the spelling of its tokens; by default unused.

        Args:
            words: the V tokens.
            spelled_out: each is a character, or a byte.

        Raises:
            UsageError: it reads words, and these are none.
        """

    def begin_from(self, origin: TorchModel, same_labels: bool) -> None:
        """Copy the weights of a trained model of the same shape.

        Args:
            origin: the trained model.
            same_labels: whether it predicts the same labels as this one, if it predicts any. A
                network with a head on features overrides this.

        Raises:
            RuntimeError: its weights do not fit this model.
        """
        load_weights(self, weights_of(origin))

    def survey(
        self, tokens: np.ndarray, no_words: Sequence[int], ends: np.ndarray | None = None
    ) -> None:
        """Give a model its training tokens before a run starts or resumes; by default unused.

        Args:
            tokens: (N,), the training part.
            no_words: the special tokens among them.
            ends: (D,), where each document ends; None for one.
        """


class LanguageModel(TorchModel, InferenceModel):
    """Language model that is a torch module.

    Training calls it without a state: there is no past then, and no cache.
    """

    @abstractmethod
    def forward(
        self, tokens: Tensor, state: State | None = None, last: int | None = None
    ) -> tuple[Tensor, State | None]:
        """Compute the logits of the token after each input token.

        Args:
            tokens: (B, T) of int64, T >= 1.
            state: of what came before, used up by the call; None for no past and no cache.
            last: give logits for the last so many positions only.

        Returns:
            Logits (B, T, V), or (B, last, V), in float32 or the parameters' type if wider; some
            may be -inf, never NaN, never all -inf. And the state after the tokens.
        """

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        """Feed one token per row to the model; see `InferenceModel.step`.

        A model with a faster way for one token than `forward` overrides this.

        Raises:
            ValueError: the state carries a graph.
        """
        require_no_graph(state)
        with torch.no_grad():
            logits, state = self(torch.tensor(tokens, device=self.device)[:, None], state)
        return logits[:, 0].cpu().numpy(), state


class Compilable:
    """Mixin of modules with a part of the training call that can be compiled."""

    over_tensors: Callable[..., Tensor] | None = None
    """Part of the training call that takes only tensors and can be compiled; None without one."""
    _compiled: Callable[..., Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Compiled code is bound to this object, so a copy begins without.
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def compile_training(self) -> None:
        """Compile `over_tensors` for training calls.

        The code is made in the first such call, in tens of seconds.
        """
        self._compiled = torch.compile(self.over_tensors)

    def forget_compiled(self) -> None:
        """Undo `compile_training`."""
        self._compiled = None


class NeuralLanguageModel(Compilable, HiddenStateModel, LanguageModel, Network):
    """Neural language model in torch: hidden states and a linear head.

    Args:
        config: of the model.
        pieces: what it is made of; those of its configuration if None.

    Attributes:
        output_dropout: in a model whose configuration has penalties on activations, the module
            through which the features pass last.
    """

    trained_by: ClassVar[str] = "seqgen.training.regimes.teacher_forcing:TeacherForcing"
    output_dropout: nn.Module
    forward = HiddenStateModel.predict

    def __init__(self, config: ModelConfig, pieces: Pieces | None = None) -> None:
        super().__init__()
        self.config = config
        fill(self, self.pieces(config) if pieces is None else pieces)

    @property
    def like(self) -> Tensor:
        """Tensor with the data type and device of the features."""
        if self.head is not None:
            return self.head.weight
        return next(x for x in self.state_dict().values() if x.is_floating_point())


def require_no_graph(state: State) -> None:
    """Raise an error if a state takes part in an autograd graph.

    Raises:
        ValueError: it carries a graph.
    """
    if any(getattr(leaf, "requires_grad", False) for leaf in state.tensors()):
        raise ValueError("a decoding step takes no part in a graph: pass state.detach()")


def weights_of(model: LanguageModel) -> dict[str, Tensor]:
    """List the stored tensors of a model by name; shared tensors appear under one name.

    Of a model with low-rank adapters, they are the adapters' alone.
    """
    if adapters := adapter_tensors(model):
        return adapters
    # Tensors without elements all have the same address, and are not shared for that.
    tensors = model.state_dict()
    names = {t.data_ptr() if t.numel() else name: name for name, t in reversed(tensors.items())}
    return {name: tensor for name, tensor in tensors.items() if name in names.values()}


def load_weights(model: LanguageModel, tensors: dict[str, Tensor]) -> None:
    """Copy the tensors of `weights_of` into a model.

    Raises:
        RuntimeError, ValueError: they do not fit the model.
    """
    if adapters := adapter_tensors(model):
        _fill_adapters(adapters, tensors)
        return
    _require_types(tensors, model.state_dict())
    _require_all(model, *model.load_state_dict(tensors, strict=False))


def take_weights(model: LanguageModel, tensors: dict[str, Tensor]) -> None:
    """Replace a model's tensors by the given ones without copying; see `load_weights`.

    Raises:
        RuntimeError, ValueError: they do not fit the model.
    """
    shared: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        shared.setdefault(id(parameter), []).append(name)
    state = model.state_dict()
    _require_types(tensors, state)
    tensors = {name: x.to(state[name].dtype) if name in state else x for name, x in tensors.items()}
    read = model.load_state_dict(tensors, strict=False, assign=True)
    for names in shared.values():
        taken = next((name for name in names if name in tensors), None)
        for name in names if taken is not None else ():
            path, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(path), leaf, model.get_parameter(taken))
    _require_all(model, *read)


def _require_types(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Check that tensors have the model's data types; convert floating-point ones."""
    stored_types, expected = (
        {n: FLOATS if x.is_floating_point() else str(x.dtype)[6:] for n, x in each.items()}
        for each in (tensors, own)
    )
    require_types(stored_types, expected)


def _require_all(model: LanguageModel, missing: list[str], unexpected: list[str]) -> None:
    """Raise an error if tensors of a model are missing or unexpected."""
    stored = weights_of(model).keys()
    wrong = [*(name for name in missing if name in stored), *unexpected]
    if wrong:
        more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        raise RuntimeError(f"tensors do not fit: {', '.join(wrong[:3])}{more}")


@torch.no_grad()
def _fill_adapters(adapters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy stored tensors into low-rank adapters; see `load_weights`."""
    shapes = [{name: x.shape for name, x in part.items()} for part in (adapters, tensors)]
    if shapes[0] != shapes[1]:
        raise RuntimeError("the adapters do not fit the model")
    _require_types(tensors, adapters)
    for name, adapter in adapters.items():
        adapter.copy_(tensors[name])
