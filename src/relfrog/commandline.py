"""What all commands share: help that ends with an example, and JSON on standard output."""

from __future__ import annotations

import json
from typing import Any

import click

from relfrog.completion import completed
from relfrog.runfiles import plain

__all__ = ["Command", "write_json"]


class Command(click.Command):
    """A command whose help ends with an example, and which knows ``--debug``."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.params.append(
            click.Option(
                ["--debug"], is_flag=True, expose_value=False,
                help="Show a traceback if something fails.",
            )
        )  # fmt: skip
        completed(self.params)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the example as it is typed."""
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    formatter.write(f"  {line}\n")


def write_json(data: object) -> None:
    """Print JSON; what is not a number is null, as JSON has no NaN."""
    click.echo(json.dumps(plain(data), indent=1, ensure_ascii=False, default=str))
