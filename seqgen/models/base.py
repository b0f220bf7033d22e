"""The one interface that every model has, counted or trained."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.configs import ModelConfig
from seqgen.models.state import State

Made = TypeVar("Made")

# Scoring makes at most this many logits at a time (32 MB in float32).
LOGITS_AT_ONCE = 1 << 23


class LanguageModel(nn.Module):
    """A distribution over the next token, given those before it.

    Attributes:
        config: what built it; `type(model)(model.config)` has the same shape.
        counted: it is estimated from counts (`training.counting`), not trained by gradients.
        carries_state: a state goes on from one training window to the next (truncated BPTT).
        window: how many tokens one training call may hold, or None where there is no limit.
        rows_at_least: how many rows scoring works on side by side at least: many where the
            tokens cost less than the call.
    """

    counted: ClassVar[bool] = False
    carries_state: ClassVar[bool] = False
    rows_at_least: ClassVar[int] = 1
    window: int | None = None
    config: ModelConfig

    @property
    def vocab_size(self) -> int:
        """The number of tokens V."""
        return self.config.vocab_size

    def parameter_count(self) -> int:
        """Return the number of trained numbers; shared ones count once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the model's tensors are."""
        tensor = next(itertools.chain(self.parameters(), self.buffers()), None)
        return torch.device("cpu") if tensor is None else tensor.device

    @abstractmethod
    def forward(
        self, tokens: Tensor, state: State | None = None, last: int | None = None
    ) -> tuple[Tensor, State | None]:
        """Predict the token after each.

        Args:
            tokens: (B, T) of int64, T >= 1.
            state: of what came before, used up by the call; None for no past and no cache.
            last: give logits for the last so many positions only.

        Returns:
            Logits (B, T, V), or (B, last, V), in float32 or the parameters' type if wider; some
            may be -inf, never NaN, never all -inf. And the state after the tokens.
        """

    @abstractmethod
    def start(self, batch: int, stride: int | None = None) -> State:
        """Open a state for scoring and decoding, with `batch` rows and no past.

        Args:
            batch: rows B.
            stride: how many tokens a full window gives up at a time (transformers; W/2 unless
                told); models without a window ignore it.
        """

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        """Read one token of each row, as decoding does.

        Args:
            tokens: B ids.
            state: of what came before, used up by the call.

        Returns:
            The logits after each, an array (B, V), and the state after. A model with a faster way
            for one token than `forward` overrides this.
        """
        logits, state = self(torch.tensor(tokens, device=self.device)[:, None], state)
        return logits[:, 0].cpu().numpy(), state

    def score(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the log-probability of each target, in nats, (B, T), and the state after.

        Args:
            tokens: (B, T) of int64, what is read.
            targets: (B, T) of int64, the token to be scored after each.
            state: from `start` or an earlier call; used up.
        """
        log_probs, _, state = self.rank(tokens, targets, state)
        return log_probs, state

    def rank(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """`score`, and how many tokens were more probable than each target, (B, T) of int64.

        Among equals the smaller id counts as more probable, so that rank 0 is what greedy
        decoding would have chosen.
        """
        length = max(1, LOGITS_AT_ONCE // (tokens.shape[0] * self.vocab_size))
        log_probs, ranks = [], []
        for piece, wanted in zip(tokens.split(length, 1), targets.split(length, 1), strict=True):
            logits, state = self(piece, state)
            wanted = wanted.unsqueeze(-1)  # (B, T', 1)
            chosen = logits.gather(-1, wanted)  # (B, T', 1)
            log_probs.append((chosen - logits.logsumexp(-1, keepdim=True)).squeeze(-1))
            smaller = torch.arange(logits.shape[-1], device=logits.device) < wanted
            ranks.append(((logits > chosen) | ((logits == chosen) & smaller)).sum(-1))
        return torch.cat(log_probs, 1), torch.cat(ranks, 1), state

    @property
    def quick_ranks(self) -> bool:
        """Whether `rank` costs little more than `score`; not where it alone needs rows (V)."""
        return True

    def hits(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """`score`, and whether each target is what greedy decoding would choose, (B, T) of bool.

        A model that looks probabilities up overrides it with something cheaper than `rank`.
        """
        log_probs, ranks, state = self.rank(tokens, targets, state)
        return log_probs, ranks == 0, state


class NeuralLanguageModel(LanguageModel):
    """A model that makes features of the past and a linear `head` over them."""

    head: nn.Linear
    over_tensors: Callable[..., Tensor] | None = None
    """What a training call runs over tensors alone, in a model that has such a part."""
    _compiled: Callable[..., Tensor] | None = None

    def hidden_matrices(self) -> Iterator[tuple[nn.Parameter, int]]:
        """Yield each matrix between embedding and head, and how many maps are stacked in it.

        A module that stacks maps on top of one another in one tensor, as gates are, says so by
        its attribute `stacked`.
        """
        for module in self.modules():
            if module is not self.head and not isinstance(module, nn.Embedding):
                for parameter in module.parameters(recurse=False):
                    if parameter.ndim == 2:
                        yield parameter, getattr(module, "stacked", 1)

    def __getstate__(self) -> dict[str, Any]:
        # What can be made again, and holds functions of this very object.
        made = ("_prepared", "_compiled")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def suits_arrays(self) -> bool:
        """Return whether NumPy can take a step as torch would, in the same arithmetic."""
        weight = self.head.weight
        exact = weight.dtype in (torch.float32, torch.float64)
        plain = not self.training and not torch.is_autocast_enabled("cpu")
        return exact and plain and weight.device.type == "cpu"

    def prepared(self, make: Callable[[], Made]) -> Made:
        """Return what `make` makes of the weights; made anew when one has changed in place since.

        A parameter that is replaced by another is not noticed.
        """
        known = self.__dict__.get("_prepared")
        if known is None or known[0] != [*map(_mark, known[1])]:
            # Tensors made in inference mode count no versions, and nothing trains them.
            weights = [weight for weight in self.parameters() if not weight.is_inference()]
            # Not through nn.Module's own __setattr__, for which it would be a part of the model.
            known = self.__dict__["_prepared"] = [*map(_mark, weights)], weights, make()
        return known[2]

    def compile_training(self) -> None:
        """Have training calls run `over_tensors` compiled.

        The code is made in the first such call, in tens of seconds.
        """
        self._compiled = torch.compile(self.over_tensors)

    def forget_compiled(self) -> None:
        """Have training calls run it as it is written again."""
        self._compiled = None

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """Return the parameters in groups, each used after the ones before it.

        First what stands before the stack of layers (an `nn.ModuleList`), then each of its
        layers, last what follows it, the head among that. A model without a stack has a group
        a module. What two groups would share is in the later one.
        """
        children = list(self.children())
        stack = next((c for c in children if isinstance(c, nn.ModuleList)), None)
        groups = [[child] for child in children if child is not self.head] + [[self.head]]
        if stack is not None:
            at = children.index(stack)
            groups = [children[:at], *([layer] for layer in stack), children[at + 1 :]]
        found: list[list[nn.Parameter]] = []
        known: set[nn.Parameter] = set()
        for modules in reversed(groups):
            own = [p for module in modules for p in module.parameters() if p not in known]
            known.update(own)
            found.append(own)
        found[-1] += [p for p in self.parameters(recurse=False) if p not in known]
        return [group for group in reversed(found) if group]

    @abstractmethod
    def hidden(self, tokens: Tensor, state: State | None) -> tuple[Tensor, State | None]:
        """Return the features (B, T, H) from which the head predicts, and the state after."""

    def forward(
        self, tokens: Tensor, state: State | None = None, last: int | None = None
    ) -> tuple[Tensor, State | None]:
        features, state = self.hidden(tokens, state)
        if last is not None:
            features = features[:, -last:]
        logits = self.head(features)  # (B, T, V)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)), state


def _mark(weight: Tensor) -> tuple[int, int]:
    """Return what is another when the tensor holds something else."""
    return weight.data_ptr(), weight._version


def weights_of(model: LanguageModel) -> dict[str, Tensor]:
    """Return the model's tensors by name; one that two parts share stands under one name."""
    # Tensors without elements all have the same address, and are not shared for that.
    tensors = model.state_dict()
    names = {t.data_ptr() if t.numel() else name: name for name, t in reversed(tensors.items())}
    return {name: tensor for name, tensor in tensors.items() if name in names.values()}


def load_weights(model: LanguageModel, tensors: dict[str, Tensor]) -> None:
    """Fill a model with the tensors that `weights_of` gave.

    Raises:
        RuntimeError: they do not fit the model.
    """
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    stored = weights_of(model).keys()
    wrong = [*(name for name in missing if name in stored), *unexpected]
    if wrong:
        more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        raise RuntimeError(f"tensors do not fit: {', '.join(wrong[:3])}{more}")
