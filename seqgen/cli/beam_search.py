"""`seqgen beam-search`: find the most probable texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seqgen import hooks
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.model_options import ReadModel
from seqgen.cli.shell.output import RecordedOutput
from seqgen.cli.shell.prompts import GivenPrompts
from seqgen.cli.shell.source_attention import IN_PLACE_OF_ATTENTION, Picture
from seqgen.cli.shell.tables import figure
from seqgen.cli.shell.writing import Echo, TextWriter, lists_filters, with_drawn_seed
from seqgen.settings import Options, Panel, setting
from seqgen.settings.generation import BeamOptions

if TYPE_CHECKING:
    from seqgen.generation.beam_search import Beam


class Explain(Options, panel=Panel.OUTPUT):
    """Options that show the search tree instead of the texts."""

    explain: bool = setting("Show the search tree.", conflicts=IN_PLACE_OF_ATTENTION)


@takes_options
@lists_filters(BeamOptions)
def beam_search(
    prompts: GivenPrompts,
    model: ReadModel,
    search: BeamOptions,
    tree: Explain,
    picture: Picture,
    echo: Echo,
    out: RecordedOutput,
) -> None:
    """Find the most probable continuations by beam search.

    A translation model takes sources instead of prompts, and writes their targets.

    Filters apply in this order: tokens that are never written, --min-tokens,
    --force{constraints}, --no-repeat-ngram{filters}. The search stops when no live hypothesis can
    still beat the n-th best finished one.
    """
    announced = search.stochastic and search.seed is None
    search = with_drawn_seed(search, picture)
    writing = TextWriter.open(search, search.beams, model, prompts, picture, echo, out)
    loaded = writing.loaded
    if announced:
        out.announce_seed(search.seed)
    from seqgen.generation import beam_search as searching

    if tree.explain:
        put_tree = hooks.load_method("output", "search-tree", "--explain")
        for found in searching.explain(loaded, writing.texts, search):
            put_tree(found, loaded.conditioning.prompt, out)
        return

    def heading(beam: Beam) -> str:
        return f", rank {beam.rank}, score {figure(beam.score)}" if search.nbest > 1 else ""

    def beams() -> Iterator[Beam]:
        for beam in searching.beam_search(loaded, writing.texts, search):
            yield beam
            if beam.missing:
                names = ", ".join(map(repr, beam.missing))
                which = f"{loaded.conditioning.prompt} {beam.index}"
                out.notice(f"{which}, rank {beam.rank} lacks {names}")

    writing.put(beams(), writing.is_raw(search.nbest), "rank", heading)
