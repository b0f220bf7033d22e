"""Tables for --field: CSV and TSV files, and data sets that Hugging Face datasets has saved."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    record_readers={
        ".csv": "delimited:read_csv",
        ".tsv": "delimited:read_tsv",
        ".arrow": "arrow:read_arrow",
    },
)
