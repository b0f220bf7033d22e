"""Ensembles: several networks trained in parallel in one run and used as a mixture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from seqgen.models.mixture.model import Mixture
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.models.network import Network

# The random seeds of torch are below this.
SEEDS = 1 << 63


class Members(Mixture, Network):
    """Ensemble of K networks of one shape, trained as one module.

    Args:
        networks: the K networks.
        weights: theirs in the mixture; equal ones if None.
    """

    def __init__(self, networks: Sequence[Network], weights: Sequence[float] | None = None) -> None:
        super().__init__(networks, MixtureWeights(weights or [1.0] * len(networks)))
        first = networks[0]
        self.config, self.settles = first.config, first.settles
        self.carries_state = first.carries_state

    @property
    def head(self) -> nn.ModuleList:
        """Heads of all members."""
        return nn.ModuleList(part.head for part in self.components)

    def layers_in_order(self) -> list[list[nn.Module]]:
        each = zip(*(part.layers_in_order() for part in self.components), strict=True)
        return [[module for group in groups for module in group] for groups in each]

    def survey(
        self, tokens: np.ndarray, no_words: Sequence[int], ends: np.ndarray | None = None
    ) -> None:
        for part in self.components:
            part.survey(tokens, no_words, ends)


def members_of(model: Network) -> Sequence[Network]:
    """List the networks of an ensemble; of any other model, itself."""
    return model.components if isinstance(model, Members) else [model]


def build_members(make: Callable[[], Network], members: int | None, seed: int) -> Network:
    """Build a network, or an ensemble whose members are initialized from different seeds.

    Args:
        make: draws a network by torch's generator.
        members: how many; None for one alone.
        seed: the first one's; each has the next after the one before.
    """
    networks = []
    for number in range(members or 1):
        torch.manual_seed((seed + number) % SEEDS)
        networks.append(make())
    return networks[0] if members is None else Members(networks)
