"""Where things are in a checkout."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
CORPORA = ROOT / "corpora"
# Models that earlier versions stored, and the texts they know.
STORED = TESTS / "stored"
