"""Write the play: `python corpora/play.py > corpora/play.txt` gives the same bytes every time.

The words are in `lexicon.py`, the patterns of speech in `speeches.py`, the grammar in `grammar.py`,
and `voice.py` makes speeches of them.  This file casts the scenes and sets the lines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import lexicon as lex
import speeches
from grammar import Rng, join, third
from lexicon import Person, Topic
from voice import (
    Deed,
    Relative,
    Role,
    Setting,
    Stranger,
    Thing,
    Voice,
    gender_of,
    sections,
    thing_of,
)

SEED = 1729
TITLE = "A YEAR IN MARROWBY"
PARTS = ("SPRING", "SUMMER", "AUTUMN", "WINTER")
ACTS = ("I", "II", "III")
SCENES = ("I", "II", "III", "IV", "V")
SCENE_BEATS = (12, 15)  # the least and the greatest number of beats in a scene
DAYPARTS = ("morning", "afternoon", "evening")

# ---- beats -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One way to say something: perhaps only after a mark, perhaps leaving a mark itself."""

    text: str
    after: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a speech, with its alternatives."""

    free: tuple[Line, ...]  # these may always be said
    bound: tuple[Line, ...]  # these only after their mark
    optional: bool = False


@dataclass(frozen=True)
class Turn:
    """One speech of a beat: who says it to whom, and its parts in order."""

    speaker: str
    listener: str
    parts: tuple[Part, ...]


_LINE = re.compile(r"(?:(\d)\) )?(.*?)(?: =(\d))?$")


def read_line(text: str) -> Line:
    """Read `1) text =2`."""
    after, said, mark = _LINE.findall(text)[0]
    return Line(said, after, mark)


def read_part(texts: Sequence[str], optional: bool) -> Part:
    """Read the alternatives of a part."""
    lines = [read_line(text) for text in texts]
    free = tuple(line for line in lines if not line.after)
    return Part(free, tuple(line for line in lines if line.after), optional)


def read_turn(text: str) -> Turn:
    """Read `a>b` and the lines below it."""
    head, *lines = text.strip().splitlines()
    parts: list[tuple[bool, list[str]]] = [(False, [])]
    for line in lines:
        if line in "+?":
            parts.append((line == "?", []))
        else:
            parts[-1][1].append(line)
    return Turn(head[0], head[2], tuple(read_part(texts, optional) for optional, texts in parts))


def read_beat(lines: Sequence[str]) -> tuple[Turn, ...]:
    """Read the turns of one beat."""
    return tuple(read_turn(turn) for turn in "\n".join(lines).split("@")[1:])


def _table(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line)


BEATS = {name: read_beat(lines) for name, lines in sections(speeches.BEATS).items()}
FRAME = ("greet", "weather", "news", "farewell", "closing")
MIDDLE = tuple(name for name in BEATS if name not in FRAME)
COMMENT = Turn("c", "b", (read_part(_table(speeches.COMMENTS), False),))
ENTRANCES = _table(speeches.ENTRANCES)
BUSINESS = _table(speeches.BUSINESS)
EXITS = _table(speeches.EXITS)
REASONS = _table(speeches.REASONS)

# Beats about a thing of the listener or of the speaker: slot and owner.
OWNED = {"bargain": ("x", "b"), "borrow": ("y", "b"), "inspect": ("x", "a"), "sorrow": ("x", "a")}
# An oath may come before these words.
OATH_BEFORE = ("I", "You", "It", "If", "That", "The", "Nobody", "What", "This", "Is", "How")
# Beats that need a thing that can be counted.
COUNTED = ("count",)


# ---- scenes ----------------------------------------------------------------------------------


@dataclass
class Scene:
    """A place, a topic, the people present, the things and what was done to them before."""

    rng: Rng
    setting: Setting
    present: list[Person]
    things: list[Thing]
    deeds: list[Deed]
    animal: Thing
    blocks: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    last: Person | None = None

    # -- casting

    def _pair(self) -> tuple[Person, Person]:
        """Who speaks to whom next: not the one who spoke last."""
        a = self.rng.pick([person for person in self.present if person is not self.last])
        return a, self.rng.pick([person for person in self.present if person is not a])

    def _third(self, pair: Sequence[Person]) -> Person:
        """Somebody to talk about: present or not, but not one of the two."""
        near = [person for person in self.present if person not in pair]
        if near and self.rng.chance(50):
            return self.rng.pick(near)
        return self.rng.pick([person for person in self.setting.people if person not in pair])

    def _roles(self, beat: str, a: Person, b: Person, c: Person) -> dict[str, Role]:
        """Everybody and everything that the patterns of a beat may mention."""
        barred = {"judge": (a, b), "gossip": (a, b), "news": (a, b, c)}.get(beat, (a,))
        deeds = [deed for deed in self.deeds if deed.doer not in barred] or self.deeds
        if beat in COUNTED:
            deeds = [deed for deed in deeds if deed.thing.noun.kind == "count"] or deeds
        deed = self.rng.pick(deeds)
        others = [d for d in self.deeds if d is not deed and d.doer not in (a, b)] or self.deeds
        rest = [thing for thing in self.things if thing is not deed.thing]
        y, z = self.rng.sample(rest, 2)
        roles: dict[str, Role] = {"a": a, "b": b, "c": c, "f": deed, "g": self.rng.pick(others)}
        roles |= {"x": deed.thing, "y": y, "z": z, "w": self.animal}
        first, second = self.rng.sample(deed.thing.noun.done, 2)
        roles |= {"d1": third(first), "d2": third(second)}
        if beat in OWNED:
            slot, owner = OWNED[beat]
            thing, person = roles[slot], roles[owner]
            if isinstance(thing, Thing) and isinstance(person, Person):
                roles[slot] = replace(thing, owner=person)
        return roles | self._extras(a)

    def _extras(self, a: Person) -> dict[str, Role]:
        """The strangers, relatives, riddles and numbers of one beat."""
        rng = self.rng
        trade = rng.pick(lex.TRADES)
        town, home = rng.sample(lex.TOWNS, 2)
        adjective = rng.deal(lex.FOLK_ADJECTIVES)
        phrase = f"a {adjective} {trade}" if rng.chance(50) else f"a {trade} from {town}"
        kin = rng.deal(lex.RELATIVES)
        low = rng.below(5)
        middle = low + 1 + rng.below(3)
        numbers = (low, middle, middle + 1 + rng.below(3))
        extras: dict[str, Role] = {
            "m": Stranger(trade, phrase, gender_of(trade)),
            "u": Relative(a, kin, gender_of(kin)),
            "q": rng.deal(lex.FOLK_ADJECTIVES),
            "home": home,
            "v": rng.deal(lex.VIRTUES),
        }
        for slot, number in zip(("n", "n2", "n3"), numbers, strict=True):
            extras[slot] = lex.NUMBERS[number]
        countable = [noun for noun in lex.NOUNS.values() if noun.kind == "count"]
        for slot, noun in zip("rst", rng.sample(countable, 3), strict=True):
            extras[slot] = thing_of(noun, rng)
        return extras

    # -- speaking

    def _voice(self, roles: dict[str, Role], speaker: str = "", listener: str = "") -> Voice:
        people = [roles.get(slot) for slot in (speaker, listener)]
        who = [person if isinstance(person, Person) else None for person in people]
        return Voice(self.rng, self.setting, who[0], who[1], roles)

    def direct(self, pattern: str, roles: dict[str, Role]) -> None:
        """Add a stage direction."""
        self.blocks.append(f"[{self._voice(roles).finish(pattern)}]")

    def _choose(self, part: Part) -> str:
        """Choose a line; one that answers what was just said is best."""
        bound = [line for line in part.bound if line.after in self.marks]
        fits = bound and (not part.free or self.rng.chance(70))
        line = self.rng.pick(bound) if fits else self.rng.deal(part.free)
        if line.mark:
            self.marks.append(line.mark)
        return line.text

    def say(self, roles: dict[str, Role], turn: Turn) -> None:
        """Add one speech."""
        voice = self._voice(roles, turn.speaker, turn.listener)
        parts = [
            voice.fill(self._choose(part))
            for part in turn.parts
            if not part.optional or self.rng.chance(50)
        ]
        speaker = voice.speaker or self.present[0]
        first, _, rest = parts[0].partition(" ")
        if first in OATH_BEFORE and self.rng.chance(14):
            parts[0] = f"{speaker.oath}, {first if first == 'I' else first.lower()} {rest}"
        if self.rng.chance(8) and parts[-1].endswith("."):
            parts.append(voice.fill("{wit}"))
        self.blocks.append(f"{speaker.name}:\n" + "\n".join(verse(voice.tidy(" ".join(parts)))))
        self.last = speaker

    def beat(self, name: str, a: Person, b: Person, c: Person | None = None) -> None:
        """Play one beat between two people; c is spoken of, or brings the news."""
        roles = self._roles(name, a, b, c or self._third((a, b)))
        self.marks.clear()
        for turn in BEATS[name]:
            self.say(roles, turn)
        bystanders = [person for person in self.present if person not in (a, b)]
        if bystanders and self.rng.chance(45):
            roles["c"] = self.rng.pick(bystanders)
            if self.rng.chance(50):
                roles["a"], roles["b"] = b, a
            self.say(roles, COMMENT)
        if self.rng.chance(10):
            self.direct(self.rng.deal(BUSINESS), roles)

    # -- the course of a scene

    def arrive(self) -> None:
        """Somebody enters with news."""
        absent = [person for person in self.setting.people if person not in self.present]
        a, b = self.rng.sample(self.present, 2)
        c = self.rng.pick(absent)
        self.direct(self.rng.deal(ENTRANCES), self._roles("news", a, b, c))
        self.present.append(c)
        self.beat("news", a, b, c)

    def depart(self) -> None:
        """Somebody says farewell and leaves."""
        a, b = self._pair()
        self.beat("farewell", a, b)
        self.direct(self.rng.deal(EXITS), self._roles("farewell", b, b, a))
        self.present.remove(a)

    def perform(self, middle: Sequence[str]) -> str:
        """Play the whole scene."""
        self.beat("greet", *self._pair())
        if self.rng.chance(40):
            self.beat("weather", *self._pair())
        change = 3 + self.rng.below(max(1, len(middle) - 5))
        for index, name in enumerate(middle):
            if index == change and len(self.present) < 5:
                self.arrive()
            elif index == change + 4 and len(self.present) > 2:
                self.depart()
            self.beat(name, *self._pair())
        self.beat("closing", *self._pair())
        self.blocks.append("[Exeunt.]")
        return "\n\n".join(self.blocks)


# ---- lines -----------------------------------------------------------------------------------

SHORT, LONG, BEST = 28, 50, 41
_WEAK = ("a", "an", "the", "my", "your", "his", "her", "its", "our", "to", "of", "and", "or", "in")


def _badness(line: str, is_last: bool) -> int:
    """How little one likes a line of verse."""
    if len(line) > LONG:
        return 10_000
    if is_last:
        return 0 if len(line) >= 12 else 150
    score = (len(line) - BEST) ** 2 + (200 if len(line) < SHORT else 0)
    if line[-1] in ".?!;:":
        score -= 60
    elif line[-1] == ",":
        score -= 30
    elif line.rsplit(" ", 1)[-1].lower() in _WEAK:
        score += 60
    return score


def verse(text: str) -> list[str]:
    """Break a speech into lines that end well, each with a capital."""
    words = text.split(" ")
    count = len(words)
    best: list[tuple[int, int]] = [(0, count)] * (count + 1)
    for start in range(count - 1, -1, -1):
        options: list[tuple[int, int]] = []
        for end in range(start + 1, count + 1):
            line = " ".join(words[start:end])
            if len(line) > LONG and end > start + 1:
                break
            options.append((_badness(line, end == count) + best[end][0], end))
        best[start] = min(options)
    lines, start = [], 0
    while start < count:
        end = best[start][1]
        line = " ".join(words[start:end])
        lines.append(line[0].upper() + line[1:])
        start = end
    return lines


# ---- the play --------------------------------------------------------------------------------


def make_deeds(rng: Rng, things: Sequence[Thing], people: Sequence[Person]) -> list[Deed]:
    """What was done to the things of a scene, by whom, when and why."""
    deeds: list[Deed] = []
    for thing in (*things, *rng.sample(things, 2)):
        doer = rng.pick([person for person in people if person != thing.owner])
        patron = rng.pick([person for person in lex.PEOPLE if person != doer])
        when, not_when = rng.sample(lex.WHEN_PAST, 2)
        told = [deed.verb for deed in deeds if deed.thing is thing]
        verbs = thing.noun.done if rng.chance(65) else lex.HANDLING
        verb = rng.pick([verb for verb in verbs if verb not in told])
        reason = make_reason(rng, things)
        deeds.append(Deed(doer, thing, verb, when, not_when, reason, patron))
    return deeds


def make_reason(rng: Rng, things: Sequence[Thing]) -> str:
    """A reason whose numbers and things are settled, though not yet its pronouns."""
    words = {
        "{number}": rng.pick(lex.NUMBERS),
        "{prices}": rng.pick(lex.PRICES),
        "{virtue}": rng.pick(lex.VIRTUES),
        "{other}": rng.pick(things).any(),
    }
    reason = rng.deal(REASONS)
    for slot, word in words.items():
        reason = reason.replace(slot, word)
    return reason


def make_scene(rng: Rng, topic: Topic) -> Scene:
    """Choose the place, the people and the things for a topic."""
    place = lex.PLACES[rng.pick(topic.places)]
    present = rng.sample(lex.PEOPLE, 2 + rng.below(3))
    unfit = lex.FIXTURES + lex.INTANGIBLE
    nouns = [lex.NOUNS[name] for name in topic.nouns if name not in unfit]
    owners = [*present, rng.pick(lex.PEOPLE)]
    things = [
        thing_of(noun, rng, rng.pick(owners), place.spots)
        for noun in rng.sample(nouns, 4 + rng.below(2))
    ]
    animal = rng.pick([name for name in lex.ANIMALS if name not in topic.nouns])
    daypart = rng.pick(DAYPARTS)
    unlikely = "sunshine" if daypart == "evening" else "moonlight"
    words = {
        "daypart": daypart,
        "here": place.to,
        "matter": topic.matter,
        "weather": rng.pick([word for word in lex.WEATHERS if word != unlikely]),
        "price": rng.deal(lex.PRICES),
    }
    every = [lex.NOUNS[name] for name in topic.nouns]
    hidden = ("the sun",) if daypart == "evening" else ("the moon", "the stars")
    skies = [sky for sky in lex.SKIES if sky[0] not in hidden]
    setting = Setting(words, rng.sample(skies, 3), lex.PEOPLE, every)
    deeds = make_deeds(rng, things, present + rng.sample(lex.PEOPLE, 2))
    setting.deeds.extend(deeds)
    beast = thing_of(lex.NOUNS[animal], rng, None, place.spots)
    scene = Scene(rng, setting, present, things, deeds, beast)
    cast = join([person.name for person in present])
    scene.blocks.append(f"{place.heading}. {daypart.capitalize()}.\nOf {topic.matter}.")
    scene.blocks.append(f"[Enter {cast}.]")
    return scene


def cast_list() -> str:
    """The people of the play."""
    lines = [f"{TITLE}\n\nA comedy of small things, in four parts\n\nThe people of the play:\n"]
    for person in lex.PEOPLE:
        bond = "brother" if person.gender == "m" else "sister"
        lines.append(f"{person.name}, a {person.trade}, {bond} to {person.kin}")
    return "\n".join(lines).replace(", a innkeeper", ", an innkeeper").replace(" a app", " an app")


def blocks() -> Iterator[str]:
    """The whole play, block by block."""
    rng = Rng(SEED)
    yield cast_list()
    for part in PARTS:
        yield f"PART {PARTS.index(part) + 1}: {part}"
        for act in ACTS:
            for number in SCENES:
                scene = make_scene(rng, rng.deal(lex.TOPICS))
                low, high = SCENE_BEATS
                middle = [rng.deal(MIDDLE) for _ in range(low - 3 + rng.below(high - low + 1))]
                scene.blocks[0] = f"ACT {act}, SCENE {number}. {scene.blocks[0]}"
                yield scene.perform(middle)


def main() -> None:
    """Write the play to standard output, with the same line ends on every system."""
    text = "\n\n".join(blocks()) + "\n"
    sys.stdout.buffer.write(text.encode("ascii"))


if __name__ == "__main__":
    main()
