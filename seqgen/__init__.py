"""seqgen: train a language model on a text file, write with it, and score text with it."""

from __future__ import annotations

# Type checkers know this name. The module `typing` takes milliseconds to import, in which Ctrl-C
# would find no handler yet.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from pathlib import Path

    from seqgen.engines.precision import Precision
    from seqgen.generation.model import Model
    from seqgen.settings.scoring import CacheConfig

__version__ = "0.1.0"


def load(
    name: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    cache: CacheConfig | None = None,
) -> Model:
    """Load a trained model to write with: `seqgen.load("latest").sample("Once")`.

    Args:
        name: a name, a path, or "latest" or None for the latest written.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32.
        cache: a continuous cache to put beside it, such as `CacheConfig(500)`.

    Raises:
        SeqgenError: there is no such model, or it is damaged, or it can have no cache.
    """
    # Only now, so that `import seqgen` loads no torch.
    from seqgen.generation import model

    return model.load(name, device, precision, cache)
