"""A light GRU, counts of words, weights as arrays, and a log of losses."""

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    version=1,
    commands={"count": Command("command:count", panel="Text")},
)
