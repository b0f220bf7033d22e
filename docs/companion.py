"""Write the pages of `companion/`: the steps of `seqgen course` with what their commands print.

python docs/companion.py                 # from course.toml and the outputs kept in companion.json
python docs/companion.py --run           # run all steps again first, which takes minutes
python docs/companion.py --run 1.1 4.2   # run some of them
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from companion_pictures import draw

from seqgen.plugins.course.command import CourseStep, steps

ROOT = Path(__file__).resolve().parents[1]
OUTPUTS = Path(__file__).with_suffix(".json")
FOLDER = Path(__file__).with_suffix("")  # of the pages and the pictures
# The page of each part, by the first number of its steps.
PAGES = {
    "1": "counting",
    "2": "training",
    "3": "attention",
    "4": "decoding",
    "5": "representations",
}
# The places of these words in a plane are kept too, for a picture.
PLANE = "5.7 plane"
COUNTRIES = {"france": "paris", "italy": "rome", "austria": "vienna", "egypt": "cairo"}
COUNTRIES |= {"japan": "tokyo", "peru": "lima"}
CAPITALS = [word for pair in COUNTRIES.items() for word in pair]
HEAD = """# A companion to the lectures

*For students and teachers of language models. Read [Your first model](../tutorials/first-model.md)
first.*

Each step explains one idea with an equation, a command that runs in seconds, and an exercise with
its answer.

- `seqgen course` lists the steps, and `seqgen course 1.1` shows one and runs its commands, in a
  checkout or with an installed package.
- A step names its place in five lectures: `0:10` is row 10 of lecture 0 in [the lectures, row by
  row](../evidence/lectures.md).
- These pages show what the commands printed. Training prints nothing, because of `-q`. If two steps
  share a model, it is trained once.

| step | idea |
|---|---|
"""
MACHINE = """
*Times are processor time on one core, with all training of the step: AMD EPYC with AVX2, shared
with other work, 2026-11-24; steps 2.1 and 2.9 on one with AVX-512, 2026-11-25; steps 2.7 and 5.4,
2026-11-26, and step 4.7, 2026-11-27. On another machine, a network's figures may differ in the last
digits, and its texts may differ too.
`docs/companion.py` makes these pages from the file that `seqgen course` reads.*
"""
PART_HEAD = """# {number}. {part}

*For students and teachers of language models; part {number} of [the companion](index.md).*
"""


def pages(outputs: dict[str, list[str]]) -> dict[str, str]:
    """Return the text of every page, by the name of its file."""
    index, parts, drawn = [], {}, pictures(outputs)
    for step in steps().values():
        number = step.number.split(".")[0]
        name = f"{PAGES[number]}.md"
        if name not in parts:
            parts[name] = [PART_HEAD.format(number=number, part=step.part)]
            index.append(f"| **[{number}. {step.part}]({name})** | |\n")
        index.append(f"| [{step.number}]({name}#{_anchor(step)}) | {step.title} |\n")
        about = drawn.get(step.number, (None,))[0]
        parts[name].append(_section(step, outputs[step.number], about))
    made = {name: "\n".join(sections) for name, sections in parts.items()}
    return {"index.md": "".join([HEAD, *index, MACHINE]), **made}


def _anchor(step: CourseStep) -> str:
    """Return the anchor of a step's heading."""
    heading = f"{step.number} {step.title}".lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def pictures(outputs: dict[str, list[str]]) -> dict[str, tuple[str, str]]:
    """Return what each picture shows and the picture, by the number of its step."""
    plane = outputs[PLANE]
    drawn = {n: draw(n, outputs[n] + (plane if PLANE.startswith(n) else [])) for n in steps()}
    return {number: picture for number, picture in drawn.items() if picture}


def _section(step: CourseStep, outputs: list[str], about: str | None) -> str:
    left = iter(outputs)
    picture = f"\n![{about}]({step.number}.svg)\n" if about else ""
    shown = []
    for command in step.run:
        shown.append(f"$ {command}")
        if not command.startswith("seqgen train "):
            shown += [line.rstrip() for line in next(left).rstrip("\n").split("\n")]
    return f"""## {step.number} {step.title}

*Lecture {step.slide}, {step.seconds} s. Read: {step.see}*

{step.idea.strip()}

```text
{step.equation.strip(chr(10))}
```

```console
{chr(10).join(shown)}
```

{step.shows.strip()}
{picture}
**Exercise:** {step.exercise.strip()}

<details><summary>Answer</summary>

{step.answer.strip()}
</details>
"""


def run(number: str, home: str) -> tuple[list[str], float]:
    """Run a step with the models of a folder; return its outputs and its processor time."""
    environment = {**os.environ, "SEQGEN_HOME": home, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    before = os.times()
    command = [sys.executable, "-m", "seqgen", "course", number, "--json", "-q"]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    after = os.times()
    used = after.children_user + after.children_system
    given = [output for output in json.loads(done.stdout)["outputs"] if output]
    outputs = [output.replace(f"{ROOT}/", "") for output in given]
    return outputs, used - before.children_user - before.children_system


def plane(home: str) -> list[str]:
    """Return where the capitals are by the two principal components of their vectors, as JSON."""
    command = [sys.executable, "-m", "seqgen", "vectors", "-m", "course-capitals", "-q"]
    environment = {**os.environ, "SEQGEN_HOME": home}
    written = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    rows = (line.split() for line in written.stdout.splitlines())
    vectors = {word: [float(x) for x in numbers] for word, *numbers in rows if word in CAPITALS}
    matrix = np.array([vectors[word] for word in CAPITALS])
    matrix -= matrix.mean(0)
    places = (matrix @ np.linalg.svd(matrix)[2][:2].T).round(3).tolist()
    return [json.dumps(dict(zip(CAPITALS, places, strict=True)))]


def main() -> None:
    """Write the pages, after running what is asked for."""
    parser = argparse.ArgumentParser(description="Write the pages of companion/.")
    parser.add_argument("--run", nargs="*", metavar="STEP", help="run these steps, or all")
    given = parser.parse_args()
    outputs = json.loads(OUTPUTS.read_text("utf-8")) if OUTPUTS.exists() else {}
    asked = [] if given.run is None else given.run or list(steps())
    with tempfile.TemporaryDirectory() as home:
        for number in asked:
            outputs[number], seconds = run(number, home)
            sys.stderr.write(
                f"{number}: {seconds:.1f} s; {steps()[number].seconds} s with all training\n"
            )
            if PLANE.startswith(number):
                outputs[PLANE] = plane(home)
            ordered = {name: outputs[name] for name in (*steps(), PLANE) if name in outputs}
            OUTPUTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf-8")
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages(outputs).items():
        (FOLDER / name).write_text(text, "utf-8")
    for number, (_, picture) in pictures(outputs).items():
        (FOLDER / f"{number}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
