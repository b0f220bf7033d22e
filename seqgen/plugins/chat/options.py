"""Options of `seqgen chat`."""

from __future__ import annotations

from dataclasses import replace

from seqgen.settings.generation import AddedToSample, SampleOptions
from seqgen.settings.options import Options, Panel, group, same
from seqgen.settings.setting import setting


class ChatOptions(Options, panel=Panel.TEXT):
    """Options of a conversation: system prompt and chat template."""

    system: str | None = setting("Begin each conversation with this system prompt.", common=True)
    template: str | None = setting(
        "Use this Jinja template in place of the one that came with the model.",
        reads="file",
        metavar="FILE.jinja",
    )


class ChatSampling(Options, panel=Panel.FILTERS):
    """Options of `sample` that have a meaning for the answers of a chat."""

    temperature: float = same(SampleOptions, "temperature")
    top_k: int | None = same(SampleOptions, "top_k")
    top_p: float = same(SampleOptions, "top_p")
    min_p: float = same(SampleOptions, "min_p")
    typical: float = same(SampleOptions, "typical")
    repetition_penalty: float = same(SampleOptions, "repetition_penalty")
    presence_penalty: float = same(SampleOptions, "presence_penalty")
    frequency_penalty: float = same(SampleOptions, "frequency_penalty")
    no_repeat_ngram: int | None = same(SampleOptions, "no_repeat_ngram")
    ban: tuple[str, ...] = same(SampleOptions, "ban")
    force: str = same(SampleOptions, "force")
    added: AddedToSample = group(AddedToSample)
    greedy: bool = same(SampleOptions, "greedy")
    max_tokens: int = same(SampleOptions, "max_tokens")
    min_tokens: int = same(SampleOptions, "min_tokens")
    stop: tuple[str, ...] = same(SampleOptions, "stop")
    batch_size: int = same(SampleOptions, "batch_size")
    seed: int | None = same(SampleOptions, "seed")

    def sampling(self, seed: int, stop: tuple[str, ...]) -> SampleOptions:
        """Return them as options of `sample`.

        Args:
            seed: of the draws.
            stop: text that ends an answer besides `stop`.
        """
        options = SampleOptions(**{name: getattr(self, name) for name in self.fields()})
        return replace(options, seed=seed, stop=(*self.stop, *stop))
