"""The commands on data: import, inspect, check, task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relfrog.cli.command import Command, print_json
from relfrog.errors import UsageError
from relfrog.kinds import TASK_KINDS

__all__ = ["DATA_COMMANDS"]


@click.command(
    "import",
    cls=Command,
    example="relfrog import sqlite:///shop.db shop --time orders.ordered_at",
)
@click.argument("source")
@click.argument("dest", required=False)
@click.option("--schema", multiple=True, help="Schema to read (repeat for several).  "
              "[default: the database's own or, if that has no tables, all]")  # fmt: skip
@click.option("--tables", multiple=True, metavar="NAME", help="Table or pattern to read (repeat).  "
              "[default: all]")  # fmt: skip
@click.option("--exclude", multiple=True, metavar="NAME", help="Table or pattern to leave out.")
@click.option("--mapping", type=click.Path(path_type=Path), help="Corrections to keys, times and "
              "types; --dry-run writes this file if it does not exist.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Analyse everything, write only the mapping.")
@click.option("--pk", multiple=True, metavar="TABLE.COL[,COL]", help="Primary key of a table.")
@click.option("--fk", multiple=True, metavar="TABLE.COL=PARENT.COL",
              help="Foreign key; '=none' rejects one.")  # fmt: skip
@click.option("--time", multiple=True, metavar="TABLE.COL",
              help="Time column; TABLE=PARENT inherits the times of the rows that a row names, "
              "TABLE=none makes rows always visible.")  # fmt: skip
@click.option("--view", multiple=True, metavar="NAME", help="View or pattern to read beside the "
              "tables (repeat).  [default: none]")  # fmt: skip
@click.option("--views", type=click.Choice(["all"]), help="Read all views beside the tables.")
@click.option("--entity-from", multiple=True, metavar="TABLE.COL=NAME", help="Make a table of the "
              "distinct values of a column, which then refers to it (repeat; several columns may "
              "feed one table).")  # fmt: skip
@click.option("--val", metavar="TIME", help="Validation time.  [default: proposed]")
@click.option("--test", metavar="TIME", help="Test time.  [default: proposed]")
@click.option("--on-duplicate", type=click.Choice(["error", "first"]), help="What to do with "
              "repeated primary keys.  [default: error]")  # fmt: skip
@click.option("--name", help="Name of the dataset.  [default: the folder's]")
@click.option(
    "--memory", default="2GB", show_default=True, help="Memory to use before spilling to disk."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing dataset; all that was chosen "
              "for it (keys, times, splits, entity tables, views, ...) is kept.")  # fmt: skip
@click.option("--forget", is_flag=True, help="With --overwrite: keep nothing that was chosen.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, or with --dry-run the "
              "mapping, as JSON.")  # fmt: skip
def import_command(
    source: str, dest: str | None, dry_run: bool, as_json: bool, overwrite: bool, forget: bool,
    mapping: Path | None, on_duplicate: str | None, name: str | None, views: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Read a database and write a dataset folder.

    SOURCE is postgresql://, mysql://, sqlite:/// or duckdb:///, or a folder of CSV or Parquet
    files. It is never written to. DEST is the folder to create; it appears complete or not at all.
    """
    from relfrog.cli.terminal import TerminalProgress
    from relfrog.importing.database import import_database, plan_import
    from relfrog.importing.result import import_record

    options["view"] = ("*",) if views == "all" else options["view"]
    if not dry_run and dest is None:
        raise click.UsageError("Missing argument 'DEST': the folder to create.")
    if dry_run:
        written = mapping is not None and not mapping.exists()
        given = None if written else mapping
        with TerminalProgress() as progress:
            keep = dest if overwrite and not forget else None
            plan = plan_import(source, mapping=given, keep=keep, progress=progress, **options)
        from relfrog.cli.import_tables import mapping_tables, split_line

        click.echo(mapping_tables(plan.mapping), err=True)
        _show_notices(plan.notices)
        click.echo(f"\n{split_line(plan.mapping)}\n", err=True)
        if written and mapping is not None:
            try:
                mapping.write_text(plan.mapping.to_yaml(), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"{mapping} cannot be written: {error.strerror}") from None
            again = f"relfrog import {_shown(source)} {dest or 'DEST'} --mapping {mapping}"
            click.echo(f"Mapping written to {mapping}. Correct it, then:\n  {again}", err=True)
        elif as_json:
            import yaml

            print_json(yaml.safe_load(plan.mapping.to_yaml()))
        else:
            click.echo(plan.mapping.to_yaml(), nl=False)
        return
    assert dest is not None
    with TerminalProgress() as progress:
        result = import_database(
            source, dest, mapping=mapping, on_duplicate=on_duplicate, overwrite=overwrite,
            forget=forget, name=name, progress=progress, **options,
        )  # fmt: skip
        tasks = _renewed(result.folder) if overwrite else {}
    if as_json:
        print_json({"folder": str(result.folder), **import_record(result), "tasks": tasks})
        return
    from relfrog.cli.data_summaries import import_summary

    click.echo(import_summary(result, tasks))


def _renewed(folder: Path) -> dict[str, str]:
    """The tasks that were kept, each with what is wrong with it now."""
    if not any(folder.glob("tasks/*/manifest.yaml")):
        return {}
    from relfrog.datasets.renewed_tasks import renew_tasks

    return renew_tasks(folder)


def _shown(source: str) -> str:
    from relfrog.io.secrets import hide_password

    return hide_password(source)


def _show_notices(notices: Any) -> None:
    from relfrog.cli.data_summaries import notice_lines

    for line in notice_lines(notices):
        click.echo(line, err=True)


@click.command("inspect", cls=Command, example="relfrog inspect shop --json")
@click.argument("dataset")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--svg", type=click.Path(path_type=Path), help="Draw the schema into this file.")
@click.option("--no-labels", is_flag=True, help="Do not count the labels of tasks.")
def inspect_command(dataset: str, as_json: bool, svg: Path | None, no_labels: bool) -> None:
    """Show what a dataset holds: tables, keys, times, routes, tasks.

    DATASET is a dataset folder or the name of a dataset that RelBench hosts.
    """
    from relfrog.datasets.overview import inspect

    found = inspect(dataset, labels=not no_labels)
    if svg is not None:
        from relfrog.reporting.schema_drawing import schema_svg

        try:
            svg.write_text(schema_svg(found), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{svg} cannot be written: {error.strerror}") from None
        click.echo(f"Schema drawn into {svg}", err=True)
    if as_json:
        print_json(found)
    elif svg is None:
        from relfrog.cli.data_summaries import inspection

        click.echo(inspection(found))


@click.command("check", cls=Command, example="relfrog check shop")
@click.argument("dataset")
@click.argument("task", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check_command(dataset: str, task: str | None, as_json: bool) -> None:
    """Validate a dataset folder and its tasks; exit 1 if anything is wrong.

    All findings are reported at once, each with place, count, example and remedy.
    """
    import dataclasses

    from relfrog.datasets.checks import check

    report = check(dataset, task)
    if as_json:
        print_json({"ok": report.ok, **dataclasses.asdict(report)})
    else:
        from relfrog.cli.data_summaries import check_lines

        click.echo(check_lines(report))
    if not report.ok:
        click.get_current_context().exit(1)


@click.command(
    "task",
    cls=Command,
    example='relfrog task shop churn --query "PREDICT COUNT(orders.*, 0, 30, days) = 0 FOR EACH '
    'customers.id"',
)
@click.argument("dataset")
@click.argument("name")
@click.option("--query", metavar="QUESTION", help="The question in words: PREDICT ... FOR EACH "
              "...; it says everything else, too.")  # fmt: skip
@click.option("--explain", is_flag=True, help="With --query: print what it becomes, the SQL "
              "included, and add nothing.")  # fmt: skip
@click.option("--sql", type=click.File("r", encoding="utf-8"),
              help="File with the label SQL, or - for standard input.")  # fmt: skip
@click.option("--autocomplete", metavar="TABLE.COL", help="Column to fill in, instead of SQL: its "
              "values are the labels.")  # fmt: skip
@click.option("--labels", type=click.Path(path_type=Path), metavar="FILE", help="CSV or Parquet "
              "file of labels, instead of SQL: the entity's key, the time, the label.")  # fmt: skip
@click.option("--type", "type_",
              type=click.Choice([kind.word for kind in TASK_KINDS.values()]),
              help="What is predicted.  [default for --autocomplete: what suits the column]"
              )  # fmt: skip
@click.option("--horizon", help="How far ahead a label looks: '30 days'.")
@click.option("--entity", metavar="TABLE[.COL]", help="Table to predict for; COL is its key in the "
              "SQL.  [default: the primary key's name]")  # fmt: skip
@click.option(
    "--source", metavar="TABLE[.COL]", help="Recommendation: table whose rows get a list."
)
@click.option(
    "--target", metavar="TABLE[.COL]", help="Recommendation: table that lists are made of."
)
@click.option(
    "--label", metavar="COL", help="The SQL's label column.  [default: the remaining one]"
)
@click.option("--time", default="timestamp", show_default=True, help="The SQL's seed time column.")
@click.option("--eval-times", type=click.IntRange(min=1), help="Seed times in validation and in "
              "test.  [default: 1; of a question, as many as its scores need]")  # fmt: skip
@click.option("--k", type=click.IntRange(min=1), help="Recommendation: length of the list.  "
              "[default: 10]")  # fmt: skip
@click.option("--val", metavar="TIME", help="The task's own validation time.  [default: the "
              "dataset's, if it suits the task]")  # fmt: skip
@click.option("--test", metavar="TIME", help="The task's own test time.  [default: likewise]")
@click.option("--description", help="The task in words.")
@click.option("--hide", multiple=True, metavar="TABLE.COL", help="Column the model must not see.")
@click.option("--show", multiple=True, metavar="TABLE.COL", help="Column that it may see though "
              "it is later than its row, as it was planned.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a task of this name.")
@click.option("--json", "as_json", is_flag=True, help="Print what was added as JSON.")
def task_command(
    dataset: str, name: str, sql: Any, type_: str | None, hide: Any, show: Any, as_json: bool,
    query: str | None, explain: bool, **options: Any,
) -> None:  # fmt: skip
    """Add a prediction task, after trying it on all splits.

    What is predicted is asked in words, or labels are written in DuckDB SQL, which sees every
    table, the relation timestamps(timestamp) with the seed times, and {timedelta}, and returns one
    row per seed time and entity. Keys have the values of the source. Or labels are the values of a
    column, or come from a file.
    """
    from relfrog.cli.data_summaries import task_summary
    from relfrog.queries.new_task import add_task, add_tasks, plan_query

    if explain:
        if query is None:
            raise UsageError("--explain goes with --query")
        from relfrog.cli.question_summaries import plan_lines, plan_record

        plan = plan_query(dataset, query)
        print_json(plan_record(plan)) if as_json else click.echo(plan_lines(plan))
        return
    text = None if sql is None else sql.read()
    given = {"type": type_, "hide": tuple(hide), "show": tuple(show), **options}
    if query is None:
        given["eval_times"] = given["eval_times"] or 1
        tasks = [add_task(dataset, name, text, **given)]
    else:
        tasks = add_tasks(dataset, name, query, text, **given)
    if as_json:
        records = [_task_record(added) for added in tasks]
        print_json(records[0] if len(records) == 1 else records)
    else:
        click.echo("\n\n".join(task_summary(dataset, added) for added in tasks))


def _task_record(added: Any) -> dict[str, Any]:
    import dataclasses

    splits = {split: dataclasses.asdict(stats) for split, stats in added.stats.items()}
    about = {"task": added.manifest.name, "task_type": added.manifest.task_type}
    said = {"notes": list(added.notes), "warnings": list(added.warnings)}
    return {**about, "folder": str(added.folder), "splits": splits, **said}


DATA_COMMANDS = (import_command, inspect_command, check_command, task_command)
