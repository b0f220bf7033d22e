"""What a token costs a hidden Markov model, as the benchmark prints it."""

from helpers_cli import needs, records, refusal

from benchmarks.__main__ import run


@needs("hmm")
def test_the_cost_of_a_token_is_measured(capsys):
    found = records(capsys, "hmm", "--states", "2,3", "--repeats", 1, by=run)
    assert [record["states"] for record in found] == [2, 3]
    assert all(record["scoring"] > 0 and record["training"] > 0 for record in found)
    assert run(["hmm", "--states", "2", "--repeats", "1"]) == 0
    assert "scoring, us/token" in capsys.readouterr().out
    for wrong, said in {
        "0": "must be at least 1",
        "a": "must be a whole number",
        "1,": "takes a list",
        "99999": "must be from 1 to 4,096",
    }.items():
        assert f"--states {said}" in refusal(capsys, "hmm", "--states", wrong, by=run)
