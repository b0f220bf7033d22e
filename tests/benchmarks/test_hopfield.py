"""How many patterns a Hopfield network restores, by its load."""

import pytest
from helpers_cli import records

from benchmarks.__main__ import run

pytest.importorskip("seqgen.plugins.hopfield")


def test_below_a_tenth_of_the_units_patterns_are_restored_and_not_far_above_0_14():
    from benchmarks.hopfield import measure

    loads = {load.load: load for load in measure(units=400, flipped=0.2, tried=10, seed=0)}
    assert all(load.restored == 1 for load in loads.values() if load.load < 0.1)
    assert loads[0.2].restored == 0 and loads[0.2].right < 0.8
    assert loads[0.05].patterns == 20


def test_the_table_of_loads(capsys):
    found = records(capsys, "hopfield", "--units", 50, "--patterns", 2, by=run)
    assert [record["load"] for record in found][:2] == [0.02, 0.05]
    assert run(["hopfield", "--units", "50", "--patterns", "1"]) == 0
    assert "patterns per unit" in capsys.readouterr().out
