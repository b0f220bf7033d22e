"""The examples of docs/cluster: what they run, and whether others' schemas accept them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_cli import needs

from seqgen.cli import command_tree_for, run

FOLDER = Path(__file__).parents[2] / "docs" / "cluster"
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def manifest(name: str) -> dict:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


@pytest.fixture
def jobs(tmp_path, capsys, monkeypatch):
    """A file of jobs, of a text whose name a shell would split; its lines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a text.txt").write_text("the cat sat on the mat and the dog sat on the log\n" * 20)
    sweep = ("sweep", "a text.txt", "--models", "rnn,gru", "--parameters", "2k,3k", "--steps", "4")
    assert run([*sweep, "--quiet", "--print-jobs"]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "jobs.txt").write_text(printed)
    return printed.splitlines()


def arguments_run_by(script: list[str], folder: Path, **variables: str) -> list[str]:
    """Run a script with a `seqgen` that prints its arguments; return them."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "seqgen").write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
    (programs / "seqgen").chmod(stat.S_IRWXU)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", **variables}
    done = subprocess.run(script, cwd=folder, env=environment, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@needs("tune")
def test_each_pod_runs_its_line(jobs, tmp_path):
    job = manifest("job.yaml")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert mounts.keys() == volumes
    assert job["spec"]["completionMode"] == "Indexed"  # which sets JOB_COMPLETION_INDEX
    place, here = f"{mounts['jobs']}/jobs.txt", str(tmp_path / "jobs.txt")
    command = [part.replace(place, here) for part in container["command"]]
    assert command != container["command"]
    for index, line in enumerate(jobs):
        given = arguments_run_by(command, tmp_path, JOB_COMPLETION_INDEX=str(index))
        assert given == shlex.split(line)[1:]
        command_tree_for(given).make_context("seqgen", given, resilient_parsing=False)


@needs("tune")
def test_each_managed_job_runs_its_line(jobs, tmp_path):
    task = manifest("sky.yaml")
    assert task["envs"] == {"JOB": "1"}  # the schema has texts alone
    for number, line in enumerate(jobs, start=1):
        script = ["bash", "-c", task["run"]]
        given = arguments_run_by(script, tmp_path, JOB=str(number), HOME=str(tmp_path))
        assert given == shlex.split(line)[1:]


def test_the_job_has_the_fields_of_kubernetes():
    """Every field is one of the API's, and is of its type, by its client for Python."""
    models = pytest.importorskip("kubernetes", reason="kubernetes is not installed").client

    def check(value: object, kind: str, place: str) -> None:
        if inner := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
            assert isinstance(value, list), place
            for each in value:
                check(each, inner[1], place)
        elif re.fullmatch(r"dict\(.+\)|[Dd]ict\[.+\]", kind):
            assert isinstance(value, dict), place
        elif hasattr(models, kind):
            model = getattr(models, kind)
            fields = {theirs: own for own, theirs in model.attribute_map.items()}
            assert value.keys() <= fields.keys(), place
            made = {fields[name]: one for name, one in value.items()}
            model(**made)  # which refuses an object without what it needs
            for name, one in value.items():
                check(one, model.openapi_types[fields[name]], f"{place}.{name}")
        else:
            assert type(value).__name__ == kind, place

    job = manifest("job.yaml")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    check(job, "V1Job", "job")
    spec = job["spec"]["template"]["spec"]
    assert spec["restartPolicy"] in ("Never", "OnFailure")  # as a Job's pods need


def test_the_task_has_the_fields_of_skypilot():
    schemas = pytest.importorskip("sky.utils.schemas", reason="skypilot is not installed")
    import jsonschema

    jsonschema.validate(manifest("sky.yaml"), schemas.get_task_schema())


def test_slurm_reads_the_options_of_the_script():
    """The options stand before the first command, where alone sbatch reads them."""
    script = (FOLDER / "array.sbatch").read_text(encoding="utf-8")
    assert script.startswith("#!/bin/bash\n")
    rows = [row for row in script.splitlines() if row.strip()]
    first = next(n for n, row in enumerate(rows) if not row.startswith("#"))
    options = [n for n, row in enumerate(rows) if row.startswith("#SBATCH")]
    assert options and max(options) < first
    assert subprocess.run(["bash", "-n", str(FOLDER / "array.sbatch")]).returncode == 0


@needs("tune")
@pytest.mark.long
def test_gnu_parallel_repeats_only_the_job_that_failed(jobs, tmp_path):
    """The page's own command, with a `seqgen` that is missing for the third job at first."""
    if not shutil.which("parallel"):
        pytest.skip("GNU parallel is not installed")
    page = (FOLDER / "index.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^parallel --jobs .*$", page, re.MULTILINE)
    programs = tmp_path / "bin"
    programs.mkdir()
    own = shlex.quote(sys.executable)
    fails = '[ "$PARALLEL_SEQ" = 3 ] && [ ! -e mended ] && exit 7\n'
    (programs / "seqgen").write_text(f'#!/bin/bash\n{fails}exec {own} -m seqgen "$@"\n')
    (programs / "seqgen").chmod(stat.S_IRWXU)
    root = str(Path(__file__).parents[2])
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": root,
        "SEQGEN_HOME": str(tmp_path / "home"),
    }

    def exit_codes() -> list[str]:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, timeout=300)
        assert done.returncode == (0 if (tmp_path / "mended").exists() else 1)
        rows = (tmp_path / "jobs.log").read_text().splitlines()[1:]
        return [f"{row.split()[0]}: {row.split()[6]}" for row in rows]

    assert len(jobs) == 4
    assert sorted(exit_codes()) == ["1: 0", "2: 0", "3: 7", "4: 0"]
    (tmp_path / "mended").touch()
    assert exit_codes()[4:] == ["3: 0"]
    models = [path for path in (tmp_path / "home").rglob("*") if path.name == "model.safetensors"]
    assert len(models) == 4, [*(tmp_path / "home").rglob("*")]
