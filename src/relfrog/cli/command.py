"""What all commands share: help that ends with an example, warnings in a line, JSON."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from relfrog.cli.completion import completed
from relfrog.cli.terminal import styled, visible
from relfrog.errors import RelFrogWarning, UsageError, without_passwords
from relfrog.support.files import is_address, jsonable

__all__ = ["Command", "print_json", "settings_from"]


class Command(click.Command):
    """A command whose help ends with an example, and which knows ``--debug``.

    Our own warnings are one line each on standard error.
    """

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

    def invoke(self, ctx: click.Context) -> Any:
        """Run it.

        Raises:
            UsageError: An address was given where a path is expected.
        """
        for param in self.params:
            given = ctx.params.get(str(param.name)) if isinstance(param.type, click.Path) else None
            for path in given if isinstance(given, tuple) else (given,):
                if path is not None and is_address(path):
                    raise UsageError(f"{path} is an address. Give the path of a file or folder.")
        with warnings.catch_warnings():
            warnings.simplefilter("always", RelFrogWarning)
            warnings.showwarning = _show
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the example as it is typed."""
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    formatter.write(f"  {line}\n")


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    mark = styled("warning", "bold yellow", sys.stderr)
    click.echo(f"{mark}: {visible(without_passwords(' '.join(str(message).split())))}", err=True)


def settings_from(texts: Sequence[str]) -> dict[str, str]:
    """What ``--set KEY=VALUE`` says, given several times.

    Raises:
        UsageError: A text is no setting.
    """
    found = {}
    for text in texts:
        key, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"--set takes KEY=VALUE (got {text!r}).")
        found[key.strip()] = value.strip()
    return found


def print_json(data: object) -> None:
    """Print JSON; what is not a number is null, as JSON has no NaN."""
    click.echo(json.dumps(jsonable(data), indent=1, ensure_ascii=False, default=str))
