"""The commands for questions in words: ask, suggest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relfrog.cli.command import Command, print_json, settings_from

__all__ = ["QUESTION_COMMANDS"]


@click.command(
    "ask",
    cls=Command,
    example='relfrog ask sqlite:///shop.db "PREDICT COUNT(orders.*, 0, 30, days) = 0 FOR EACH '
    'customers.id"',
)
@click.argument("source")
@click.argument("question")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder to create.  "
              "[default: runs/ and the name of the task]")  # fmt: skip
@click.option("--dataset", "into", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Dataset folder to import into.  [default: named after the source]"
              )  # fmt: skip
@click.option("--name", help="Name of the task.  [default: made from the question]")
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(min=0.01),
              help="Time budget of training.")  # fmt: skip
@click.option("--size", type=click.Choice(["small", "medium", "large"]),
              help="Size of the network.  [default: medium]")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A setting of training (repeat).")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), help="Random seed.  [default: 0]")
@click.option("--rows", default=10, show_default=True, type=click.IntRange(min=1),
              help="How many predictions to print.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Train again if it was answered before.")
@click.option("--no-report", is_flag=True, help="Do not write report.html into the run folder.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def ask_command(
    source: str, question: str, out: Path | None, into: Path | None, settings: tuple[str, ...],
    rows: int, no_report: bool, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Answer a question in words, from a database or a dataset to predictions.

    SOURCE is a dataset folder; or a database URL, a database file or a folder of CSV or Parquet
    files, which is imported first. QUESTION says what to predict for whom: docs/ask.md. A first
    answer comes from quick models after seconds; then all models are tried within --minutes, and
    the best by backtests and validation answers.
    """
    from relfrog.cli.question_summaries import answer_lines, answer_record, first_answer
    from relfrog.runs.ask import ask
    from relfrog.training.progress import TrainingProgress

    given = settings_from(settings)
    with TrainingProgress() as progress:
        found = ask(
            source, question, out, dataset=into, settings=given, callbacks=[progress],
            first=lambda answer: progress.on_message(first_answer(answer)), **options,
        )  # fmt: skip
    if not no_report:
        from relfrog.cli.runs import report_after
        from relfrog.runs.run import Run

        for run in [found] if isinstance(found, Run) else found.runs:
            report_after(run)
    if as_json:
        print_json(answer_record(found, question, rows))
    else:
        click.echo(answer_lines(found, question, rows))


@click.command("suggest", cls=Command, example="relfrog suggest shop")
@click.argument("dataset")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(min=1),
              help="The most questions to show.")  # fmt: skip
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(min=0),
              help="Time after which no further question is tried.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the questions as JSON.")
def suggest_command(dataset: str, limit: int, seconds: float, as_json: bool) -> None:
    """Show questions worth asking of a dataset, the best first.

    They are found from the schema: who has events, what repeats, what has a value, which rows will
    be joined next. Each is tried: how many labels it has, and how well the quick baselines (an
    entity's earlier labels, what is popular) do beside an answer that is the same for all.
    """
    import dataclasses

    from relfrog.cli.question_summaries import suggestion_lines
    from relfrog.queries.suggest import suggest

    found = suggest(dataset, limit=limit, seconds=seconds)
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
    else:
        click.echo(suggestion_lines(dataset, found))


QUESTION_COMMANDS = (suggest_command, ask_command)
