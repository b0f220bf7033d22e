"""Options of `seqgen chat`."""

from __future__ import annotations

from dataclasses import replace

from seqgen.settings.generation import AddedToSample, SampleOptions
from seqgen.settings.options import Options, Panel, group, redeclare
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

    temperature: float = redeclare(SampleOptions, "temperature")
    top_k: int | None = redeclare(SampleOptions, "top_k")
    top_p: float = redeclare(SampleOptions, "top_p")
    min_p: float = redeclare(SampleOptions, "min_p")
    typical: float = redeclare(SampleOptions, "typical")
    repetition_penalty: float = redeclare(SampleOptions, "repetition_penalty")
    presence_penalty: float = redeclare(SampleOptions, "presence_penalty")
    frequency_penalty: float = redeclare(SampleOptions, "frequency_penalty")
    no_repeat_ngram: int | None = redeclare(SampleOptions, "no_repeat_ngram")
    ban: tuple[str, ...] = redeclare(SampleOptions, "ban")
    force: str = redeclare(SampleOptions, "force")
    added: AddedToSample = group(AddedToSample)
    greedy: bool = redeclare(SampleOptions, "greedy")
    max_tokens: int = redeclare(SampleOptions, "max_tokens")
    min_tokens: int = redeclare(SampleOptions, "min_tokens")
    stop: tuple[str, ...] = redeclare(SampleOptions, "stop")
    batch_size: int = redeclare(SampleOptions, "batch_size")
    seed: int | None = redeclare(SampleOptions, "seed")

    def sampling(self, seed: int, stop: tuple[str, ...]) -> SampleOptions:
        """Return them as options of `sample`.

        Args:
            seed: of the draws.
            stop: text that ends an answer besides `stop`.
        """
        options = SampleOptions(**{name: getattr(self, name) for name in self.fields()})
        return replace(options, seed=seed, stop=(*self.stop, *stop))
