"""Write docs/commands.md and docs/reference.md from the commands' help and the docstrings.

    python docs/generate.py

A test fails when the files are not what this script writes.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click

import relfrog
from relfrog.cli import cli

HERE = Path(__file__).parent


def commands() -> str:
    """Every command with its help, as it is shown in the terminal."""
    parts = [
        "# Commands",
        "",
        "Made from `relfrog COMMAND --help` by `docs/generate.py`. Data go to standard output, "
        "progress and warnings to standard error. A command exits with 0, with 1 for what you can "
        "mend (one sentence says what and how), with 2 for wrong usage, with 130 when it was "
        "interrupted.",
    ]
    parent = click.Context(cli, info_name="relfrog", **cli.context_settings)
    for name, command in sorted(cli.commands.items()):
        context = click.Context(command, parent=parent, info_name=name, terminal_width=100)
        text = command.get_help(context).rstrip()
        parts += ["", f"## relfrog {name}", "", "```text", text, "```"]
    return "\n".join(parts) + "\n"


def reference() -> str:
    """Every public name with its signature and docstring."""
    parts = [
        "# Python reference",
        "",
        "Made from the docstrings of the public names by `docs/generate.py`.",
    ]
    for name in relfrog.__all__:
        if name == "__version__":
            continue
        value = getattr(relfrog, name)
        signature = "" if inspect.isclass(value) else _signature(value)
        parts += ["", f"## `{name}`", ""]
        if signature:
            parts += ["```python", _wrapped(f"{name}{signature}"), "```", ""]
        parts += ["```text", inspect.getdoc(value) or "", "```"]
    return "\n".join(parts) + "\n"


def _signature(function: object) -> str:
    """The signature without the quotes around annotations."""
    text = str(inspect.signature(function))  # type: ignore[arg-type]
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def _wrapped(signature: str) -> str:
    if len(signature) <= 90:
        return signature
    head, _, tail = signature.partition("(")
    inside, _, after = tail.rpartition(")")
    depth, pieces, piece = 0, [], ""
    for character in inside:
        depth += character in "([{"
        depth -= character in ")]}"
        if character == "," and depth == 0:
            pieces.append(piece.strip())
            piece = ""
        else:
            piece += character
    pieces.append(piece.strip())
    return f"{head}(\n    " + ",\n    ".join(pieces) + f",\n){after}"


PAGES = {"commands.md": commands, "reference.md": reference}

if __name__ == "__main__":
    for file, make in PAGES.items():
        (HERE / file).write_text(make(), encoding="utf-8")
