"""Options of `seqgen train`, `tune`, `sweep` and `find-lr`: files, architecture, settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seqgen import presets, registry
from seqgen.cli.shell.flags import SETTING_OF, assignment
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.model_options import Device
from seqgen.cli.shell.output import Output
from seqgen.cli.shell.pairs import (
    ONE_FILE,
    WITH_SOURCE,
    WITH_TARGET,
    check_one_pipe,
)
from seqgen.errors import UsageError
from seqgen.registry import SHARED_DOCS
from seqgen.settings import (
    CHOSEN,
    DataConfig,
    OptionRule,
    Options,
    Panel,
    file_argument,
    group,
    read_config,
    redeclare,
    setting,
    settings_group,
)
from seqgen.settings.data import HELD_OUT_SIDES, VECTOR_FILES
from seqgen.settings.generation import SampleOptions
from seqgen.settings.model import Smoothing
from seqgen.settings.options import added_options
from seqgen.settings.training import TrainingConfig

SettingFlags = settings_group(TrainingConfig, DataConfig)
# Of plugins. Each gives the setting of its name.
AddedFlags = added_options("recipe")


def task_help() -> str:
    """Write the help of `--task`, which lists the tasks that plugins add."""
    formats = "; ".join(f"{task.name} reads {task.example_format}" for task in registry.ON_FEATURES)
    default = next((task.default_trunk for task in registry.ON_FEATURES), None)
    encoders = "".join(
        f"{row.name}{' (the default)' * (row.name == default)}, "
        for row in registry.ARCHITECTURES.values()
        if row.is_encoder
    )
    return (
        f"Learn labels on the model's features: {formats}. Then --model is "
        f"{encoders.removesuffix(', ')} or a network that models text."
    )


FIELDS_OF_PAIRS = "--source-field and --target-field go together"


def task_option() -> Any:
    """Make the option `--task`, hidden from help if no plugin adds a task."""
    return setting(
        task_help(),
        metavar="|".join(task.name for task in registry.ON_FEATURES),
        completes="tasks",
        hidden=not registry.ON_FEATURES,
    )


class TrainingFiles(Options, panel=Panel.WHAT):
    """Options for the files of a training text, or of pairs."""

    data: tuple[str, ...] = file_argument(
        "Text files, folders or patterns, - for standard input, or one token file.",
        "DATA",
        common=True,
    )
    source: tuple[str, ...] = setting(
        "Sources of pairs in two files, one per line; needs --target. Pairs in one file are DATA: "
        "a source, a tab and a target on each line.",
        reads="file",
        panel=Panel.PAIRS,
        conflicts=("--source-vectors", *ONE_FILE),
        needs=WITH_TARGET,
    )
    source_vectors: str | None = setting(
        "Train on pairs of vectors and texts: a .npy or .safetensors file with a vector, a "
        "sequence or a grid of vectors for each target; needs --target.",
        reads="file",
        endings=VECTOR_FILES,
        panel=Panel.PAIRS,
        conflicts=ONE_FILE,
        needs=WITH_TARGET,
    )
    target: tuple[str, ...] = setting(
        "Targets of pairs in two files, in the order of --source or --source-vectors.",
        reads="file",
        panel=Panel.PAIRS,
        needs=WITH_SOURCE,
    )
    field: str | None = setting(
        "Read this key of .jsonl files, or this column of tables such as .csv and .parquet, as "
        "texts; a.b is b in a, and a,b both with a tab between them.",
        metavar="NAME",
        conflicts=OptionRule(
            ("--as-text",),
            "give {flag}, which reads the texts of records, or {other}, not both",
        ),
    )
    source_field: str | None = setting(
        "Field of the sources, in records of pairs.",
        metavar="NAME",
        panel=Panel.PAIRS,
        conflicts=("--field", "--as-text", "--source", "--source-vectors", "--target"),
        needs=OptionRule(("--target-field",), FIELDS_OF_PAIRS),
    )
    target_field: str | None = setting(
        "Field of the targets, in records of pairs.",
        metavar="NAME",
        panel=Panel.PAIRS,
        needs=OptionRule(("--source-field",), FIELDS_OF_PAIRS),
    )
    val_source: str | None = setting(
        "Held-out sources of pairs in two files; needs --val-target.",
        panel=Panel.PAIRS,
        reads="file",
        conflicts=OptionRule(("--val",), "give --val, or --val-source and --val-target, not both"),
        needs=OptionRule(("--val-target",), HELD_OUT_SIDES),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_pipe(*self.source, *self.target)

    def named(self, files: Iterable[str] = ()) -> list[str]:
        """List the files that training reads: DATA and `files`, without targets."""
        vectors = [] if self.source_vectors is None else [self.source_vectors]
        return [*self.data, *files] or [*self.source] or vectors

    def inputs(self, settings: Any, out: Output) -> Inputs:
        """List the input files, with the field to read from records."""
        one_line = settings.documents == "line" or self.target_field is not None
        field, as_text = self.field or self.source_field, bool(settings.as_text)
        return Inputs(out.quiet, field, one_line, as_text, self.target_field, trains=True)

    def targets(self, inputs: Inputs, data: Iterable[str]) -> list[str | Path]:
        """Keep the files of targets: --target, or the texts of a field of the records of `data`."""
        if self.target_field is None:
            return inputs.keep(self.target)
        return inputs.keep_beside(given_or_piped(data, "seqgen train FILE"))

    def held_out(self, settings: Any, inputs: Inputs) -> dict[str, str]:
        """Resolve the settings `val` and `val_target` from their flags.

        Their files are kept, so that they can be read again.
        """
        val = settings.val if settings.val is not None else self.val_source
        given = {"val": val, "val_target": settings.val_target}
        kept = {
            name: inputs.keep_held_out(file) for name, file in given.items() if file is not None
        }
        if self.target_field is not None and val is not None and Path(val).exists():
            kept["val_target"] = inputs.keep_held_out(val, beside=True)
        return kept


class ModelKind(Options, panel=Panel.WHAT):
    """Options that choose the architecture, a preset, or a model to start from."""

    model: str | None = setting(
        "Architecture, such as transformer or ngram; `seqgen models --architectures` lists "
        "all. lstm is the lstm alone; --model auto with .tsv files is a translator.",
        metavar="NAME",
        without=f"{registry.AUTO}, in train lstm + n-gram model",
        completes="architectures",
        common=True,
    )
    task: str | None = task_option()
    preset: str | None = setting(
        f"Use the settings of a known model: {', '.join(presets.PRESETS)}. Your own flags override "
        "them; --preset help describes them.",
        completes="presets",
    )

    @property
    def asked(self) -> dict[str, str | None]:
        """Keyword arguments of a `RunRequest` that choose the architecture."""
        return {"architecture": self.model, "task": self.task, "preset": self.preset}


class MoreSettings(Options, panel=Panel.OPTIMISATION):
    """Options for settings without a flag of their own: --set and --config."""

    config: Path | None = setting(
        "Read settings from a TOML file, or from a model's config.json.", reads="path"
    )
    set_: tuple[str, ...] = setting(
        "Set any other setting, as in --set patience=3; can be repeated. `seqgen train --set help` "
        "lists them all, --set help=KEY explains one.",
        names=("--set",),
        metavar="KEY=VALUE",
        common=True,
    )

    @property
    def tables(self) -> dict[str, Any]:
        """Settings of the --config file, as nested tables."""
        return read_config(self.config) if self.config else {}

    @property
    def assigned(self) -> dict[str, str]:
        """Values given by `--set`, by setting."""
        return dict(map(assignment, self.set_))


class Recipe(Options, panel=Panel.WHAT):
    """Options for what to train and with which settings."""

    kind: ModelKind = group(ModelKind)

    layers: int | None = setting(SHARED_DOCS["num_layers"], without=CHOSEN, common=True)
    hidden_size: int | None = setting(SHARED_DOCS["hidden_size"], without=CHOSEN, common=True)
    parameters: int | None = setting(
        "Choose the hidden size at which the model has about this many parameters, embedding and "
        "softmax layer included: 30000, 3e4, 100k, 1.5M.",
        reads="count",
    )
    heads: int | None = setting(SHARED_DOCS["num_heads"], without=CHOSEN)
    dropout: float | None = setting(SHARED_DOCS["dropout"], without=CHOSEN)
    order: int | None = setting(SHARED_DOCS["order"], without="5", panel=Panel.NGRAM)
    smoothing: Smoothing | None = setting(
        SHARED_DOCS["smoothing"], metavar="KIND", without="modified-kneser-ney", panel=Panel.NGRAM
    )
    given_settings: SettingFlags = group(SettingFlags)
    added: AddedFlags = group(AddedFlags)
    other_settings: MoreSettings = group(MoreSettings)

    def settings(self, machine: SeededDevice) -> dict[str, Any]:
        """Collect the settings given by flags and `--set`, by name."""
        names = ("layers", "hidden_size", "heads", "dropout", "order", "smoothing")
        flags = {SETTING_OF.get(name, name): getattr(self, name) for name in names}
        for part in (self.given_settings, *self.added.groups):
            flags |= part.to_dict()
        flags["seed"] = machine.seed
        given = {name: value for name, value in flags.items() if value is not None}
        return given | self.other_settings.assigned

    @property
    def asked(self) -> dict[str, Any]:
        """Keyword arguments of a `RunRequest` from this group, without the settings."""
        config = self.other_settings.tables
        return {**self.kind.asked, "config": config, "parameters": self.parameters}

    def put_help(self, out: Output) -> bool:
        """Print what `--preset help` or `--set help` asks for; return whether one was given."""
        from seqgen.cli.shell.known_settings import put_presets, put_settings

        if self.kind.preset == "help":
            put_presets(out)
            return True
        for key, _, name in (text.partition("=") for text in self.other_settings.set_):
            if key == "help":
                architecture = None if self.kind.model == registry.AUTO else self.kind.model
                if architecture is None and self.kind.preset:
                    architecture = presets.preset(self.kind.preset).architecture
                put_settings(architecture or registry.DEFAULT, out, name or None)
                return True
        return False


class SeededDevice(Device, panel=Panel.MACHINE):
    """Options for the device and the random seed."""

    seed: int | None = redeclare(SampleOptions, "seed", panel=Panel.MACHINE)


def check_no_model_name(data: Iterable[str]) -> None:
    """Suggest the right flag for `seqgen train gru book.txt`, which is an error."""
    for name in data:
        for flag, known in (("model", registry.ARCHITECTURES), ("preset", presets.PRESETS)):
            if name in known and not Path(name).exists():
                raise UsageError(
                    f"there is no file {name}; to train that {flag}, give --{flag} {name}"
                )
