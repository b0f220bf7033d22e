"""`seqgen help`: topics that all commands share, and help of single commands."""

from __future__ import annotations

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.help import help_texts
from seqgen.cli.shell.output import Output, put
from seqgen.errors import UsageError, did_you_mean
from seqgen.settings import Options, argument
from seqgen.settings.other_tools import find_setting
from seqgen.settings.training import TrainingConfig


class Topic(Options):
    """Argument of `seqgen help`: a topic, or a command."""

    topic: tuple[str, ...] = argument(
        f"Topic, one of {', '.join(help_texts()['topics'])}; or a command.", "TOPIC"
    )


@takes_options
def help_(topic: Topic, out: Output) -> None:
    """Explain what all commands share, by topic; or show the help of a command."""
    # Of a command, `seqgen.cli` makes COMMAND --help.
    name, topics = " ".join(topic.topic), help_texts()["topics"]
    abouts = {name: topic["about"] for name, topic in topics.items()}
    if name in topics:
        text = topics[name]["text"]
        if not out.record({"topic": name, "text": text.removesuffix("\n")}):
            put(text)
    elif name:
        known = f"; it is one of {', '.join(topics)}, or a command"
        hint = _setting_meant(name) or did_you_mean(name, topics) or known
        raise UsageError(f"there is no topic {name!r}{hint}")
    elif not out.records({"topic": name, "about": about} for name, about in abouts.items()):
        width = max(map(len, topics))
        put("Topics:\n" + "".join(f"  {n:<{width}}  {a}\n" for n, a in abouts.items()))
        put("\nShow one by `seqgen help TOPIC`, the help of a command by `seqgen help COMMAND`.\n")


def _setting_meant(name: str) -> str:
    """Find the training setting with this name, or a similar one, and its explanation."""
    meant = find_setting(name)
    is_setting = meant in TrainingConfig.fields()
    return f"; {meant} is a setting: seqgen train --set help={meant}" if is_setting else ""
