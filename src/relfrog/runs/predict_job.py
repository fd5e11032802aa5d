"""Predictions of some ranges of entities as a job for another process."""

from __future__ import annotations

import io
import os
import uuid
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from relfrog.cluster.folders import MeetingPlace
from relfrog.cluster.guarded import Answer, Job
from relfrog.cluster.replica import obtain
from relfrog.errors import OutputError
from relfrog.io.marks import mark_parquet
from relfrog.io.output import arrow_table
from relfrog.runs.prediction_format import stamp
from relfrog.runs.run import Run, load_run
from relfrog.training.seeds import Seeds

__all__ = ["make_part", "predict_job", "write_part"]


def predict_job(job: Job) -> Answer:
    """Make parts in another process.

    Args:
        job: `parts` to make, in a `folder`, by a `run`; on another machine also the `replica` of
            run and dataset, and the `place` where the folder is.

    Returns:
        `{}`; or, from a machine that does not see the folder, the content of the `files`.
    """
    replica, place = job["replica"], job["place"]
    if replica is None:
        run = _opened(job["run"], job["dataset"], job["device"])
    else:
        here = obtain(replica)
        run = _opened(str(here["run"]), str(here["dataset"]), job["device"])
    folder, sent = Path(job["folder"]), {}
    seen = not isinstance(place, MeetingPlace) or place.is_seen()
    for part in job["parts"]:
        if seen and (folder / part["file"]).is_file():
            continue  # made before, by whoever was believed dead
        packed = make_part(run, part, job)
        if seen:
            write_part(folder / part["file"], packed)
        else:
            sent[part["file"]] = packed
    return {"files": sent} if sent else {}


@lru_cache(maxsize=2)
def _opened(folder: str, dataset: str, device: str) -> Run:
    run = load_run(folder, device=device)
    return replace(run, about={**run.about, "dataset": dataset})


def make_part(run: Run, part: Job, options: Job) -> bytes:
    """The predictions of a range, as a Parquet file."""
    import pyarrow.parquet as pq

    seeds = Seeds(part["rows"], part["times"])
    frame = run.predict_range(part["keys"], seeds, **options["lists"])
    horizon = run.prepared.task.timedelta
    data = arrow_table(stamp(frame, Path(options["run"]), horizon, options["made_at"]))
    for name, kind in zip(options["types"].names, options["types"].types, strict=True):
        number = data.schema.get_field_index(name)
        if data.schema.types[number] != kind:  # a range may hold nothing but NULL
            data = data.set_column(number, name, data.column(number).cast(kind))
    held = io.BytesIO()
    pq.write_table(mark_parquet(data), held)
    return held.getvalue()


def write_part(path: Path, packed: bytes) -> None:
    """Write a file aside and rename it into place."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open(aside, "wb") as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        aside.unlink(missing_ok=True)
