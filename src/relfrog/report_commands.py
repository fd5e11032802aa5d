"""The commands that look into a run: report, explain."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from relfrog.commandline import Command, write_json
from relfrog.errors import RelFrogError

__all__ = ["REPORT_COMMANDS", "report_after"]


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Say what is being done: one changing line on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("report") as status:
        yield lambda text: status.update(f"report: {escape(text)}")


def report_after(run: Any) -> None:
    """Write the report of a run that has just been trained; the run stands, whatever happens."""
    from relfrog.reporting import report

    try:
        with _telling() as told:
            path = report(run, told=told)
    except Exception as error:  # whatever it is, hours of training are not called a failure
        again = f"relfrog report {shlex.quote(str(run.folder))} --debug"
        words = (
            str(error) if isinstance(error, RelFrogError) else f"{type(error).__name__}: {error}"
        )
        click.echo(f"warning: there is no report: {words} See: {again}", err=True)
        return
    click.echo(f"Report written to {path}: open it in a browser.", err=True)


@click.command("report", cls=Command, example="relfrog report runs/churn --out churn.html")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE",
              help="HTML file to write.  [default: report.html in the run folder]")  # fmt: skip
@click.option("--compare", type=click.Path(path_type=Path), metavar="OTHER_RUN",
              help="Show the roles of another run too, with the differences marked.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Take minutes rather than seconds for what tables and "
              "single columns are worth.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Read the dataset again, and compute anew what was "
              "kept of it.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def report_command(
    run: Path, out: Path | None, compare: Path | None, deep: bool, fresh: bool, device: str
) -> None:
    """Show what was learned, in one HTML file that needs nothing else.

    It is made from the run folder alone. What comes from the dataset was computed and kept there
    for the first report, at the end of training; if there was none, or --deep asks for more, the
    dataset that the run names is read.
    """
    from relfrog.reporting import report
    from relfrog.runs import load_run

    with _telling() as told:
        path = report(
            load_run(run, device=device), out, compare=compare, deep=deep, fresh=fresh, told=told
        )
    click.echo(f"Report written to {path}: open it in a browser.", err=True)


@click.command("explain", cls=Command, example="relfrog explain runs/churn --entity 3")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--entity", required=True, metavar="KEY", help="Whom the prediction is for: the key "
              "in the source; values of several columns with commas between.")  # fmt: skip
@click.option("--at", metavar="TIME", help="When.  [default: the newest time in the database]")
@click.option("--rows", default=40, show_default=True, type=click.IntRange(min=1),
              help="How many rows of the past to try.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def explain_command(
    run: Path, entity: str, at: str | None, rows: int, device: str, as_json: bool
) -> None:
    """Show the rows of the past that carried one prediction.

    Each row is hidden in turn and the prediction made again: the difference is its effect. For
    each table the newest time that was used is shown, which is never later than the prediction.
    """
    from relfrog.explaining import explain
    from relfrog.runs import load_run
    from relfrog.summary import explanation

    opened = load_run(run, device=device)
    found = explain(opened, entity, at, rows=rows)
    if as_json:
        write_json({"task": opened.about["task"], **dataclasses.asdict(found)})
    else:
        click.echo(explanation(found))


REPORT_COMMANDS = (report_command, explain_command)
