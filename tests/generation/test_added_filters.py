"""Filters that plugins add to sampling and beam search, and what remains without them."""

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers_cli import has_plugin
from known_models import ALPHABET, fake

from seqgen import hooks
from seqgen.cli.shell.writing import lists_filters
from seqgen.errors import UsageError
from seqgen.generation.beam_search import beam_search
from seqgen.generation.processors import IMPOSSIBLE, normalise_or_end
from seqgen.generation.sample import sample
from seqgen.settings.filters import WITH_A_FORM, FilterOptions
from seqgen.settings.generation import BeamOptions, SampleOptions
from seqgen.settings.options import Options, Panel, added_options, group
from seqgen.settings.setting import NOT_TOGETHER, OptionRule, setting


class Without:
    """Removes a token, and ends what consists of nothing else."""

    name = "without"

    def __init__(self, token: int, dead_id: int | None) -> None:
        self.token, self.dead_id = token, dead_id

    def __call__(self, history, log_probs):
        kept = log_probs.copy()
        kept[:, self.token] = IMPOSSIBLE
        return normalise_or_end(kept, self.dead_id)


class Lipogram(FilterOptions, panel=Panel.FILTERS):
    """Texts without a letter."""

    filter_flag = "--without-letter"
    without_letter: str | None = setting(
        "Never write this letter.", conflicts=OptionRule(("--force",), NOT_TOGETHER)
    )

    def filters(self, generator):
        if self.without_letter is None:
            return ()
        (token,) = generator.loaded.ids(self.without_letter)
        return [Without(token, generator.dead_id)]


class Verse(FilterOptions, panel=Panel.FORM):
    """A form that only says so."""

    verse: bool = setting("Write verse.", conflicts=WITH_A_FORM)

    @property
    def form(self):
        return next(iter(self.given), None)


class Song(FilterOptions, panel=Panel.FORM):
    """Another one."""

    song: bool = setting("Write songs.", conflicts=WITH_A_FORM)

    @property
    def form(self):
        return next(iter(self.given), None)


def with_groups(base: type[Options], *kinds: type[FilterOptions]) -> type[Options]:
    """The options of a command to which plugins add groups."""
    names = {f"of_{kind.__name__}": kind for kind in kinds}
    fields = {name: group(kind) for name, kind in names.items()}
    added = type("Added", (Options,), {"__annotations__": names, **fields})
    return type("Changed", (base,), {"__annotations__": {"added": added}, "added": group(added)})


@pytest.mark.parametrize(("write", "base"), [(sample, SampleOptions), (beam_search, BeamOptions)])
def test_a_plugins_filter_applies(write, base):
    loaded, options = fake(), with_groups(base, Lipogram)
    more = {"nbest": 5} if base is BeamOptions else {"num_samples": 9}
    for letter in loaded.tokenizer.decode(np.arange(loaded.tokenizer.vocab_size))[:40]:
        if loaded.tokenizer.first_unknown(letter) is None and letter.isalpha():
            found = list(write(loaded, [""], options.of(seed=1, max_tokens=30, **more)))
            less = options.of(seed=1, max_tokens=30, without_letter=letter, **more)
            assert not any(letter in record.text for record in write(loaded, [""], less))
            if any(letter in record.text for record in found):
                return
    raise AssertionError("no letter is ever written")


def test_a_filter_that_leaves_nothing_ends_the_text(monkeypatch):
    monkeypatch.setattr(
        Without, "__call__", lambda self, _, p: normalise_or_end(p - np.inf, self.dead_id)
    )
    options = with_groups(SampleOptions, Lipogram).of(seed=1, without_letter="a")
    (record,) = sample(fake(ALPHABET), [""], options)
    assert (record.text, record.finish_reason) == ("", "dead-end")


def test_groups_say_what_they_cannot_be_combined_with():
    options = with_groups(SampleOptions, Lipogram, Verse)
    with pytest.raises(UsageError, match="--without-letter cannot be combined with --force"):
        options.of(without_letter="a", force="b")
    with pytest.raises(UsageError, match=r"^--verse says where a text ends .* --stop"):
        options.of(verse=True, stop=("a",))
    with pytest.raises(UsageError, match="give --verse or --song, not both"):
        with_groups(SampleOptions, Verse, Song).of(verse=True, song=True)
    assert with_groups(SampleOptions, Verse, Song).of(song=True).form == "--song"


def test_help_lists_the_filters_of_plugins():
    def command():
        """First{constraints}{filters}, last{endings}."""

    if has_plugin("patterns") or has_plugin("novelty"):
        assert lists_filters(SampleOptions)(command).__doc__.endswith("end the text instead.")
    command.__doc__ = "First{constraints}{filters}, last{endings}."
    lists_filters(with_groups(SampleOptions, Lipogram))(command)
    text = "First, --without-letter, last; only --without-letter ends the text instead."
    assert command.__doc__ == text
    command.__doc__ = "First{constraints}{filters}, last{endings}."
    assert lists_filters(with_groups(SampleOptions))(command).__doc__ == "First, last."


def test_the_more_special_place_counts(monkeypatch):
    added = {"here": {"a": Lipogram, "b": Verse}, "there": {"b": Lipogram}}
    monkeypatch.setattr(hooks, "options", lambda place: added.get(place, {}))
    kinds = added_options("here", "there").types()
    assert {name: kinds[name] for name in ("of_a", "of_b")} == {"of_a": Lipogram, "of_b": Lipogram}
    assert not list(added_options("nowhere").flags())


WITHOUT = """
import json
from seqgen import hooks
every = hooks.plugins()
gone = ("patterns", "novelty", "bytes")
hooks.plugins = lambda: tuple(one for one in every if one.name not in gone)
from seqgen.settings.generation import BeamOptions, SampleOptions
print(json.dumps([[name for name, *_ in o.flags()] for o in (SampleOptions, BeamOptions)]))
"""


def test_without_a_plugin_its_options_are_gone():
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    left = [set(names) for names in json.loads(run.stdout)]
    forms = {"pattern", "grammar", "json_schema"}
    both = {"novelty": {"max_copy"}, "bytes": {"heal"}}
    of_samples = {"patterns": {*forms, "pattern_mode", "particles"}, **both}
    of_beams = {"patterns": {*forms, "include", "terms"}, **both}
    every = [{name for name, *_ in kind.flags()} for kind in (SampleOptions, BeamOptions)]
    for before, after, of_plugins in zip(every, left, (of_samples, of_beams), strict=True):
        there = (names for plugin, names in of_plugins.items() if has_plugin(plugin))
        assert before - after == set().union(*there)
