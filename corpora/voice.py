"""How a pattern of speech becomes a speech: who speaks decides who is `I` and who is `you`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import lexicon as lex
import speeches
from grammar import (
    NP,
    Clause,
    Rng,
    comparative,
    fix_articles,
    gerund,
    gradable,
    participle,
    past,
    plural,
    sentence_case,
    third,
)
from lexicon import Noun, Person


@dataclass(frozen=True)
class Thing:
    """One particular thing: it keeps its owner, its place and its look for a whole scene."""

    noun: Noun
    adjective: str
    grade: str
    owner: Person | None
    spot: str
    elsewhere: str

    def np(self, text: str = "") -> NP:
        """The thing as a noun phrase."""
        return NP(text or f"the {self.noun.head}", plural=self.noun.kind == "pair")

    def any(self, adjective: str = "") -> str:
        """Any such thing: `a kettle`, `honey`, `boots`."""
        words = f"{adjective} {self.noun.head}".strip()
        return f"a {words}" if self.noun.kind == "count" else words


@dataclass(frozen=True)
class Deed:
    """Something that somebody did to a thing before the scene began."""

    doer: Person
    thing: Thing
    verb: str
    when: str
    not_when: str
    reason: str
    patron: Person


@dataclass(frozen=True)
class Stranger:
    """Somebody from elsewhere, known by trade."""

    trade: str
    phrase: str
    gender: str


@dataclass(frozen=True)
class Relative:
    """Somebody's relative."""

    owner: Person
    noun: str
    gender: str


@dataclass
class Setting:
    """What does not change within a scene."""

    words: dict[str, str]
    skies: Sequence[tuple[str, Sequence[str]]]
    people: Sequence[Person]
    nouns: Sequence[Noun]
    deeds: list[Deed] = field(default_factory=list)


Role = Person | Thing | Deed | Stranger | Relative | str
_SLOT = re.compile(r"\{(\w+)(?:\.(\w+)|\+(\w+))?\}")


def gender_of(noun: str) -> str:
    """The gender of a trade or a relative: every miller is a he, every widow a she."""
    return "f" if noun in lex.WOMEN else "m"


def sections(table: str) -> dict[str, list[str]]:
    """Read `= name` headings and the lines below them."""
    result: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, table.splitlines())):
        if line.startswith("= "):
            result[line[2:]] = current = []
        else:
            current.append(line)
    return result


WITS = tuple(filter(None, speeches.WITS.splitlines()))
GENS = sections(speeches.GENS)

# Words drawn anew at each use: slot to table.
_DRAWN: dict[str, Sequence[str]] = {
    "town": lex.TOWNS,
    "dish": tuple(person.dish for person in lex.PEOPLE),
    "image": lex.IMAGES,
    "virtue": lex.VIRTUES,
    "past": lex.WHEN_PAST,
    "future": lex.WHEN_FUTURE,
    "often": lex.WHEN_EVER,
    "until": lex.UNTIL,
    "weekday": lex.WEEKDAYS,
    "meal": lex.MEALS,
    "number": lex.NUMBERS,
    "prices": lex.PRICES,
    "seldom": lex.SELDOM,
    "grade": lex.TASKS,
    "think": lex.BELIEVING,
    "told": lex.TELLING,
    "weather": lex.WEATHERS,
    "q": lex.FOLK_ADJECTIVES,
    "deed": lex.DEEDS,
}
_ENDINGS: dict[str, Callable[[str], str]] = {
    "s": third,
    "ed": past,
    "en": participle,
    "ing": gerund,
    "er": comparative,
    "est": lambda adjective: comparative(adjective, "est"),
}


@dataclass
class Voice:
    """One speech in the making: the speaker, the listener and everything that is spoken of."""

    rng: Rng
    setting: Setting
    speaker: Person | None
    listener: Person | None
    roles: Mapping[str, Role]
    _phrases: dict[str, NP] = field(default_factory=dict)
    _used: dict[str, list[str]] = field(default_factory=dict)

    def fill(self, pattern: str) -> str:
        """Fill the slots of a pattern; articles and capitals are put right by `finish`."""
        return _SLOT.sub(self._slot, pattern)

    def finish(self, pattern: str) -> str:
        """Fill a pattern and make it a sound piece of text."""
        return self.tidy(self.fill(pattern))

    @staticmethod
    def tidy(text: str) -> str:
        """Put right the articles and the capitals of a filled pattern."""
        return sentence_case(fix_articles(text))

    def _slot(self, match: re.Match[str]) -> str:
        name, form, verb = match.groups(default="")
        role = self.roles.get(name)
        if isinstance(role, Person):
            return self._np(role).agree(verb) if verb else self._person(role, form)
        if isinstance(role, Thing):
            return role.np().agree(verb) if verb else self._thing(role, form)
        if isinstance(role, Deed):
            return self._deed(role, form)
        if isinstance(role, Stranger):
            return self._stranger(role, form)
        return self._loose(name, form)

    # ---- slots that are not roles

    def _loose(self, name: str, form: str) -> str:
        """A word that was settled before, or one that is drawn now; or somebody or other."""
        if name in ("gen", "wit", "sky", "other"):
            return self._drawn(name, form)
        role = self.roles.get(name)
        table = name.rstrip("23")
        if isinstance(role, str):
            word = role
        elif name in self.setting.words:
            word = self.setting.words[name]
        elif name == "same":
            word = self._used["deed"][-1]
        elif table in _DRAWN:
            word = self._fresh(table, _DRAWN[table])
        else:
            return self._phrase(self._somebody(name), form)
        return _ENDINGS[form](word) if form else word

    def _drawn(self, name: str, form: str) -> str:
        """A whole sentence, the weather, or any thing of the topic."""
        if name == "sky":
            return self._sky(form)
        if name == "other":
            return thing_of(self.rng.pick(self.setting.nouns), self.rng).any()
        return self.fill(self.rng.deal(GENS[form] if name == "gen" else WITS))

    def _somebody(self, name: str) -> NP:
        """The speaker, a relative, or folk who stay the same within a speech."""
        role = self.roles.get(name)
        if isinstance(role, Relative):
            return NP(f"{self._np(role.owner).own} {role.noun}", gender=role.gender)
        if name == "speaker" and self.speaker:
            return self._np(self.speaker)
        if name not in self._phrases:
            self._phrases[name] = self._new_phrase(name.rstrip("123"))
        return self._phrases[name]

    def _fresh(self, name: str, table: Sequence[str]) -> str:
        """Deal a word that this speech has not had yet, if there is one."""
        used = self._used.setdefault(name, [])
        word = self.rng.deal(table)
        for _ in range(6):
            if word not in used:
                break
            word = self.rng.deal(table)
        used.append(word)
        return word

    def _sky(self, form: str) -> str:
        subject, verbs = self.rng.pick(self.setting.skies)
        verb = self._fresh("sky " + subject, verbs)
        clause = Clause(NP(subject, plural=subject in ("the stars", "the clouds")), verb)
        if form == "base":
            return f"{subject} {verb}"
        tense = {"does": "present", "now": "doing", "was": "was doing", "past": "past"}[form]
        return clause.say(tense)

    def _new_phrase(self, kind: str) -> NP:
        """Somebody or other: folk, folks, kin, or the subject of a tale (s)."""
        if kind == "kin":
            noun = self._fresh("kin", lex.RELATIVES)
            return NP(f"my {noun}", gender=gender_of(noun))
        if kind == "s":
            return self._subject()
        if kind == "postman":
            return NP("the postman", gender="m")
        if kind == "one":
            return NP("one", gender="o")
        trade = self._fresh("trade", lex.TRADES)
        adjective = self._fresh("folk", lex.FOLK_ADJECTIVES) + " " if self.rng.chance(45) else ""
        if kind == "folks":
            return NP(adjective + plural(trade), plural=True)
        place = f" from {self._fresh('town', lex.TOWNS)}" if self.rng.chance(15) else ""
        return NP(f"a {adjective}{trade}{place}", gender=gender_of(trade))

    def _subject(self) -> NP:
        """Somebody who may have done something."""
        roll = self.rng.below(10)
        if roll < 2:
            return self._new_phrase("kin")
        if roll < 4:
            trade = self._fresh("trade", lex.TRADES)
            adjective = self._fresh("folk", lex.FOLK_ADJECTIVES)
            town = self._fresh("town", lex.TOWNS)
            text = self.rng.pick((f"the {adjective} {trade}", f"the {trade} of {town}"))
            return NP(text, gender=gender_of(trade))
        if roll < 5:
            town = self._fresh("town", lex.TOWNS)
            trades = plural(self._fresh("trade", lex.TRADES))
            phrases = ("my cousins", f"the {trades} of {town}", f"two {trades}", "my neighbours")
            return NP(self.rng.pick(phrases), plural=True)
        others = [p for p in self.setting.people if p not in (self.speaker, self.listener)]
        taken = [phrase.text for phrase in self._phrases.values()]
        others = [p for p in others if p.name not in taken]
        return self._np(self.rng.pick(others))

    # ---- phrases

    def _phrase(self, phrase: NP, form: str) -> str:
        """A form of a noun phrase, or of what it does."""
        if form in ("vp", "vps", "vpd", "vping"):
            return self._activity(phrase, form)
        forms: dict[str, Callable[[], str]] = {
            "": lambda: phrase.text,
            "i": lambda: phrase.text,
            "me": lambda: phrase.obj,
            "my": lambda: phrase.own,
            "own": lambda: phrase.own,
            "noun": lambda: phrase.text.split(" ", 1)[1],
            "he": lambda: phrase.he,
            "him": lambda: phrase.him,
            "his": lambda: phrase.his,
            "self": lambda: phrase.self,
            "am": phrase.be,
            "was": phrase.was,
            "have": lambda: phrase.agree("have"),
            "do": lambda: phrase.agree("do"),
        }
        return forms[form]()

    def _activity(self, subject: NP, form: str) -> str:
        """Something that the subject does all by itself."""
        words = self._fresh("activity", lex.ACTIVITIES)
        words = words.replace("{his}", subject.his).replace("{self}", subject.self)
        words = words.replace("{town}", self._fresh("town", lex.TOWNS))
        verb, _, rest = words.partition(" ")
        clause = Clause(subject, verb, rest)
        if form == "vping":
            return clause.gerund()
        if form == "vp":
            return clause.bare()
        return clause.predicate("present" if form == "vps" else "past")

    def _np(self, person: Person) -> NP:
        """A person as this speaker would say it: I, you, or the name."""
        if person == self.speaker:
            return NP("I", 1, gender=person.gender)
        if person == self.listener:
            return NP("you", 2, gender=person.gender)
        return NP(person.name, gender=person.gender)

    def _person(self, person: Person, form: str) -> str:
        if form == "":
            return person.name
        if form == "call":
            return self._vocative(person)
        if form == "trade":
            return f"a {person.trade}"
        if form in ("dish", "fear"):
            return str(getattr(person, form))
        if form == "kin":
            kin = next(p for p in lex.PEOPLE if p.name == person.kin)
            return self._np(kin).text
        return self._phrase(self._np(person), form)

    def _vocative(self, person: Person) -> str:
        """How one calls a person: mostly by name."""
        if self.speaker and self.speaker.kin == person.name and self.rng.chance(40):
            return "brother" if person.gender == "m" else "sister"
        title = "Master" if person.gender == "m" else "Mistress"
        roll = self.rng.below(100)
        if roll < 66:
            return person.name
        if roll < 90:
            word = self.rng.pick(("good", "dear", "my dear", "friend", "neighbour", title))
            return f"{word} {person.name}"
        return self.rng.pick((person.trade, "my friend", "neighbour"))

    def _stranger(self, stranger: Stranger, form: str) -> str:
        if form == "the":
            return f"the {stranger.trade}"
        if form == "call":
            return stranger.trade.capitalize()
        return self._phrase(NP(stranger.phrase, gender=stranger.gender), form)

    # ---- things

    def _thing(self, thing: Thing, form: str) -> str:
        """A form of a thing: a name for it, a pronoun, or a verb that fits it."""
        noun, phrase = thing.noun, thing.np()
        if form.startswith("act") or form in ("go", "goes", "went", "gone", "going", "go3"):
            return self._thing_verb(thing, form)
        forms: dict[str, Callable[[], str]] = {
            "": lambda: noun.head,
            "the": lambda: self._the(thing) + self._relative_clause(thing),
            "full": lambda: f"the {thing.adjective} {noun.head}",
            "any": thing.any,
            "a": lambda: thing.any(thing.adjective),
            "graded": lambda: thing.any(thing.grade),
            "own": lambda: self._owned(thing),
            "your": lambda: f"your {noun.head}",
            "this": lambda: f"{'these' if phrase.plural else 'this'} {noun.head}",
            "this1": lambda: "these" if phrase.plural else "this",
            "plural": lambda: noun.plural or plural(noun.head),
            "count": lambda: _counted(noun),
            "they": lambda: phrase.he,
            "it": lambda: phrase.him,
            "its": lambda: phrase.his,
            "self": lambda: phrase.self,
            "am": phrase.be,
            "was": phrase.was,
            "have": lambda: phrase.agree("have"),
            "do": lambda: phrase.agree("do"),
            "spot": lambda: thing.spot,
            "elsewhere": lambda: thing.elsewhere,
            "adj": lambda: thing.adjective,
            "grade": lambda: thing.grade,
            "er": lambda: comparative(thing.grade),
            "est": lambda: comparative(thing.grade, "est"),
        }
        return forms[form]()

    def _thing_verb(self, thing: Thing, form: str) -> str:
        """What is done to a thing (act, acts, acted, actpp, acting) or what it does (go...)."""
        noun = thing.noun
        table = noun.done if form.startswith("act") else noun.does
        verb = self._fresh(f"{noun.head} {form[:2]}", table)
        if form == "goes":
            return thing.np().agree(verb)
        endings: dict[str, Callable[[str], str]] = {
            "acts": third,
            "go3": third,
            "acted": past,
            "went": past,
            "actpp": participle,
            "gone": participle,
            "acting": gerund,
            "going": gerund,
        }
        return endings[form](verb) if form in endings else verb

    def _the(self, thing: Thing) -> str:
        """`the kettle`, now and then with its adjective."""
        seen = self._used.setdefault("the", [])
        if thing.noun.head not in seen and self.rng.chance(30):
            seen.append(thing.noun.head)
            return f"the {thing.adjective} {thing.noun.head}"
        return f"the {thing.noun.head}"

    def _relative_clause(self, thing: Thing) -> str:
        """Now and then, what is known of a thing: ` that Tobrin mended`."""
        deeds = [deed for deed in self.setting.deeds if deed.thing.noun is thing.noun]
        if not deeds or "that" in self._used or not self.rng.chance(9):
            return ""
        self._used["that"] = [thing.noun.head]
        deed = self.rng.pick(deeds)
        return f" that {Clause(self._np(deed.doer), deed.verb).say('past')}"

    def _owned(self, thing: Thing) -> str:
        """`my kettle`, `your copper kettle`, `Tobrin's kettle`."""
        if thing.owner is None:
            return self._the(thing)
        return self._np(thing.owner).own + self._the(thing).removeprefix("the")

    # ---- deeds

    def _deed(self, deed: Deed, form: str) -> str:
        """A deed told in one of many ways."""
        doer, thing = self._np(deed.doer), deed.thing
        own = self._owned(thing) if self.rng.chance(60) else self._the(thing)
        clause = Clause(doer, deed.verb, own)
        told = thing.np(own)
        forms: dict[str, Callable[[], str]] = {
            "past": lambda: clause.say("past"),
            "perf": lambda: clause.say("perfect"),
            "plup": lambda: clause.say("pluperfect"),
            "never": lambda: self._never(clause),
            "passive": lambda: f"{told.text} {told.was()} {participle(deed.verb)} by {doer.obj}",
            "cleft": lambda: f"it was {doer.text} who {clause.predicate('past')}",
            "who": lambda: f"who {clause.predicate('past')}",
            "didq": lambda: clause.ask("past"),
            "whyq": lambda: f"why {clause.ask('past')}",
            "gen": lambda: f"{deed.verb} {thing.any()}",
            "doing": lambda: f"{gerund(deed.verb)} {thing.any()}",
            "v": lambda: deed.verb,
            "vd": lambda: past(deed.verb),
            "vn": lambda: participle(deed.verb),
            "when": lambda: deed.when,
            "when2": lambda: deed.not_when,
            "why": lambda: self._reason(deed),
        }
        if form in forms:
            return forms[form]()
        return self._phrase(doer, form)

    def _never(self, clause: Clause) -> str:
        """The deed denied."""
        if self.rng.chance(50):
            return clause.deny("past")
        return f"{clause.subject.text} never {clause.predicate('past')}"

    def _reason(self, deed: Deed) -> str:
        """Why it was done, as this speaker sees the people in it."""
        roles: dict[str, Role] = {"e": deed.doer, "p": deed.patron, "x": deed.thing}
        return Voice(self.rng, self.setting, self.speaker, self.listener, roles).fill(deed.reason)


def _counted(noun: Noun) -> str:
    """The noun after a number: `kettles`, `jars of honey`, `pairs of boots`."""
    if noun.kind == "mass":
        return lex.CONTAINERS[noun.head]
    if noun.kind == "pair":
        return f"pairs of {noun.head}"
    return noun.plural or plural(noun.head)


def thing_of(noun: Noun, rng: Rng, owner: Person | None = None, spots: Sequence[str] = ()) -> Thing:
    """A particular thing made from a noun."""
    grades = [adjective for adjective in noun.adjectives if gradable(adjective)] or ["fine"]
    spot, elsewhere = rng.sample(spots, 2) if spots else ("", "")
    return Thing(noun, rng.pick(noun.adjectives), rng.pick(grades), owner, spot, elsewhere)
