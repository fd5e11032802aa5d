"""Write docs/commands.md and docs/settings.md from help texts and the docstring of the settings.

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

from relfrog.cli import cli
from relfrog.config import SIZES, Config, default_settings, presets, read_preset

HERE = Path(__file__).parent


def commands() -> str:
    """Every command with its help, as it is shown in the terminal."""
    parts = [
        "# Commands",
        "",
        "The output of `relfrog COMMAND --help`, written here by `docs/generate.py`. Data go to "
        "standard output, progress and warnings to standard error. The exit code is 0 for success, "
        "1 for an error you can fix (the message says how), 2 for wrong usage, and 130 after an "
        "interrupt.",
    ]
    parent = click.Context(cli, info_name="relfrog", **cli.context_settings)
    for name, command in sorted(cli.commands.items()):
        context = click.Context(command, parent=parent, info_name=name, terminal_width=100)
        text = command.get_help(context).rstrip()
        parts += ["", f"## relfrog {name}", "", "```text", text, "```"]
    return "\n".join(parts) + "\n"


def settings() -> str:
    """Every setting with its default and meaning, and the presets."""
    small, large = default_settings(0), default_settings(10**9)
    sizes = ", ".join(f"`{name}` {channels}" for name, channels in SIZES.items())
    parts = [
        "# Settings",
        "",
        "Written by `docs/generate.py` from the docstring of `relfrog.Config`. Change settings one "
        "at a time with `relfrog train ... --set lr=0.0005 --set epochs=40`, or many at once with "
        "`--preset`, which takes the name of a preset or a YAML file with one `name: value` per "
        "line. `--set` overrides a preset, and a preset overrides the defaults. `config.yaml` in a "
        "run folder holds all settings of the run and can itself be used as a preset.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    meanings = _meanings()
    for entry in fields(Config):
        default = entry.default
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        if small.get(entry.name, default) != large.get(entry.name, default):
            shown = f"{small[entry.name]} to {large[entry.name]}, by number of training seeds"
        elif entry.name in small:
            shown = str(small[entry.name])
        parts.append(f"| `{entry.name}` | {shown} | {meanings[entry.name]} |")
    lists = default_settings(1_000_000, kind="recommendation").items()
    other = ", ".join(f"`{name}` {value}" for name, value in lists if large.get(name) != value)
    parts += [
        "",
        f"`--size` sets `channels`: {sizes}.",
        "",
        f"Defaults that differ for recommendations: {other}; batches are smaller if there are few "
        "training seeds.",
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
    """The docstring's description of each setting."""
    text = inspect.getdoc(Config) or ""
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.split("Attributes:")[1], re.M)
    return {name: " ".join(meaning.split()).replace("|", "\\|") for name, meaning in found}


PAGES = {"commands.md": commands, "settings.md": settings}

if __name__ == "__main__":
    for file, make in PAGES.items():
        (HERE / file).write_text(make(), encoding="utf-8")
