"""Shell completion of model names, architectures, presets and choices. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from seqgen import hooks, registry, store

TOKENIZERS = ("char", "byte", "word", "whitespace", "bpe", "unigram")
DEVICES = ("auto", "cpu", "cuda", "mps")


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def one_of(*names: str) -> Callable[[str], list[str]]:
    """Return a completion of fixed names."""

    def complete(incomplete: str) -> list[str]:
        return _beginning(names, incomplete)

    return complete


def models(incomplete: str) -> list[str]:
    """Return the names of trained models; of a mixture A+B, those of its last part."""
    before, plus, last = incomplete.rpartition("+")
    folder = store.models_folder()
    try:
        names = sorted(path.parent.name for path in folder.glob(f"*/{store.CONFIG}"))
    except OSError:
        return []
    return [before + plus + name for name in _beginning(names, last) if name[0] != "."]


def preset_names(incomplete: str) -> list[str]:
    """List the names of presets for shell completion."""
    from seqgen import presets

    return _beginning(presets.PRESETS, incomplete)


architectures = one_of(*registry.ARCHITECTURES)
tokenizers = one_of(*TOKENIZERS, *hooks.by_name("tokenizers"))
tasks = one_of(*(task.name for task in registry.ON_FEATURES))
devices = one_of(*DEVICES)
