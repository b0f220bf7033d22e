"""Tables for --field: CSV, TSV and parquet files, and data sets of Hugging Face datasets.

Pages: docs/text.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    record_readers={
        ".csv": "delimited:read_csv",
        ".tsv": "delimited:read_tsv",
        ".parquet": "arrow:read_parquet",
        ".arrow": "arrow:read_arrow",
    },
)
