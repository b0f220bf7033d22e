"""A chat of four people with habits of their own: a time, a name and a message a line.

python corpora/chat.py > corpora/chat.txt
seqgen sample '[09:00] mira: ' -m chat --echo --max-tokens 2000 | python corpora/chat.py --score
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys

from grammar import Rng

SEED, DAYS = 1988, 130
# Who writes what; a dash stands for the thing that is talked about.
MIRA = """\
good morning!!
has anybody seen the -?
I am on the tram :)
lunch at noon?
the - is broken again :(
thank you!!
who took the -?
see you at the gate :)"""
JONAS = """\
hm.
the - is on the shelf.
I moved the - yesterday.
no idea.
ask olga about the -.
fine by me.
it rained on the -.
later."""
OLGA = """\
dear all, the - is in my room
please return the - by friday
I have written it down
as I said, the - is not ours
noted
the meeting is about the -
minutes follow"""
TIB = """\
lol
not the - again
brb
can the - swim tho
same
my cat sat on the -
ok ok I broke the -
gn everyone"""
PEOPLE = {
    name: said.splitlines()
    for name, said in (("mira", MIRA), ("jonas", JONAS), ("olga", OLGA), ("tib", TIB))
}
THINGS = "ladder kettle projector key drum map stapler ferry bicycle lamp parcel fern ticket broom"
THINGS = THINGS.split()
LINE = re.compile(r"\[(\d\d):(\d\d)\] (\w+): (.+)")


def day(rng: Rng) -> list[str]:
    """Return the lines of a day: a few things are talked about, one after the other."""
    written, minute, last = [], 7 * 60 + rng.below(120), ""
    for thing in rng.sample(THINGS, 3 + rng.below(3)):
        for _ in range(4 + rng.below(6)):
            minute += rng.below(12)
            last = rng.pick([name for name in PEOPLE if name != last])
            said = rng.pick(PEOPLE[last]).replace("-", thing)
            written.append(f"[{minute // 60:02}:{minute % 60:02}] {last}: {said}")
        minute += 20 + rng.below(60)
    return written


def known(name: str, message: str) -> bool:
    """Return whether a message is one that its writer would send."""
    patterns = (re.escape(said).replace(r"\-", rf"(?:{'|'.join(THINGS)})")
                for said in PEOPLE.get(name, ()))  # fmt: skip
    return any(re.fullmatch(pattern, message) for pattern in patterns)


def score(text: str) -> list[str]:
    """Say how many lines are as a chat has them; the last, which may be cut, does not count."""
    lines = [line for line in text.splitlines()[:-1] if line]
    read = [LINE.fullmatch(line) for line in lines]
    whole = [line for line in read if line]
    times = [60 * int(line[1]) + int(line[2]) for line in whole]
    back = sum(b < a and b >= 9 * 60 for a, b in itertools.pairwise(times))
    in_style = sum(known(line[3], line[4]) for line in whole)
    return [
        f"{len(whole)} of {len(lines)} lines have a time, a name and a message",
        f"{in_style} are messages of their writer",
        f"{back} times the clock goes back within a day",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a chat, or score one.")
    parser.add_argument("--score", action="store_true", help="read a chat")
    if parser.parse_args().score:
        print("\n".join(score(sys.stdin.read())))
    else:
        rng = Rng(SEED)
        print("\n\n".join("\n".join(day(rng)) for _ in range(DAYS)))
