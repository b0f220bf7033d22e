"""What every neural network of the project has, whether or not it is a language model."""

from __future__ import annotations

from torch import nn

from seqgen.configs import ModelConfig


class Network(nn.Module):
    """A stack of layers under a linear head.

    Attributes:
        config: what built it; `type(network)(network.config)` has the same shape.
        head: the last map, to logits.
    """

    config: ModelConfig
    head: nn.Linear

    def layers_in_order(self) -> list[list[nn.Module]]:
        """Return the network's modules in groups, each used after the ones before it.

        First what stands before the stack of layers (an `nn.ModuleList`), then each of its
        layers, last what follows it, the head among that. A network without a stack has a group
        a module. Another order is for a network of its own kind to say.
        """
        children = list(self.children())
        stack = next((c for c in children if isinstance(c, nn.ModuleList)), None)
        if stack is None:
            return [[child] for child in children if child is not self.head] + [[self.head]]
        at = children.index(stack)
        return [children[:at], *([layer] for layer in stack), children[at + 1 :]]

    def parameters_in_order(self) -> list[list[nn.Parameter]]:
        """Return every parameter once, in the groups of `layers_in_order` that have any.

        What two groups share is in the later one, the network's own is in the first.
        """
        found: list[list[nn.Parameter]] = []
        known: set[nn.Parameter] = set()
        for modules in reversed(self.layers_in_order()):
            own = [p for module in modules for p in module.parameters() if p not in known]
            known.update(own)
            found.append(own)
        found[-1] += [p for p in self.parameters(recurse=False) if p not in known]
        return [group for group in reversed(found) if group]
