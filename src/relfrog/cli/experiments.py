"""The commands on evidence: experiment, submit, audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relfrog.cli.command import Command, print_json, settings_from

__all__ = ["EXPERIMENT_COMMANDS"]

NAMES = ("main", "roles", "fd", "sensitivity", "structure", "transfer", "fd-space", "tune")
_LISTS = ("--datasets", "--tasks", "--models")


class ListCommand(Command):
    """A command some of whose options take several values: `--tasks a b`, or `--tasks a,b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, as click has it."""
        given: list[str] = []
        option = ""
        for word in args:
            name, _, value = word.partition("=")
            if name in _LISTS:
                option = name
                given += [f"{option}={part}" for part in value.split(",") if part]
            elif word.startswith("-"):
                option = ""
                given.append(word)
            elif option and word not in NAMES:
                given += [f"{option}={part}" for part in word.split(",") if part]
            else:
                given.append(word)
        return super().parse_args(ctx, given)


@click.command(
    "experiment", cls=ListCommand,
    example="relfrog experiment main --datasets shop --models sage --seeds 1 --out main",
)  # fmt: skip
@click.argument("name", type=click.Choice(NAMES))
@click.option("--datasets", multiple=True, metavar="NAME...",
              help="Dataset folders or RelBench names.  [default: those of the paper]")  # fmt: skip
@click.option("--tasks", multiple=True, metavar="NAME...",
              help="Tasks to run.  [default: those of the paper, or all of another "
              "dataset]")  # fmt: skip
@click.option("--models", multiple=True, metavar="NAME...", help="In main: models to run.  "
              "[default: all]")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), metavar="N",
              help="Number of random seeds.  [default: 5; 1 in tune]")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Parallel runs, each in its own process.")  # fmt: skip
@click.option("--cluster", metavar="ADDRESS", help="Run on a Ray cluster instead: auto, local or "
              "HOST:PORT; see docs/scale.md.")  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), metavar="N",
              help="Threads of each run, as --set threads=N.  [default: 1]")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Folder for the results.  [default: relfrog-experiments/NAME]")  # fmt: skip
@click.option("--runs", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Folder for the runs, which studies can share.  [default: runs in --out, or "
              "relfrog-experiments/runs]")  # fmt: skip
@click.option("--size", default="medium", show_default=True,
              type=click.Choice(["small", "medium", "large"]),
              help="Size of the networks.")  # fmt: skip
@click.option("--preset", metavar="NAME", help="Settings of all runs, by name or as a YAML file; "
              "{dataset} and {task} in it are replaced.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A single setting of all runs (repeat).")  # fmt: skip
@click.option("--trials", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="In tune: settings to try per task.")  # fmt: skip
@click.option("--list", "listed", is_flag=True, help="Show the paper's tasks with their RelBench "
              "addresses, and exit.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def experiment_command(
    name: str, settings: tuple[str, ...], listed: bool, as_json: bool, **options: Any
) -> None:
    """Run a study of the paper: main, roles, fd, sensitivity, structure, transfer, fd-space, tune.

    Finished runs are kept and reused: after Ctrl-C or a crash the same command continues. A dataset
    that cannot be reached, or a model that does not fit a task, is skipped with one line. Results
    are results.json, table.md and charts in the folder --out.
    """
    if listed:
        click.echo(_listed(name, as_json), nl=False)
        return
    from relfrog.experiments.study_run import experiment

    given = settings_from(settings)
    results = experiment(
        name, settings=given, say=lambda line: click.echo(line, err=True), **options
    )
    folder = options["out"] or Path("relfrog-experiments") / name
    if as_json:
        print_json(results)
    else:
        click.echo((folder / "table.md").read_text(encoding="utf-8"), nl=False)
    click.echo(f"Results: {folder}", err=True)
    if results["failed"]:
        click.echo(
            f"{len(results['failed'])} runs failed; the same command tries them again. What they "
            f"printed: {folder / 'log.txt'}", err=True,
        )  # fmt: skip
        raise click.exceptions.Exit(1)


def _listed(name: str, as_json: bool) -> str:
    """The tasks on which the paper has a study."""
    import json

    from relfrog.cli.terminal import table
    from relfrog.experiments.paper import paper_tasks
    from relfrog.experiments.studies import find_study

    wanted = find_study(name).default_tasks()
    rows = [(t.dataset, t.task, t.kind, t.address) for t in paper_tasks() if t.name in wanted]
    if as_json:
        names = ("dataset", "task", "type", "address")
        return json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1) + "\n"
    return table(["dataset", "task", "type", "RelBench address"], rows) + "\n"


@click.command("submit", cls=Command, example="relfrog submit runs/churn --out submission")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", default="submission", show_default=True, type=click.Path(path_type=Path),
              metavar="FOLDER", help="Folder for the files, one per task.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@click.option("--json", "as_json", is_flag=True, help="Print the written files as JSON.")
def submit_command(runs: tuple[Path, ...], out: Path, overwrite: bool, as_json: bool) -> None:
    """Write predictions of runs for RelBench's leaderboard, checked by RelBench's own checker.

    One file per task, DATASET__TASK.csv, in the regime of the benchmark: the database stops at
    the test time. A leaderboard takes a folder that holds all of its tasks.
    """
    from relfrog.cli.terminal import table
    from relfrog.experiments.submission import leaderboards, submit

    done = submit(runs, out, overwrite=overwrite)
    missing = leaderboards(done)
    if as_json:
        files = [
            {"task": one.task, "file": str(one.file), "rows": one.rows, "metrics": one.metrics,
             "leaderboard": one.family}
            for one in done
        ]  # fmt: skip
        print_json({"files": files, "missing": missing})
    else:
        rows = [
            [one.task, one.file.name, f"{one.rows:,}",
             ", ".join(f"{metric} {value:.4f}" for metric, value in one.metrics.items()),
             one.family or "none"]
            for one in done
        ]  # fmt: skip
        click.echo(table(["task", "file", "rows", "checked", "leaderboard"], rows, right=(2,)))
    for family, tasks in missing.items():
        said = f"still lacks {len(tasks)} tasks, such as {tasks[0]}" if tasks else "is complete"
        click.echo(f"the {family} leaderboard {said}", err=True)
    click.echo(f"Check and pack a complete folder with: python -m relbench.submit {out}", err=True)


@click.command(
    "audit", cls=Command, example="relfrog audit submission/shop__churn.csv --task shop churn"
)  # fmt: skip
@click.argument("predictions", type=click.Path(path_type=Path))
@click.option("--task", "place", nargs=2, required=True, metavar="DATASET TASK",
              help="The task that they are for.")  # fmt: skip
@click.option("--split", type=click.Choice(["val", "test"]), default="test", show_default=True,
              help="The split that they are about.")  # fmt: skip
@click.option("--column", metavar="NAME", help="Column with the predictions.  [default: found by "
              "its name]")  # fmt: skip
@click.option("--time", metavar="NAME", help="Column with the times.  [default: found by its name]")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def audit_command(
    predictions: Path, place: tuple[str, str], as_json: bool, **options: str | None
) -> None:
    """Look for signs of a leak in predictions that somebody made; exit 1 if one is certain.

    PREDICTIONS is a CSV or Parquet file: the entity's key, the time, the prediction, as relfrog
    predict or RelBench's leaderboard has it. Rows out of their time, copied labels, scores that are
    too good, and predictions that follow labels where the past says nothing are reported.
    """
    import dataclasses

    from relfrog.analysis.audit import LIMITS, audit

    found = audit(predictions, *place, **options)  # type: ignore[arg-type]
    if as_json:
        print_json({"ok": found.ok, **dataclasses.asdict(found), "limits": LIMITS})
    else:
        from relfrog.cli.data_summaries import check_lines
        from relfrog.cli.terminal import wrapped

        scores = ", ".join(f"{name} {value:.4f}" for name, value in found.metrics.items())
        click.echo(wrapped(f"{found.task}, {found.split}: {scores}"))
        click.echo(check_lines(found.report))
        click.echo(wrapped(LIMITS), err=True)
    if not found.ok:
        click.get_current_context().exit(1)


EXPERIMENT_COMMANDS = (experiment_command, submit_command, audit_command)
