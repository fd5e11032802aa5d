"""Predictions in parts: ranges of entities, predicted here, in other processes or on a cluster.

::

    OUT/MODEL-DATA-FIRST-LAST.parquet   the predictions of a range of entities
    OUT/manifest.json                   which parts there are, once all are there

A part is named by the model, by the data with all that was asked, and by its range. It is written
aside and renamed into place, so it is complete or not there, and whoever makes it again makes the
same. Which entities are in which part follows from their number alone: how many workers there are
does not change a bit. From what `Run.predict` gives for all at once they differ by rounding, as
products of matrices round by the number of their rows.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relfrog.cluster.folders import meeting_place
from relfrog.cluster.guarded import Job
from relfrog.cluster.replica import Replica, replicate
from relfrog.cluster.workers import Workers
from relfrog.datasets.entities import Keys, read_entities
from relfrog.errors import ClusterError, OutputError, UsageError
from relfrog.io.output import arrow_table, check_output, is_folder, write_frame
from relfrog.models.fit import RunInterrupted
from relfrog.runs.parts_folder import MANIFEST, PLAN, begun_at, is_whole, read_parts
from relfrog.runs.predict_job import make_part, predict_job, write_part
from relfrog.runs.prediction_format import PREDICTION_FORMATS, now, warn_outside
from relfrog.runs.prediction_seeds import seeds_to_predict
from relfrog.runs.run import Run
from relfrog.store.location import cache_folder
from relfrog.store.parts import open_store, versions
from relfrog.support.files import user_path, write_json
from relfrog.support.folder_check import check_inside
from relfrog.support.times import as_moments
from relfrog.training.seeds import Seeds

__all__ = ["Request", "check_destination", "predict_parts", "predict_to", "read_parts"]

#: Parts at most, and entities of a part at least and at most.
PARTS, FEWEST, MOST = 64, 2_000, 200_000
#: What a run folder has that predictions do not need.
UNNEEDED = ("report", "shown.", "checkpoint", ".lock", "history.", "baselines.")


@dataclass(frozen=True)
class Request:
    """What is asked of a run; see `Run.predict`.

    Attributes:
        at: the time.
        entities: whom for.
        everyone: whether for all that exist.
        k: length of lists.
        targets: what may be in lists.
        exclude_known: whether lists leave out what is known.
    """

    at: Any = None
    entities: Keys | None = None
    everyone: bool = False
    k: int | None = None
    targets: Keys | None = None
    exclude_known: bool = False


@dataclass(frozen=True, eq=False)
class _Plan:
    """Everything that determines the parts."""

    run: Run
    keys: pd.DataFrame
    seeds: Seeds
    lists: dict[str, Any]
    replica: Replica
    size: int
    made_at: pd.Timestamp = field(default_factory=now)

    @property
    def model(self) -> str:
        """A name of the model by its content."""
        return self.replica.folders["run"].name[:12]

    @property
    def data(self) -> str:
        """A name of the data, of all that was asked, and of the libraries that answer."""
        digest = hashlib.blake2b(digest_size=16)
        targets = self.lists["targets"]
        about = [
            self.replica.folders["dataset"].name, self.run.device, str(self.run.folder), versions(),
            self.lists["k"], self.lists["exclude_known"], self.size,
            None if targets is None else targets.to_json(),
        ]  # fmt: skip
        digest.update(json.dumps(about, sort_keys=True, default=str).encode())
        for part in (self.seeds.rows, self.seeds.times.astype("datetime64[us]").view(np.int64)):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()[:12]

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """File, first entity, and the one after the last, of every part."""
        model, data, count = self.model, self.data, len(self.seeds)
        for first in range(0, max(count, 1), self.size):
            last = min(count, first + self.size)
            yield f"{model}-{data}-{first:010d}-{last:010d}.parquet", first, last


def predict_to(
    run: Run,
    out: str | Path,
    request: Request,
    *,
    table: str | None = None,
    overwrite: bool = False,
    workers: Workers | None = None,
    size: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[str, int]:
    """Write predictions to a folder of parts, a file, or a table of a database.

    A file or a table is written at the end, in one rename or one transaction; until then the parts
    lie in the cache folder. After an interruption the same call goes on with those that are there.

    Args:
        run: the run.
        out: a folder, or what `write_frame` takes.
        request: what to predict.
        table: the table, if `out` is a database.
        overwrite: whether to replace what is there.
        workers: who predicts; by default this process.
        size: entities of a part; by default by their number.
        progress: called with the entities done so far, and all.

    Returns:
        Where it was written, and the number of rows.
    """
    check_destination(out, table, overwrite)
    if table is None and is_folder(out):
        folder = user_path(out, OutputError)
        written = predict_parts(run, folder, request, workers=workers, size=size, progress=progress)
        return str(folder), int(written["rows"])
    plan = _plan(run, request, size)
    folder = cache_folder() / "predictions" / f"{plan.model}-{plan.data}"
    _predict(plan, folder, workers, progress)
    frame = read_parts(folder)
    where = write_frame(frame, out, table=table, overwrite=overwrite)
    shutil.rmtree(folder, ignore_errors=True)
    return where, len(frame)


def predict_parts(
    run: Run,
    folder: Path,
    request: Request,
    *,
    workers: Workers | None = None,
    size: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Write predictions as a folder of parts; see `predict_to`.

    Returns:
        The content of `manifest.json`.
    """
    return _predict(_plan(run, request, size), folder, workers, progress)


def check_destination(out: str | Path, table: str | None, overwrite: bool) -> None:
    """Check, before anything is computed, that `predict_to` will be able to write.

    Raises:
        UsageError: As `check_output`.
        OutputError: It would replace something that is not to be replaced.
    """
    if table is not None or not is_folder(out):
        check_output(out, table, overwrite)
        return
    folder = user_path(out, OutputError)
    if folder.is_file():
        raise OutputError(f"{folder} is a file. Choose a folder, or a file ending in .parquet.")
    if not folder.is_dir():
        return
    check_inside(folder, OutputError)
    if (folder / MANIFEST).is_file() and not overwrite:
        raise OutputError(f"{folder} holds predictions already. Replace them with --overwrite.")
    ours = (MANIFEST, PLAN)
    other = [
        path.name
        for path in sorted(folder.iterdir())
        if path.name not in ours and path.suffix != ".parquet" and not path.name.startswith(".")
    ]
    known = any((folder / name).is_file() for name in ours)
    if other or (not known and any(folder.glob("*.parquet"))):
        what = other[0] if other else next(folder.glob("*.parquet")).name
        raise OutputError(f"{folder} holds other files, such as {what}. Choose an empty folder.")


def _plan(run: Run, request: Request, size: int | None) -> _Plan:
    """Find out whom to predict for, and what other machines need for it."""
    form = PREDICTION_FORMATS[run.about["task_type"]]
    form.check(k=request.k, targets=request.targets, exclude_known=request.exclude_known)
    prepared = run.prepared
    keys, seeds = seeds_to_predict(
        prepared, request.at, request.entities, request.everyone,
        lambda time: run.population(time).rows,
    )  # fmt: skip
    times = seeds.times if len(seeds) else as_moments([run.moment(request.at)])
    warn_outside(prepared.opened, times)
    targets = None
    if request.targets is not None:  # the keys themselves: others do not see the file
        name = prepared.task.dst_entity_table
        dataset, count = prepared.dataset, prepared.graph.num_rows[name]
        primary = dataset.manifest.tables[name].pkey
        targets = read_entities(dataset.dataset_dir, name, primary, count, request.targets).keys
    lists = {"k": request.k, "targets": targets, "exclude_known": request.exclude_known}
    if size is None:
        size = min(MOST, max(FEWEST, -(-len(seeds) // PARTS)))
    replica = replicate(
        {"run": run.folder, "dataset": Path(prepared.dataset.dataset_dir)}, open_store().used,
        skip=lambda path: path.rpartition("/")[2].startswith(UNNEEDED),
    )  # fmt: skip
    return _Plan(run, keys, seeds, lists, replica, size)


def _predict(
    plan: _Plan, folder: Path, workers: Workers | None, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Make the parts that are not there, and then the manifest."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    about = {"model": plan.model, "data": plan.data, "made_at": plan.made_at.isoformat()}
    begun = begun_at(folder, about)
    if begun is not None:  # parts say when they were made: those of one folder say the same
        plan, about["made_at"] = replace(plan, made_at=begun), begun.isoformat()
    write_json(folder / PLAN, about)
    parts = list(plan.parts())
    missing = [part for part in parts if not is_whole(folder / part[0])]
    total, done = len(plan.seeds), sum(last - first for _, first, last in parts)
    done -= sum(last - first for _, first, last in missing)
    progress(done, total)
    try:
        for first, last in _make(plan, folder, missing, workers):
            done += last - first
            progress(done, total)
    except KeyboardInterrupt:
        there = sum((folder / file).is_file() for file, *_ in parts)
        raise RunInterrupted(
            f"Interrupted. {there} of {len(parts)} parts are written and kept; go on with the "
            "same command."
        ) from None
    found = [
        {"file": file, "first": first, "last": last, "bytes": (folder / file).stat().st_size,
         "rows": pq.read_metadata(folder / file).num_rows}
        for file, first, last in parts
    ]  # fmt: skip
    schema = pq.read_schema(folder / parts[0][0])
    manifest = {
        "format": 1, **about, "run": str(plan.run.folder), "task": plan.run.about["task"],
        "entities": total, "rows": sum(part["rows"] for part in found),
        "columns": {one.name: str(one.type) for one in schema}, "parts": found,
    }  # fmt: skip
    write_json(folder / MANIFEST, manifest)
    (folder / PLAN).unlink(missing_ok=True)
    current = {file for file, *_ in parts}
    for old in folder.glob("*.parquet"):
        if old.name not in current:
            old.unlink()
    return manifest


def _make(
    plan: _Plan, folder: Path, missing: list[tuple[str, int, int]], workers: Workers | None
) -> Iterator[tuple[int, int]]:
    """Make parts, here or elsewhere; yield the range of each."""
    if workers is None or not missing:
        for part in missing:
            write_part(folder / part[0], make_part(plan.run, _job_part(plan, part), _options(plan)))
            yield part[1:]
        return
    # A process on this machine opens the run once for all of its parts; one of Ray stays open.
    each = 1 if workers.elsewhere else -(-len(missing) // max(1, 2 * workers.count))
    groups = [missing[start : start + each] for start in range(0, len(missing), each)]
    common = _options(plan) | {
        "replica": plan.replica if workers.elsewhere else None, "device": plan.run.device,
        "dataset": plan.run.about["dataset"],
    }  # fmt: skip
    with meeting_place(folder) if workers.elsewhere else nullcontext() as place:
        jobs = [
            common | {"place": place, "folder": str(folder.resolve()),
                      "parts": [_job_part(plan, part) for part in group]}
            for group in groups
        ]  # fmt: skip
        for number, answer in workers.run(predict_job, jobs):
            if "error" in answer:
                kind = UsageError if answer.get("usage") else ClusterError
                raise kind(
                    f"{answer['error']} What is predicted so far is kept; go on with the same "
                    "command."
                )
            for file, packed in answer.get("files", {}).items():
                write_part(folder / file, packed)
            for part in groups[number]:
                yield part[1:]


def _options(plan: _Plan) -> Job:
    """What is the same for all parts."""
    return {
        "lists": plan.lists, "made_at": plan.made_at, "run": str(plan.run.folder),
        "types": arrow_table(plan.keys).schema,
    }  # fmt: skip


def _job_part(plan: _Plan, part: tuple[str, int, int]) -> Job:
    file, first, last = part
    chosen = np.arange(first, last)
    seeds = plan.seeds.take(chosen)
    keys = plan.keys.iloc[first:last].reset_index(drop=True)
    return {"file": file, "rows": seeds.rows, "times": seeds.times, "keys": keys}
