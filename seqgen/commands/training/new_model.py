"""What a new model's folder holds before it has weights: settings, tokenizers, held-out text."""

from __future__ import annotations

from seqgen import store
from seqgen.configs import DataConfig, ModelConfig, TrainingConfig
from seqgen.data.framing import Framing
from seqgen.store import StoredModel
from seqgen.store.model import Adapter
from seqgen.tasks.datasets.prepared import Prepared


def write_settings(
    stored: StoredModel,
    architecture: str,
    config: ModelConfig,
    data: DataConfig,
    framing: Framing,
    training: TrainingConfig | None,
    preset: str | None = None,
    base: StoredModel | None = None,
) -> None:
    """Write the resolved settings into a model's folder.

    Args:
        stored: the folder.
        architecture: its name.
        config: of the model.
        data: how text is read.
        framing: how texts begin and end.
        training: a counted model has none.
        preset: the name of the preset beneath the settings, if any.
        base: the model that it begins from, which its adapters are of, if it has any.
    """
    groups = {}
    if training is not None and training.lora is not None:
        adapter = Adapter(base.reference, training.lora, training.lora_alpha)
        groups["adapter"] = adapter.to_dict()
    stored.write_config(
        architecture,
        preset=preset,
        model=config.to_dict(),
        training={} if training is None else training.to_dict(),
        data=data.to_dict(),
        framing=framing.to_dict(),
        **groups,
    )


def write_data(stored: StoredModel, prepared: Prepared) -> None:
    """Write the tokenizers and the held-out part into a model's folder."""
    with stored.writing(store.TOKENIZER):
        prepared.tokenizer.save(stored.path / store.TOKENIZER)
        if prepared.classes is not None:
            prepared.classes.save(stored.path / store.TOKENIZER)
    if prepared.source_tokenizer not in (None, prepared.tokenizer):
        with stored.writing(store.SOURCE_TOKENIZER):
            prepared.source_tokenizer.save(stored.path / store.SOURCE_TOKENIZER)
    with stored.writing("validation"):
        prepared.keep_validation(stored)
