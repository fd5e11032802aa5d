"""The commands on runs: train, evaluate, predict, roles, report, explain."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relfrog.cli.command import Command, print_json, settings_from
from relfrog.cli.terminal import bar
from relfrog.errors import RelFrogError, UsageError
from relfrog.kinds import MODELS
from relfrog.support.lazy import loading

if TYPE_CHECKING:
    from relfrog.analysis.certificate import CertifyingRun
    from relfrog.runs.run import Run

__all__ = ["RUN_COMMANDS"]


@click.command("train", cls=Command, example="relfrog train shop churn --out runs/churn")
@click.argument("dataset")
@click.argument("task")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Run folder to create.")
@click.option("--model", type=click.Choice(list(MODELS)), metavar="NAME",
              help="auto: the best of several, or a blend, by backtests and validation; frog; "
              "sage: the plain relational GNN; relgnn: attention along atomic routes; without a "
              "network: mean, median, global-mean, global-median, recent, lightgbm; for "
              "recommendations also id-gnn, popularity, past-visit.  [default: auto]")  # fmt: skip
@click.option("--roles", metavar="ROLES", help="learned, node, edge, random, or a run's "
              "roles.json.  [default: learned]")  # fmt: skip
@click.option("--size", type=click.Choice(["small", "medium", "large"]),
              help="Size of the network.  [default: medium]")  # fmt: skip
@click.option("--preset", metavar="NAME", help="Name of a preset, or a YAML file of settings.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A single setting (repeat); docs/settings.md lists them all.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), help="Random seed.  [default: 0]")
@click.option("--device", help="cpu, cuda, ...  [default: a GPU if there is one]")
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--overwrite", is_flag=True, help="Replace an existing run.")
@click.option("--baselines/--no-baselines", default=True, show_default=True,
              help="Score quick baselines beside the model.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), metavar="N",
              help="Processes that share the training of a network, here or with --cluster; their "
              "number changes nothing.  [default: this one]")  # fmt: skip
@click.option("--cluster", metavar="ADDRESS", help="Train on a Ray cluster: auto, local or "
              "HOST:PORT.")  # fmt: skip
@click.option("--no-report", is_flag=True, help="Do not write report.html into the run folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON.")
def train_command(
    dataset: str,
    task: str,
    out: Path,
    settings: tuple[str, ...],
    no_report: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model and write its run folder.

    DATASET is a dataset folder or a RelBench name, TASK one of its tasks. The weights with the
    best validation metric are kept. After Ctrl-C, continue with --resume. With --workers or
    --cluster, or started by torchrun, several processes train a network together.
    """
    with loading():
        from relfrog.cli.run_summaries import run_summary
        from relfrog.cluster.torchrun_team import follow, follows
        from relfrog.runs.run import chosen_device
        from relfrog.runs.train import train
        from relfrog.training.progress import TrainingProgress

    if follows():  # torchrun's first process says it all
        follow(dataset, task, chosen_device(options.get("device")))
        return
    given = settings_from(settings)
    with TrainingProgress() as progress:
        run = train(dataset, task, out, settings=given, callbacks=[progress], **options)
    if as_json:
        print_json({"run": str(out), "metrics": run.metrics, "baselines": run.baselines})
    else:
        click.echo(run_summary(run))
    if not no_report:
        report_after(run)


_CERTIFY_TIMES = click.option(
    "--certify-times", type=click.IntRange(min=0), metavar="N",
    help="With --certify: number of prediction times to try, newest first; 0 for all.  "
    "[default: 8]",
)  # fmt: skip


@click.command("evaluate", cls=Command, example="relfrog evaluate runs/churn --split test --json")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--split", default="test", show_default=True, type=click.Choice(["val", "test"]),
              help="Labels to score on.")  # fmt: skip
@click.option("--regime", default="rolling", show_default=True,
              type=click.Choice(["frozen", "rolling"]),
              help="frozen: the database stops at the split's time; rolling: each seed sees "
              "everything up to its own.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
@click.option("--certify", is_flag=True, help="Test whether later rows change anything, and write "
              "evaluate-SPLIT-REGIME.certificate.json into the run folder.")  # fmt: skip
@_CERTIFY_TIMES
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON.")
def evaluate_command(
    run: Path, split: str, regime: str, device: str, certify: bool, certify_times: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Score a run on the labels of a split."""
    with loading(training=False):
        from relfrog.runs.run import load_run

    opened = _certifying(load_run(run, device=device), certify, certify_times)
    metrics = opened.evaluate(split, regime)
    rows = opened.count(split)
    if as_json:
        print_json(
            {
                "task": opened.about["task"], "split": split, "regime": regime,
                "metrics": metrics, "rows": rows,
            }
        )  # fmt: skip
    else:
        from relfrog.cli.run_summaries import score_table

        click.echo(f"{opened.about['task']}, {split}, {regime}, {rows:,} seeds")
        click.echo(score_table(metrics))
    if certify:
        stem = opened.folder / f"evaluate-{split}-{regime}"
        said = {"split": split, "regime": regime, "metrics": metrics}
        _show_certificate(opened, opened.certificate.save(stem, **said))


def _certifying(run: Run, wanted: bool, times: int | None) -> Any:
    if not wanted and times is not None:
        raise UsageError("--certify-times goes with --certify.")
    if not wanted:
        return run
    return run.certify(times=times)


def _show_certificate(run: CertifyingRun, path: Path) -> None:
    """Say what was certified.

    Raises:
        RunError: It does not hold.
    """
    from relfrog.errors import RunError

    if not run.certificate.holds:
        raise RunError(f"{run.certificate.sentence} See {path}.")
    click.echo(f"{run.certificate.sentence}. Details are in {path}.", err=True)


#: Predictions that are printed where no file is given.
_SHOWN = 20


@click.command(
    "predict", cls=Command,
    example="relfrog predict runs/churn --at 2020-12-01 --out churn.csv",
)  # fmt: skip
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", metavar="FILE", help="A .parquet or .csv file, a database URL with --table, "
              "or a folder for Parquet files of some entities each.  [default: some are "
              "printed]")  # fmt: skip
@click.option(
    "--at", metavar="TIME", help="Prediction time.  [default: the newest in the database]"
)
@click.option("--entities", type=click.Path(path_type=Path), metavar="FILE",
              help="CSV or Parquet with the keys to predict for.  [default: those whom the task "
              "asks about at that time]")  # fmt: skip
@click.option("--all", "everyone", is_flag=True, help="Predict for all entities that exist at that "
              "time, also those whom the task does not ask about.")  # fmt: skip
@click.option("--k", type=click.IntRange(min=1), help="Length of recommended lists.  "
              "[default: the task's]")  # fmt: skip
@click.option("--targets", type=click.Path(path_type=Path), metavar="FILE",
              help="CSV or Parquet with keys of targets to choose from.  "
              "[default: all]")  # fmt: skip
@click.option("--exclude-known", is_flag=True, help="Leave out targets that the entity was "
              "connected to before.")  # fmt: skip
@click.option("--set", "suppose", multiple=True, metavar="TABLE.COL=VALUE", help="What if: a value "
              "of the entity's own row, or of an event that happens now (repeat); predictions "
              "under it stand beside those without.")  # fmt: skip
@click.option("--table", metavar="NAME", help="Table to create in the database.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
@click.option("--certify", is_flag=True, help="Test whether later rows change anything, and write "
              "FILE.certificate.json: rows and newest time used per entity and table, and the "
              "outcome.")  # fmt: skip
@_CERTIFY_TIMES
@click.option("--workers", type=click.IntRange(min=1), metavar="N",
              help="Predict range by range in so many processes: the same bits for every "
              "N.")  # fmt: skip
@click.option("--cluster", metavar="ADDRESS", help="Predict on a Ray cluster: auto, local or "
              "HOST:PORT; see docs/scale.md.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace an existing file, table or folder.")
def predict_command(
    run: Path, out: str | None, at: str | None, entities: Path | None, table: str | None,
    device: str, certify: bool, certify_times: int | None, overwrite: bool, everyone: bool,
    suppose: tuple[str, ...], workers: int | None, cluster: str | None, **ranking: Any,
) -> None:  # fmt: skip
    """Predict for any time, with the source's own keys.

    Predictions are for the entities that the task asks about at that time, unless --entities or
    --all says otherwise; rows come in the order of --entities. Only what was known at that time is
    used. Beside each prediction stand the run, the horizon, and when the prediction was made. With
    --workers, --cluster or a folder, the same command goes on after Ctrl-C.
    """
    with loading(training=False):
        from relfrog.io.output import check_output, is_folder, write_frame
        from relfrog.runs.run import load_run

    in_folder = out is not None and table is None and is_folder(out)
    if workers is not None or cluster is not None or in_folder:
        if out is None:
            raise UsageError("--workers and --cluster need a place to write to: --out FOLDER")
        if suppose or certify:
            raise UsageError("--set and --certify need one process and a file: leave --workers, "
                             "--cluster and the folder out.")  # fmt: skip
        if workers is not None and cluster is not None:
            raise UsageError("predict here or on a cluster: --workers or --cluster.")
        opened = load_run(run, device=device)
        asked = {"at": at, "entities": entities, "everyone": everyone, **ranking}
        where, rows = _predict_in_parts(opened, out, asked, table, overwrite, workers or 1, cluster)
        click.echo(f"{rows:,} predictions written to {where}", err=True)
        _say_population(opened, at, entities, everyone)
        return
    if out is not None:
        check_output(out, table, overwrite)
    elif certify or table is not None:
        raise UsageError(f"{'--certify' if certify else '--table'} needs a file: --out FILE")
    if suppose:
        if certify:
            raise UsageError("--certify is about what is known, --set about what is not.")
        ranking["suppose"] = _suppositions(suppose)
    opened = _certifying(load_run(run, device=device), certify, certify_times)
    frame = opened.predict(at, entities, everyone=everyone, stamped=out is not None, **ranking)
    if out is None:
        from relfrog.cli.question_summaries import frame_table, shown_rows

        shown = shown_rows(frame, _SHOWN, ranked=entities is None)
        click.echo(frame_table(shown))
        if len(shown) < len(frame):
            click.echo(f"{len(shown)} of {len(frame):,} predictions. All: --out FILE", err=True)
    else:
        where = write_frame(frame, out, table=table, overwrite=overwrite)
        click.echo(f"{len(frame):,} predictions written to {where}", err=True)
    _say_population(opened, at, entities, everyone)
    if certify and out is not None:
        from relfrog.analysis.certificate import save_beside

        _show_certificate(opened, save_beside(opened.certificate, out, table, opened.folder))


def _predict_in_parts(
    run: Run, out: str, asked: dict[str, Any], table: str | None, overwrite: bool, workers: int,
    cluster: str | None,
) -> tuple[str, int]:  # fmt: skip
    """Predict range by range, with a bar on a terminal."""
    from relfrog.cluster.workers import hired
    from relfrog.runs.predict_parts import Request, check_destination, predict_to

    check_destination(out, table, overwrite)
    with bar("predicting") as progress, hired(workers, cluster) as some:
        return predict_to(
            run, out, Request(**asked), table=table, overwrite=overwrite, workers=some,
            progress=progress,
        )  # fmt: skip


def _say_population(run: Any, at: str | None, entities: Path | None, everyone: bool) -> None:
    """Say whom predictions are for, unless that was given, or goes without saying."""
    if entities is None and not everyone:
        from relfrog.cli.run_summaries import population_words

        asked = run.population(at)
        if asked.others or asked.rule != "sql":
            click.echo(population_words(asked), err=True)


def _suppositions(texts: tuple[str, ...]) -> dict[str, str | None]:
    """Values by column; a table alone is an event of which nothing else is known."""
    found: dict[str, str | None] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        found[name.strip()] = value.strip() if mark else None
    return found


@click.command("roles", cls=Command, example="relfrog roles runs/churn")
@click.argument("run", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Compare with runs of other seeds, so that there are N; those that are not in "
              "the run's folder yet are trained.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the roles as JSON.")
def roles_command(run: tuple[Path, ...], seeds: int, as_json: bool) -> None:
    """Show the learned role of each route: how much its middle table acts as an edge.

    Several runs of a task, or --seeds, show on which roles they agree. A route is undecided if its
    gate is near 0.5, if it only followed the clock of its running average, or if runs disagree.
    """
    with loading():
        from relfrog.cli.run_summaries import member_note, role_table
        from relfrog.runs.run import load_run

    if len(run) > 1 or seeds > 1:
        _compare_roles(run, seeds, as_json)
        return
    opened = load_run(run[0])
    frame = opened.roles()
    if as_json:
        print_json(frame.to_dict("records"))
    elif opened.network_member is None and not MODELS[opened.config.model].network:
        ensemble = MODELS[opened.config.model].ensemble
        which = "trained no network" if ensemble else "is no network"
        click.echo(f"Model {opened.config.model} {which}: it has no roles.")
    else:
        if opened.network_member is not None:
            click.echo(f"{member_note(opened)}\n")
        click.echo(role_table(frame))


def _compare_roles(folders: tuple[Path, ...], seeds: int, as_json: bool) -> None:
    """Show on which roles several runs agree."""
    from relfrog.cli.role_tables import agreement_table
    from relfrog.runs.agreement import other_seeds, role_agreement
    from relfrog.runs.run import load_run

    if len(folders) > 1 and seeds > 1:
        raise UsageError("name several runs, or one run and --seeds.")
    opened = [load_run(folder) for folder in folders]
    runs = opened if seeds == 1 else other_seeds(opened[0], seeds)
    frame = role_agreement(runs)
    if as_json:
        print_json(frame.to_dict("records"))
    else:
        click.echo(agreement_table(frame, len(runs)))


@contextmanager
def _progress_line() -> Iterator[Callable[[str], None]]:
    """Say what is being done: one changing line on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("report") as status:
        yield lambda text: status.update(f"report: {escape(text)}")


def report_after(run: Run) -> None:
    """Write the report of a run that has just been trained; the run stands, whatever happens."""
    from relfrog.reporting import report

    try:
        with _progress_line() as progress:
            path = report(run, progress=progress)
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
@click.option("--deep", is_flag=True, help="Spend minutes rather than seconds on the importance "
              "of tables and columns.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Read the dataset again and recompute what was kept "
              "of it.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def report_command(
    run: Path, out: Path | None, compare: Path | None, deep: bool, fresh: bool, device: str
) -> None:
    """Write a report of what was learned, as one self-contained HTML file.

    It is made from the run folder alone. Everything that needs the dataset was computed for the
    first report, at the end of training, and kept there; if there was none, or with --deep, the
    dataset of the run is read.
    """
    with loading():
        from relfrog.reporting import report
        from relfrog.runs.run import load_run

    with _progress_line() as progress:
        path = report(
            load_run(run, device=device),
            out,
            compare=compare,
            deep=deep,
            fresh=fresh,
            progress=progress,
        )
    click.echo(f"Report written to {path}: open it in a browser.", err=True)


@click.command("explain", cls=Command, example="relfrog explain runs/churn --entity 3")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--entity", required=True, metavar="KEY", help="Entity to explain: its key in the "
              "source; separate the values of several columns by commas.")  # fmt: skip
@click.option(
    "--at", metavar="TIME", help="Prediction time.  [default: the newest in the database]"
)
@click.option("--rows", default=40, show_default=True, type=click.IntRange(min=1),
              help="How many past rows to try, or to show.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def explain_command(
    run: Path, entity: str, at: str | None, rows: int, device: str, as_json: bool
) -> None:
    """Show what is behind one prediction: tables, features and past rows.

    In a network each row is hidden in turn and the prediction repeated: the difference is its
    effect. Of LightGBM each feature's contribution is shown, with the rows it is computed from;
    contributions add up to the prediction. Of a blend both, times the weights of its members. For
    each table the newest time used is shown, which is never later than the prediction.
    """
    with loading():
        from relfrog.analysis.explanation import explain
        from relfrog.cli.run_summaries import explanation
        from relfrog.runs.run import load_run

    opened = load_run(run, device=device)
    found = explain(opened, entity, at, rows=rows)
    if as_json:
        print_json({"task": opened.about["task"], **dataclasses.asdict(found)})
    else:
        click.echo(explanation(found))


RUN_COMMANDS = (
    train_command, evaluate_command, predict_command, roles_command, report_command,
    explain_command,
)  # fmt: skip
