"""Write docs/commands.md, reference.md and settings.md from help texts and docstrings.

    python docs/generate.py

A test fails when the files are not what this script writes.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from importlib import resources
from pathlib import Path

import click

import relfrog
from relfrog.cli import cli
from relfrog.config import SIZES, Config, default_settings, presets, read_preset

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
        if inspect.isclass(value):
            parts += _methods(name, value)
    return "\n".join(parts) + "\n"


def _methods(name: str, owner: type) -> list[str]:
    """What a class can be asked, beside its own description."""
    parts = []
    for method, member in vars(owner).items():
        if method.startswith("_") or not inspect.isfunction(member):
            continue
        signature = _signature(member).replace("(self, ", "(").replace("(self)", "()")
        shown = _wrapped(f"{name}.{method}{signature}")
        parts += ["", "```python", shown, "```", ""]
        parts += ["```text", inspect.getdoc(member) or "", "```"]
    return parts


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


def settings() -> str:
    """Every setting with its default and meaning, and the presets."""
    small, large = default_settings(0), default_settings(10**9)
    sizes = ", ".join(f"`{name}` {channels}" for name, channels in SIZES.items())
    parts = [
        "# Settings",
        "",
        "Made from `relfrog.config.Config` by `docs/generate.py`. One at a time: "
        "`relfrog train ... --set lr=0.0005 --set epochs=40`; many at once: `--preset FILE`, a "
        "YAML file with one `name: value` per line, or the name of a preset. What comes later "
        "counts: default < preset < `--set`. `config.yaml` in a run folder holds all of them, and "
        "is a preset itself.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    meanings = _meanings()
    for entry in fields(Config):
        default = entry.default
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        if small.get(entry.name, default) != large.get(entry.name, default):
            shown = f"{small[entry.name]} to {large[entry.name]}, by the number of training seeds"
        elif entry.name in small:
            shown = str(small[entry.name])
        parts.append(f"| `{entry.name}` | {shown} | {meanings[entry.name]} |")
    lists = default_settings(1_000_000, kind="recommendation").items()
    other = ", ".join(f"`{name}` {value}" for name, value in lists if large.get(name) != value)
    parts += [
        "",
        f"`channels` is what `--size` sets: {sizes}.",
        "",
        f"For recommendations the defaults are: {other}; batches are smaller with few training "
        "seeds.",
        "",
        "## Presets",
    ]
    for name in presets():
        text = (resources.files("relfrog") / "presets" / f"{name}.yaml").read_text("utf-8")
        about = " ".join(line[1:].strip() for line in text.splitlines() if line.startswith("#"))
        found = read_preset(name).items()
        given = ", ".join(f"`{key}` {str(value).lower()}" for key, value in found)
        parts += ["", f"`{name}`: {about} {given}."]
    return "\n".join(parts) + "\n"


def _meanings() -> dict[str, str]:
    """What the docstring says of each setting, as a sentence."""
    text = inspect.getdoc(Config) or ""
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.split("Attributes:")[1], re.M)
    return {name: " ".join(meaning.split()).replace("|", "\\|") for name, meaning in found}


PAGES = {"commands.md": commands, "reference.md": reference, "settings.md": settings}

if __name__ == "__main__":
    for file, make in PAGES.items():
        (HERE / file).write_text(make(), encoding="utf-8")
