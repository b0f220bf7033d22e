"""A light GRU, counts of words, weights as arrays of NumPy, and a file of losses."""

from seqgen.hooks import Command, ModelFormat, Plugin

PLUGIN = Plugin(
    version=1,
    commands={"count": Command("command:count", panel="Text")},
    formats={"npz": ModelFormat(form="file", exporter="arrays:write")},
    listeners=("losses:listen",),
    options={"train": "losses:LossOptions"},
)
