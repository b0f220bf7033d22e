"""Base class of neural networks, language models or not."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from seqgen.settings import ModelConfig

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Network(nn.Module):
    """Neural network: a stack of layers under a linear head.

    Attributes:
        config: what built it; `type(network)(network.config)` has the same shape.
        head: the last map, to logits.
        trained_by: the default regime that trains it, as "module:class".
        settles: the first step after which its updates are small beside its weights.
    """

    settles: ClassVar[int] = 4
    trained_by: ClassVar[str] = "seqgen.training.regimes.teacher_forcing:NetworkLoss"
    config: ModelConfig
    head: nn.Linear

    def token_vectors(self) -> Tensor | None:
        """Return the embedding of each token, (V, D); None without embeddings.

        By default they are those of its `embedding`. A network with others overrides this.
        """
        embedding = getattr(self, "embedding", None)
        if embedding is None:
            return None
        tokens = torch.arange(self.config.vocab_size, device=next(self.parameters()).device)
        with torch.no_grad():
            return embedding(tokens)

    @property
    def stack(self) -> nn.ModuleList | None:
        """Stack of layers, or None."""
        return stack_of(self)

    def layers_in_order(self) -> list[list[nn.Module]]:
        """List the modules in groups, from the input to the output.

        First what stands before the stack of layers (an `nn.ModuleList`), then each of its
        layers, last what follows it, with the head. In a network without a stack, each module is a
        group. A network with another order overrides this.
        """
        if self.stack is not None:
            return groups_in_order(self)
        return [[child] for child in self.children() if child is not self.head] + [[self.head]]

    def parameters_in_order(self) -> list[list[nn.Parameter]]:
        """List the parameters by group of `layers_in_order`, each parameter once.

        A parameter that two groups share is in the later one. Parameters of the network itself are
        in the first.
        """
        groups: list[list[nn.Parameter]] = []
        known: set[nn.Parameter] = set()
        for modules in reversed(self.layers_in_order()):
            new = [p for module in modules for p in module.parameters() if p not in known]
            known.update(new)
            groups.append(new)
        groups[-1] += [p for p in self.parameters(recurse=False) if p not in known]
        return [group for group in reversed(groups) if group]


def stack_of(module: nn.Module) -> nn.ModuleList | None:
    """Find the stack of layers in a module; None if it has none."""
    return next((c for c in module.children() if isinstance(c, nn.ModuleList)), None)


def groups_in_order(module: nn.Module) -> list[list[nn.Module]]:
    """List a module's children in groups: those before its stack, each layer, the rest."""
    children, stack = list(module.children()), stack_of(module)
    if stack is None:
        return [[child] for child in children]
    at = children.index(stack)
    return [children[:at], *([layer] for layer in stack), children[at + 1 :]]


def hidden_matrices(network: Network) -> Iterator[tuple[nn.Parameter, tuple[int, ...]]]:
    """Yield each matrix between embedding and head, with the rows of each stacked map.

    A module whose matrices hold several maps below one another, as gates are, says so by its
    attribute `maps`: for each such matrix, by name, the rows of each map.
    """
    of_head = set() if network.head is None else set(network.head.parameters())
    for module in network.modules():
        if not isinstance(module, nn.Embedding):
            declared = getattr(module, "maps", {})
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.ndim == 2 and parameter not in of_head:
                    yield parameter, declared.get(name, (len(parameter),))


def copy_network(network: AnyModule, weights: Iterable[Tensor] = ()) -> AnyModule:
    """Copy a network and its weights, but share data about the training text.

    Args:
        network: what is copied.
        weights: those of its tensors that the copy is to share.
    """
    attributes = [value for part in network.modules() for value in vars(part).values()]
    shown = [value for value in attributes if isinstance(value, np.ndarray)]
    return copy.deepcopy(network, {id(value): value for value in (*shown, *weights)})
