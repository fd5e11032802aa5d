"""The command ``relfrog``: one command per library call.

Only what every command needs is imported here; the rest is imported by the command that needs it,
so that ``relfrog --help`` answers at once.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from relfrog._version import __version__
from relfrog.cli.command import Command
from relfrog.cli.data import DATA_COMMANDS
from relfrog.cli.demo import demo_command
from relfrog.cli.experiments import EXPERIMENT_COMMANDS
from relfrog.cli.interruption import end_processes, interrupted, listen
from relfrog.cli.questions import QUESTION_COMMANDS
from relfrog.cli.runs import RUN_COMMANDS
from relfrog.cli.store import STORE_COMMANDS
from relfrog.cli.terminal import guard_streams, is_unread, open_streams, visible
from relfrog.errors import RelFrogError, UsageError, without_passwords

__all__ = ["cli", "main", "process"]


class BrokenPipe(Exception):
    """A pipe broke: click would take any for standard output, end with 1, and say nothing."""


@contextmanager
def _telling_pipes() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise BrokenPipe(str(error)) from error


class _Commands(click.Group):
    """All commands."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments, or show help."""
        with _telling_pipes():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _telling_pipes():
            return super().invoke(ctx)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="relfrog")
@click.option(
    "--debug", is_flag=True, expose_value=False, help="Show a traceback if something fails.",
)  # fmt: skip
def cli() -> None:
    """Learn from relational databases directly, without flattening them first.

    Start with: relfrog demo
    """


cli.command_class = Command
for _command in (
    *QUESTION_COMMANDS,
    *DATA_COMMANDS,
    *RUN_COMMANDS,
    *EXPERIMENT_COMMANDS,
    *STORE_COMMANDS,
    demo_command,
):
    cli.add_command(_command)


def process() -> None:
    """Run `main` as all that this process does, and end it without taking apart what it holds.

    To free a million objects one by one is a tenth of the time of a short command.
    """
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        # As Python ends: other threads first, such as one that samples, then what was registered.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with suppress(OSError):  # the reader of a pipe has gone; what Python says to that, it says
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise


def main() -> None:
    """Run the command line; exit 0, 1 for an error the user can fix, 2 for wrong usage."""
    # Threads that wait spin for a moment, then sleep. To sleep at once doubles the time of a
    # training step, which is thousands of short operations; to spin for long starves everything
    # on a machine that has other work to do. Must be set before torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "100000")
    # No process that is started here imports anything from the current folder: a stranger's, maybe.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    open_streams()
    listen()
    guard_streams()
    debug = "--debug" in sys.argv
    try:
        code = cli.main(standalone_mode=False, prog_name="relfrog")
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        buffer = io.StringIO()
        error.show(buffer)
        click.echo(_clean(buffer.getvalue()), err=True, nl=False)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort) as error:
        end_processes()
        said = str(error.__cause__ or error)  # click makes Abort of it, and keeps the cause
        click.echo(said or "Interrupted. Nothing half-made is left behind.", err=True)
        sys.exit(130)
    except RelFrogError as error:
        if debug:
            click.echo(_clean(traceback.format_exc()), err=True)
            sys.exit(1)
        from relfrog.cli.terminal import styled

        click.echo(
            f"{styled(type(error).__name__, 'bold red', sys.stderr)}: {_clean(str(error))}",
            err=True,
        )
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except MemoryError:
        click.echo("Out of memory. Take fewer tables, or lower --memory.", err=True)
        sys.exit(1)
    except Exception as error:
        if interrupted():  # a library was in the middle of something and says so in its own words
            end_processes()
            click.echo("Interrupted. Nothing half-made is left behind.", err=True)
            sys.exit(130)
        if isinstance(error, BrokenPipe) and is_unread(sys.stdout) and not is_unread(sys.stderr):
            # Who reads what a command prints has seen enough: nothing is wrong.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            click.echo(f"No room left to write: {error}", err=True)
            sys.exit(1)
        said = traceback.format_exc() if debug else f"Unexpected {type(error).__name__}: {error}"
        click.echo(_clean(said), err=True)
        click.echo("This is a defect of RelFrog. Please report what --debug shows.", err=True)
        sys.exit(1)


def _clean(text: str) -> str:
    """A text without passwords: those of the command line, however they are quoted, and others."""
    from relfrog.io.secrets import scrub, secrets_in

    addresses = [argument for argument in sys.argv[1:] if "@" in argument or "=" in argument]
    secrets = [s for address in addresses if ":" in address for s in secrets_in(address)]
    return visible(scrub(without_passwords(text), secrets))


@cli.command("completion", example="relfrog completion bash")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print a completion script for your shell.

    It completes commands, options, datasets, their tasks, runs, presets and settings. Load it when
    the shell starts: in ~/.bashrc, eval "$(relfrog completion bash)"; in ~/.zshrc, after
    compinit, eval "$(relfrog completion zsh)"; for fish, relfrog completion fish >
    ~/.config/fish/completions/relfrog.fish
    """
    from relfrog.cli.completion import script

    click.echo(script(cli, shell))
