"""Generates docs/commands.md, docs/python.md and the tables of docs/concepts.md from the code.

Usage: reference.py [--check]. With --check nothing is written; the exit status is 1 if a file differs.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from typer.main import get_command

import assay
from assay.app.output import Exit
from assay.cli.examples import EXAMPLES
from assay.cli.main import root
from assay.training.catalogue import CATALOGUE, NUMBERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
COLUMNS = 110
MADE = "Made by `scripts/generate/reference.py` from the code; the lint step compares."


def wrapped(text: str) -> str:
    """Wraps a paragraph and escapes angle brackets and pipes."""
    return fill(" ".join(text.split()), COLUMNS, break_long_words=False, break_on_hyphens=False)


def walked(command: Any, context: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command below a group with its full name, in the order of `--help`."""
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    if not names:
        yield path, command
    for name in names:
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from walked(found, context, f"{path} {name}")


def option_line(parameter: Any) -> str:
    """One option in Markdown."""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    needed = " (needed)" if parameter.required else ""
    given = parameter.default
    plain = isinstance(given, (str, int, float, Path)) and not isinstance(given, bool) and str(given)
    default = f" By default `{given}`." if plain else ""
    words = (getattr(parameter, "help", None) or "").strip()
    text = f"- {names}{needed}{': ' + words if words else ''}{default}"
    return fill(text, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def commands() -> str:
    """docs/commands.md."""
    top = get_command(root)
    context = top.make_context("assay", ["--help"], resilient_parsing=True)
    parts = ["# Commands", MADE, "Options of every command, before its name or after it:"]
    parts.append("\n".join(option_line(p) for p in top.params if "--help" not in p.opts))
    parts += ["How a command ends, as `$?` has it:", table(["status | what it means", *statuses()])]
    for path, command in walked(top, context, "assay"):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        shown = " ".join(p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments)
        parts.append(f"## {path}")
        parts.append(f"`{' '.join((path, *([shown] if shown else []), '[OPTIONS]'))}`")
        parts += [wrapped(part) for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))]
        options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
        if options:
            parts.append("\n".join(option_line(p) for p in options))
        if path in EXAMPLES:
            parts.append("\n".join(("```text", *EXAMPLES[path], "```")))
    return "\n\n".join(parts) + "\n"


def statuses() -> list[str]:
    """A row for each exit status."""
    return [f"{int(status)} | {status.meaning}" for status in Exit]


def doc(thing: Any) -> list[str]:
    """A docstring's paragraphs; an indented example as code."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(thing.__doc__ or ""))
    return [f"```text\n{part}\n```" if part.startswith("    ") else wrapped(part) for part in parts if part]


def signature(thing: Any) -> str:
    """Signature, with one parameter per line if one line is too short."""
    whole = str(inspect.signature(thing)).replace("'", "")
    if len(whole) < COLUMNS - 20:
        return whole
    head, _, result = whole.rpartition(" -> ")
    inner = re.sub(r", (?=\*?\w+(?::|$)|\*,|\*$)", ",\n    ", head[1:-1])
    return f"(\n    {inner},\n) -> {result}"


def python() -> str:
    """docs/python.md."""
    script = "A whole script: [From Python](tutorials/developer.md#from-python)."
    parts = ["# Python", MADE, *doc(assay)[:1], script]
    for name in assay.__all__:
        thing = getattr(assay, name)
        parts.append(f"## assay.{name}")
        if inspect.isfunction(thing) or (inspect.isclass(thing) and name in ("Plan", "Schedule", "Dataset")):
            parts.append(f"```python\n{name}{signature(thing)}\n```")
        parts += doc(thing)
        if inspect.isclass(thing) and thing.__module__.startswith("assay.api"):
            for method, member in vars(thing).items():
                body = getattr(member, "fget", None) or member
                if method.startswith("_") or not callable(body) or not body.__doc__:
                    continue
                call = "" if isinstance(member, property) else signature(body).replace("(self, ", "(", 1)
                parts.append(f"### {name}.{method}")
                if call:
                    parts.append(f"```python\n{method}{call.replace('(self)', '()')}\n```")
                parts += doc(body)
    return "\n\n".join(parts) + "\n"


def table(rows: list[str]) -> str:
    """A Markdown table from rows; the first is the head."""
    lines = [f"| {row} |" for row in rows]
    return "\n".join([lines[0], "|---" * rows[0].count(" | ") + "|---|", *lines[1:]])


def algorithms() -> str:
    """The outer algorithms, a row each."""
    rows = ["algorithm | what travels | outer rule | rate | momentum | slices | paper"]
    for name, entry in CATALOGUE.items():
        numbers = f"{entry.learning_rate} | {entry.momentum} | {'no' if entry.unsliced else 'yes'}"
        rows.append(f"`{name}` | {entry.travels} | {entry.follows} | {numbers} | {entry.paper}")
    return table(rows)


def numbers() -> str:
    """The whole numbers that some algorithms have, a row each."""
    rows = ["key | what it is | without it | bounds"]
    for key, number in NUMBERS.items():
        usual = ", ".join(f"`{name}` {value:,}" for name, value in number.usual.items())
        rows.append(f"`{key}` | {number.comment} | {usual} | {number.bounds}")
    return table(rows)


def concepts(text: str) -> str:
    """docs/concepts.md with its tables regenerated, each between two comments."""
    for name, made in (("algorithms", algorithms()), ("numbers", numbers())):
        begin, end = f"<!-- {name}: {MADE} -->", f"<!-- end of {name} -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n\n{made}\n\n{end}{rest.split(end)[1]}"
    return text


def main() -> int:
    """Writes or compares the files."""
    different = []
    tables = concepts((DOCS / "concepts.md").read_text())
    for name, text in (("commands.md", commands()), ("python.md", python()), ("concepts.md", tables)):
        path = DOCS / name
        if not path.exists() or path.read_text() != text:
            different.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if "--check" in sys.argv and different:
        named = ", ".join(f"docs/{name}" for name in different)
        print(f"{named}: not what the code says; python scripts/generate/reference.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
