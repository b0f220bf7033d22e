"""Pages of the site that are made when it is built: commands, the Python API, files of the root.

A hook of MkDocs (`mkdocs.yml`). The command line describes itself, so no page can differ from it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files

from seqgen.cli import make_app
from seqgen.cli.shell.help import command_rows, help_texts, option_rows, paragraphs, usage
from seqgen.settings.other_tools import settings_elsewhere, words_elsewhere

ROOT = Path(__file__).resolve().parents[1]
# Files outside docs/ that have a page of their own, by their path from the root.
OUTSIDE = {
    "README.md": "about/readme.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "CHANGELOG.md": "about/changelog.md",
    "corpora/README.md": "about/corpora.md",
    "CITATION.cff": "about/citation.md",
}
# Pages that have something of everything, which a search lists after the page of a subject.
LAST_FOUND = {"api.md", "about/changelog.md"}
LAST_FOUND |= {f"evidence/{name}.md" for name in ("benchmarks", "experiments", "lectures")}
LINK = re.compile(r"(!?\[[^\[\]]*\])\((?!https?:|#)([^)#\s]+)([^)\s]*)\)")
API = """# Python API

*For people who use seqgen from Python. Read [In Python](python.md) first.*

`seqgen.load` and the methods of what it returns are stable; everything else may change between
versions. The options of `sample` and `beam_search` are those of
[`seqgen sample`](commands/sample.md) and [`seqgen beam-search`](commands/beam-search.md), with
underscores.

::: seqgen.load

::: seqgen.scoring.api.Model

::: seqgen.training.train.train

::: seqgen.training.resume.resume

::: seqgen.errors
"""

CITATION = """# Citing seqgen

*For people who write about work that used seqgen.*

```yaml
{}```
"""


def on_config(config: Any) -> Any:
    """Add a page for every command to the navigation, below the list of all."""
    tabs = [part for tab in config.nav for part in tab.values() if isinstance(part, list)]
    parts = [part for tab in tabs for part in tab]
    (commands,) = (part["Commands"] for part in parts if "Commands" in part)
    commands += [{name: f"commands/{name}.md"} for name, _ in command_pages()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    made = {f"commands/{name}.md": text for name, text in command_pages()}
    made |= {"commands/index.md": index_page(), "api.md": API}
    made |= {"commands/other-tools.md": other_tools_page()}
    made |= {page: (ROOT / path).read_text(encoding="utf-8") for path, page in OUTSIDE.items()}
    made["about/citation.md"] = CITATION.format(made["about/citation.md"])
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return a page whose links lead to pages of the site, where its file's lead out of docs/."""
    here = page.file.src_uri
    if here in LAST_FOUND or here.startswith("companion/"):
        page.meta["search"] = {"boost": 0.2}
    origin = {made: path for path, made in OUTSIDE.items()}.get(here, f"docs/{here}")

    def moved(link: re.Match[str]) -> str:
        text, file, anchor = link.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), file))
        page = OUTSIDE.get(target) or target.removeprefix("docs/")
        if page == target:  # no page: it is named, and not linked
            return text.strip("[]")
        return f"{text}({posixpath.relpath(page, posixpath.dirname(here) or '.')}{anchor})"

    made = here.startswith("commands/") or here == "api.md"
    return markdown if made else LINK.sub(moved, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return a page in which what the theme leaves nameless has a name, for screen readers."""
    return _named(output)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Return a page that is no file of docs/, such as that for wrong addresses, with names."""
    return _named(output_content) if template_name.endswith(".html") else output_content


def _named(output: str) -> str:
    output = output.replace('role="dialog">', 'role="dialog" aria-label="Search">', 1)
    for label in re.finditer(r'<label class="md-nav__link " for="\w+" id="(\w+)"', output):
        # A part with a page of its own: the title is in the link before the label.
        title = re.findall(r'class="md-ellipsis">\s*([^<]*?)\s*<', output[: label.start()])[-1]
        named = f'aria-label="Pages of {title}"'
        output = output.replace(f'aria-labelledby="{label[1]}"', named)
    return output


def command_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the page of every command."""
    tree = typer.main.get_command(make_app())
    top = _context(tree, None, "seqgen")
    for name in tree.list_commands(top):
        command = tree.get_command(top, name)
        text = "\n".join(_described(command, _context(command, top, name), "#"))
        yield name, f"{text}\n"


def index_page() -> str:
    """Return the list of commands, and what all have in common."""
    tree = typer.main.get_command(make_app())
    lines = [
        "# Commands",
        "",
        "*For anyone who looks up a command or an option. These pages are made from the command "
        "line itself; `seqgen COMMAND --help` shows the same.*",
    ]
    for title, rows in command_rows(tree, _context(tree, None, "seqgen")):
        lines += ["", f"## {title}", "", "| command | what it does |", "|---|---|"]
        lines += [f"| [`seqgen {name}`]({name}.md) | {_cell(text)} |" for name, text in rows]
    for name, topic in help_texts()["topics"].items():
        text = topic["text"].removesuffix("\n")
        lines += ["", f"## {name}: {topic['about']}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def other_tools_page() -> str:
    """Return the table of other tools' words for commands, options and settings."""
    lines = [
        "# Words from other tools",
        "",
        "*For anyone who knows Hugging Face's tools, llama.cpp, vLLM, nanoGPT, fairseq, OpenNMT, "
        "KenLM, SRILM or sacreBLEU.*",
        "",
        "Words that mean exactly the same work in seqgen, too: `seqgen generate` is `seqgen "
        "sample`, and `_` may stand for `-` in options. For the others, a message says what to "
        "type.",
    ]
    for kind, dashes in (("commands", ""), ("options", "--")):
        lines += ["", f"## {kind.capitalize()}", "", "| other tools | the same | similar |"]
        lines += ["|---|---|---|"]
        for name, word in sorted(words_elsewhere(kind).items()):
            same, near = (
                ", ".join(f"`{own}`" for own in names) for names in (word.same, word.near)
            )
            command, _, own = name.rpartition(" ")
            typed = f"{command} {dashes[: 1 if len(own) == 1 else 2]}{own}".strip()
            lines.append(f"| `{typed}` | {same} | {near or _cell(word.says)} |")
    lines += ["", "## Settings", "", "| other tools | the same |", "|---|---|"]
    settings = sorted(settings_elsewhere().items())
    lines += [f"| `{name}` | `{own}` |" for name, own in settings]
    return "\n".join(lines) + "\n"


def _context(command: Any, parent: Any, name: str) -> Any:
    return command.make_context(name, [], parent=parent, resilient_parsing=True)


def _described(command: Any, ctx: Any, level: str) -> Iterator[str]:
    """Yield the lines about a command, and about its own commands."""
    yield from (f"{level} {ctx.command_path}", "")
    if level == "#":
        yield from ("*For anyone who looks up an option; see [all commands](index.md).*", "")
    for paragraph in paragraphs(command.help):
        yield from (_cell(paragraph), "")
    yield from ("```text", f"{ctx.command_path} {usage(command)}", "```", "")
    name = ctx.command_path.partition(" ")[2]
    examples = help_texts()["examples"].get(name, ())
    lines = [part for line, comment in examples for part in (f"# {comment}", line)]
    yield from ("```sh", *lines, "```", "")
    for title, rows in option_rows(command, ctx):
        yield from (f"{level}# {title}", "", "| option | meaning |", "|---|---|")
        for row, text in rows:
            yield f"| `{_cell(row.strip(), code=True)}` | {_cell(text)} |"
        yield ""
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        inner = command.get_command(ctx, name)
        yield from _described(inner, _context(inner, ctx, name), f"{level}#")


def _cell(text: str, code: bool = False) -> str:
    """Return plain text as Markdown shows it in a table, within backticks or not."""
    text = text.replace("|", "\\|")
    if code:
        return text
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_<\[])(?!\|)", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)
