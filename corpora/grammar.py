"""A small English grammar: inflection, articles, noun phrases and clauses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from lexicon import ABSOLUTE, DOUBLING, IRREGULAR

T = TypeVar("T")
VOWELS = "aeiou"
_MASK = (1 << 64) - 1


class Rng:
    """The splitmix64 generator: the same numbers from the same seed, everywhere."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK
        self._decks: dict[int, tuple[Sequence[object], list[int]]] = {}

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return self._next() % n

    def chance(self, percent: int) -> bool:
        """True with the given probability in percent."""
        return self.below(100) < percent

    def pick(self, items: Sequence[T]) -> T:
        """Any one of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Several different items, in random order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(min(count, len(rest)))]

    def deal(self, items: Sequence[T]) -> T:
        """The next item of a shuffled deck, which is shuffled anew when it is used up.

        A deck belongs to the very sequence it is dealt from, so that table must stay alive.
        """
        _, order = self._decks.setdefault(id(items), (items, []))
        if not order:
            order.extend(self.sample(range(len(items)), len(items)))
        return items[order.pop()]


# ---- inflection ------------------------------------------------------------------------------


def _syllables(word: str) -> int:
    """A rough count of the syllables of a word."""
    groups = re.findall(r"[aeiouy]+", word)
    silent = word.endswith("e") and not re.search(r"[^aeiou]le$", word)
    return max(1, len(groups) - silent)


def _doubles(word: str) -> bool:
    """Whether the last letter doubles before -ed, -ing, -er and -est."""
    if word in DOUBLING:
        return True
    short = _syllables(word) == 1 and len(word) > 2
    ends = word[-1] not in VOWELS + "wxy" and word[-2] in VOWELS
    if word.startswith("qu"):
        return short and ends and len(word) == 4
    return short and ends and word[-3] not in VOWELS


def _inflect(verb: str, ending: str) -> str:
    """Inflect the first word of a verb such as `creep in`."""
    word, space, particle = verb.partition(" ")
    return _REGULAR[ending](word) + space + particle


def _add_s(word: str) -> str:
    if word in ("have", "do", "go"):
        return {"have": "has", "do": "does", "go": "goes"}[word]
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def _add_ed(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ied"
    return word + (word[-1] if _doubles(word) else "") + "ed"


def _add_ing(word: str) -> str:
    if word.endswith("ie"):
        return word[:-2] + "ying"
    if word.endswith("e") and not word.endswith(("ee", "oe", "ye", "nge")) and word != "be":
        return word[:-1] + "ing"
    if word.endswith("nge") and word != "singe":
        return word[:-1] + "ing"
    return word + (word[-1] if _doubles(word) else "") + "ing"


_REGULAR = {"s": _add_s, "ed": _add_ed, "ing": _add_ing}


def third(verb: str) -> str:
    """The form after he, she or it: mends."""
    return _inflect(verb, "s")


def gerund(verb: str) -> str:
    """The form in -ing: mending."""
    return _inflect(verb, "ing")


def past(verb: str) -> str:
    """The past tense: mended, sang."""
    word, space, particle = verb.partition(" ")
    if word in IRREGULAR:
        return IRREGULAR[word][0] + space + particle
    return _inflect(verb, "ed")


def participle(verb: str) -> str:
    """The past participle: mended, sung."""
    word, space, particle = verb.partition(" ")
    if word in IRREGULAR:
        return IRREGULAR[word][1] + space + particle
    return _inflect(verb, "ed")


def plural(noun: str) -> str:
    """The plural of a regular noun, or of one in -man or -wife."""
    if noun.endswith("wife"):
        return noun[:-2] + "ves"
    if noun.endswith("man"):
        return noun[:-3] + "men"
    if "-in-" in noun:
        first, _, rest = noun.partition("-")
        return f"{first}s-{rest}"
    return _add_s(noun)


def gradable(adjective: str) -> bool:
    """Whether one thing can be more so than another."""
    return adjective not in ABSOLUTE and not adjective.endswith(("-eyed", "less"))


_SHORT_LONG = ("gentle", "simple", "humble", "idle", "noble", "narrow", "shallow", "hollow")


def comparative(adjective: str, ending: str = "er") -> str:
    """The comparative, or with ending `est` the superlative: taller, more stubborn."""
    count = _syllables(adjective)
    with_y = adjective.endswith("y") and adjective not in ("shy", "sly", "grey")
    if count > 2 or adjective == "loyal":
        short = False
    else:
        short = count == 1 or with_y or adjective in _SHORT_LONG
    if not short:
        return f"{'more' if ending == 'er' else 'most'} {adjective}"
    if adjective.endswith("e"):
        return adjective + ending[1:]
    if with_y:
        return adjective[:-1] + "i" + ending
    return adjective + (adjective[-1] if _doubles(adjective) else "") + ending


_LIKE_VOWEL = ("hour", "honest", "honour", "heir")
_LIKE_CONSONANT = ("one", "once", "uni", "use", "usu", "eu", "ewe")


def article(word: str) -> str:
    """`a` or `an`, as the next word wants it."""
    word = word.lower()
    if word.startswith(_LIKE_VOWEL):
        return "an"
    if word.startswith(_LIKE_CONSONANT) and not word.startswith("unin"):
        return "a"
    return "an" if word[0] in VOWELS else "a"


def fix_articles(text: str) -> str:
    """Make every `a` or `an` in a text agree with the word after it."""

    def agree(match: re.Match[str]) -> str:
        form = article(match[2])
        return (form.capitalize() if match[1][0] == "A" else form) + " " + match[2]

    return re.sub(r"\b([Aa]n?) ([\w-]+)", agree, text)


def sentence_case(text: str) -> str:
    """Capitalise the first letter of a text and of each sentence in it."""
    return re.sub(r"(^\"?|[.?!]\"? )([a-z])", lambda m: m[1] + m[2].upper(), text)


def join(items: Sequence[str], word: str = "and") -> str:
    """Join items as `one, two and three`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"


def possessive(owner: str) -> str:
    """The possessive of a name."""
    return owner + ("'" if owner.endswith("s") else "'s")


# ---- noun phrases and clauses ----------------------------------------------------------------

# person, plural, gender: subject, object, possessive, reflexive
_PRONOUNS = {
    (1, False): ("I", "me", "my", "myself"),
    (1, True): ("we", "us", "our", "ourselves"),
    (2, False): ("you", "you", "your", "yourself"),
    (2, True): ("you", "you", "your", "yourselves"),
    (3, True): ("they", "them", "their", "themselves"),
    "m": ("he", "him", "his", "himself"),
    "f": ("she", "her", "her", "herself"),
    "n": ("it", "it", "its", "itself"),
    "o": ("one", "one", "one's", "oneself"),
}


@dataclass(frozen=True)
class NP:
    """A noun phrase with the features that other words agree with."""

    text: str
    person: int = 3
    plural: bool = False
    gender: str = "n"

    def _pronouns(self) -> tuple[str, str, str, str]:
        if self.person == 3 and not self.plural:
            return _PRONOUNS[self.gender]
        return _PRONOUNS[(self.person, self.plural)]

    @property
    def he(self) -> str:
        """The subject pronoun."""
        return self._pronouns()[0]

    @property
    def him(self) -> str:
        """The object pronoun."""
        return self._pronouns()[1]

    @property
    def his(self) -> str:
        """The possessive pronoun."""
        return self._pronouns()[2]

    @property
    def self(self) -> str:
        """The reflexive pronoun."""
        return self._pronouns()[3]

    @property
    def obj(self) -> str:
        """The phrase as an object: `me` for `I`."""
        return self.text if self.person == 3 else self.him

    @property
    def own(self) -> str:
        """The phrase as an owner: `my`, `Tobrin's`."""
        return possessive(self.text) if self.person == 3 else self.his

    def pronoun(self) -> NP:
        """The pronoun that stands for this phrase."""
        return NP(self.he, self.person, self.plural, self.gender)

    def be(self, was: bool = False) -> str:
        """The form of `to be` that agrees."""
        many = self.plural or self.person == 2
        if was:
            return "were" if many else "was"
        return "are" if many else "am" if self.person == 1 else "is"

    def agree(self, verb: str) -> str:
        """The present tense of a verb that agrees."""
        if verb == "be":
            return self.be()
        return third(verb) if self.person == 3 and not self.plural else verb

    def was(self) -> str:
        """The past of `to be` that agrees."""
        return self.be(was=True)


@dataclass(frozen=True)
class Clause:
    """A subject, a verb and what follows the verb."""

    subject: NP
    verb: str
    rest: str = ""

    def _group(self, tense: str) -> tuple[str, str]:
        """The auxiliary, perhaps empty, and the main verb of a tense."""
        subject, verb = self.subject, self.verb
        if tense == "present":
            return ("", subject.agree(verb))
        if tense == "past":
            return ("", subject.was() if verb == "be" else past(verb))
        if tense in ("perfect", "pluperfect"):
            aux = "had" if tense == "pluperfect" else subject.agree("have")
            return (aux, participle(verb))
        if tense in ("doing", "was doing"):
            return (subject.be(was=tense == "was doing"), gerund(verb))
        if tense == "future":
            return ("shall" if subject.person == 1 else "will", verb)
        return (tense, verb)  # a modal verb is its own tense

    def _with_aux(self, tense: str) -> tuple[str, str]:
        """Like `_group`, but with `do` where there is no auxiliary."""
        if self.verb == "be" and tense in ("present", "past"):
            return (self.subject.be(was=tense == "past"), "")
        if tense == "present":
            return (self.subject.agree("do"), self.verb)
        if tense == "past":
            return ("did", self.verb)
        return self._group(tense)

    def say(self, tense: str) -> str:
        """The statement."""
        aux, verb = self._group(tense)
        return _words(self.subject.text, aux, verb, self.rest)

    def deny(self, tense: str) -> str:
        """The negated statement."""
        aux, verb = self._with_aux(tense)
        return _words(self.subject.text, aux, "not", verb, self.rest)

    def ask(self, tense: str) -> str:
        """The question, without its question mark and question word."""
        aux, verb = self._with_aux(tense)
        return _words(aux, self.subject.text, verb, self.rest)

    def predicate(self, tense: str) -> str:
        """The statement without its subject, as after a relative pronoun."""
        return _words(*self._group(tense), self.rest)

    def bare(self) -> str:
        """The infinitive without `to`."""
        return _words(self.verb, self.rest)

    def gerund(self) -> str:
        """The clause as a thing done: mending the kettle."""
        return _words(gerund(self.verb), self.rest)


def _words(*parts: str) -> str:
    """Join the parts that are not empty."""
    return " ".join(part for part in parts if part)
