"""Tables for --field: CSV, TSV and parquet files, data sets of Hugging Face datasets; data frames.

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
    methods={"records": {"python-objects": "frames:texts_of_objects"}},
)
