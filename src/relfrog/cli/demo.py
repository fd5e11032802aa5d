"""`relfrog demo`: the whole journey on the embedded database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relfrog.cli.command import Command
from relfrog.datasets.demo import DEMO_TASKS, build_demo
from relfrog.errors import RelFrogError

if TYPE_CHECKING:
    from relfrog.runs.run import Run

__all__ = ["demo_command", "run_demo"]


def run_demo(
    out: Path, overwrite: bool, settings: Mapping[str, Any], *, report: bool = True
) -> None:
    """The journey: a database, imported, asked, checked, inspected, predicted, reported.

    Args:
        out: The folder for everything.
        overwrite: Whether to replace what an earlier demo left there.
        settings: Of the training.
        report: Whether to write the report.
    """
    from relfrog.cli.data_summaries import check_lines, import_summary, inspection
    from relfrog.cli.terminal import TerminalProgress
    from relfrog.datasets.checks import check
    from relfrog.datasets.overview import inspect
    from relfrog.reporting.schema_drawing import schema_svg
    from relfrog.support.files import write_text

    dataset = out / "flights"
    click.echo(f"$ relfrog import sqlite:///{out / 'flights.db'} {dataset} ...\n")
    with TerminalProgress() as progress:
        result = build_demo(out, overwrite=overwrite, progress=progress)
    click.echo(import_summary(result))
    _suggest(dataset)
    run, predictions = out / "run", out / "predictions.csv"
    trained = _ask(dataset, run, settings)
    click.echo(f"\n$ relfrog check {dataset}\n")
    checked = check(dataset)
    click.echo(check_lines(checked))
    if not checked.ok:
        raise RelFrogError("the demo's dataset has errors; please report this")
    click.echo(f"\n$ relfrog inspect {dataset}\n")
    found = inspect(dataset)
    click.echo(inspection(found))
    drawing = out / "schema.svg"
    write_text(drawing, schema_svg(found))
    _look(trained, predictions)
    page = out / "report.html"
    if report:
        from relfrog.reporting import report as write_report

        click.echo(f"\n$ relfrog report {run} --out {page}\n")
        write_report(trained, page)
        click.echo(f"Report written to {page}: open it in a browser.")
    click.echo(
        f"\nThe database is {out / 'flights.db'}, the dataset {dataset}, its drawing {drawing}, "
        f"the run {run}.\n"
        "Try next:\n"
        f"  relfrog explain {run} --entity BOS --at 2013-12-08\n"
        f"  relfrog evaluate {run} --split test --regime frozen\n"
        f"  relfrog predict {run} --set weather.visib=0 --entities FILE --out what-if.csv\n"
        f"  relfrog train {dataset} plane-delay --out {out / 'plane-delay'}\n"
        "  relfrog suggest YOUR_DATASET\n"
        '  relfrog ask YOUR_DATABASE "PREDICT ... FOR EACH ..."'
    )


def _suggest(dataset: Path) -> None:
    """Show some questions that the schema suggests."""
    from relfrog.cli.question_summaries import suggestion_lines
    from relfrog.queries.suggest import suggest

    click.echo(f"\n$ relfrog suggest {dataset} --limit 3 --seconds 10\n")
    click.echo(suggestion_lines(str(dataset), suggest(dataset, limit=3, seconds=10)))


def _ask(dataset: Path, run: Path, settings: Mapping[str, Any]) -> Run:
    """Ask one question, from the words to predictions; returns the run."""
    from relfrog.cli.question_summaries import answer_lines, first_answer
    from relfrog.runs.ask import ask
    from relfrog.runs.forecast import Forecast
    from relfrog.training.progress import TrainingProgress

    task = DEMO_TASKS[0]
    query = task.options["query"]
    given = " ".join(f"--set {name}={value}" for name, value in settings.items())
    click.echo(
        f"\n{task.options['description']}\n\n"
        f'$ relfrog ask {dataset} "{query}" --name {task.name} --out {run} --size small {given}\n'
    )
    with TrainingProgress() as progress:
        found = ask(
            dataset, query, run, name=task.name, size="small", settings=settings, overwrite=True,
            callbacks=[progress],
            first=lambda answer: progress.on_message(first_answer(answer)),
        )  # fmt: skip
    assert not isinstance(found, Forecast)
    click.echo(answer_lines(found, query, 5))
    click.echo(f"\n{_what_to_notice(found)}")
    return found


def _look(trained: Run, predictions: Path) -> None:
    """Show what was learned, and predict into a file."""
    from relfrog.cli.run_summaries import role_table
    from relfrog.io.output import write_frame

    click.echo(f"\n$ relfrog roles {trained.folder}\n")
    click.echo(role_table(trained.roles()))
    click.echo(f"\n$ relfrog predict {trained.folder} --out {predictions}\n")
    frame = trained.predict(stamped=True)
    where = write_frame(frame, predictions, overwrite=True)
    click.echo(f"{len(frame):,} predictions written to {where}, such as\n")
    with open(predictions, encoding="utf-8") as file:
        click.echo("".join(line for line, _ in zip(file, range(4), strict=False)), nl=False)


def _what_to_notice(run: Run) -> str:
    """What the scores of the members say, in a sentence."""
    from relfrog.cli.terminal import wrapped

    metric, regime, members = run.kind.metric, run.config.regime, run.blend["members"]
    scores = {name: found["val"][regime][metric] for name, found in members.items()}
    others = {name: score for name, score in scores.items() if name != "frog"}
    if "frog" not in scores or not others:
        return "What to notice: there was no time for all models."
    best = max(others, key=lambda name: others[name])
    lead = "ahead of" if scores["frog"] > others[best] else "behind"
    return wrapped(
        "What to notice: an airport's own past labels say little (recent, "
        f"{scores.get('recent', float('nan')):.3f}; 0.5 is guessing). FROG also reads other "
        f"flights, planes and the weather, from the tables as they are: {scores['frog']:.3f} on "
        f"validation, {lead} {best} on features that RelFrog computes ({others[best]:.3f}). What "
        "answers was chosen without test labels."
    )


@click.command("demo", cls=Command, example="relfrog demo --out flights-demo")
@click.option("--out", default="relfrog-demo", show_default=True, type=click.Path(path_type=Path),
              help="Folder for everything.")  # fmt: skip
@click.option("--epochs", default=6, show_default=True, type=click.IntRange(min=1),
              help="Of training.")  # fmt: skip
@click.option("--no-report", is_flag=True, help="Do not write report.html.")
@click.option("--overwrite", is_flag=True, help="Replace what an earlier demo left there.")
def demo_command(out: Path, epochs: int, no_report: bool, overwrite: bool) -> None:
    """Walk the whole journey on a real database: flights out of New York in 2013.

    Import it, see which questions it suggests, ask one, look at the learned roles, predict, write
    a report; two to three minutes.
    """
    # A larger learning rate than the default, one trial, no refit: the whole takes minutes.
    settings = {"epochs": epochs, "lr": 0.003, "trials": 1, "networks": 1, "refit": "off"}
    run_demo(out, overwrite, settings, report=not no_report)
