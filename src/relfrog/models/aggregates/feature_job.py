"""Features of ranges of seeds, computed by DuckDB in other processes or on a cluster."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.cluster.guarded import Answer, Job
from relfrog.cluster.replica import obtain, replicate
from relfrog.cluster.workers import Workers
from relfrog.config import Config
from relfrog.datasets.task_file import splits_of
from relfrog.errors import ClusterError
from relfrog.models.aggregates.encoded_tables import Trail
from relfrog.models.aggregates.features import FeatureMaker
from relfrog.store.parts import open_store
from relfrog.support.times import Moments
from relfrog.training.opened_task import open_task

__all__ = ["features_elsewhere", "features_job"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
#: The fewest seeds that are worth a job of their own: tables are read for each job.
FEWEST = 5_000


def features_elsewhere(
    workers: Workers, maker: FeatureMaker, rows: Ints, limits: Ints, times: Moments
) -> tuple[Floats, list[Trail]] | None:
    """Compute the features of seeds in ranges; see `FeatureMaker.make`.

    Returns:
        Features and trails, as `FeatureMaker` has them; None if there is too little to share.

    Raises:
        ClusterError: A job failed.
    """
    size = max(FEWEST, -(-len(rows) // workers.count))
    starts = range(0, len(rows), size)
    prepared = maker.prepared
    task = getattr(prepared.task, "name", "")
    if len(starts) < 2 or not task or prepared.opened.parts is None:
        return None
    folder = Path(prepared.dataset.dataset_dir)
    common = {
        "dataset": str(folder), "task": task, "config": asdict(prepared.config),
        "about": json.dumps(
            {"labels": maker.labels, "saved": maker.to_json(),
             "splits": splits_of(maker.prepared.task)}, default=str,
        ),
        "replica": None,
    }  # fmt: skip
    if workers.elsewhere:
        common["replica"] = replicate({"dataset": folder}, open_store().used)
    jobs = [
        common | {
            "rows": rows[start : start + size], "limits": limits[start : start + size],
            "times": times[start : start + size],
        }
        for start in starts
    ]  # fmt: skip
    found: dict[int, Answer] = {}
    for number, answer in workers.run(features_job, jobs):
        if "error" in answer:
            raise ClusterError(f"features of seeds could not be computed: {answer['error']}")
        found[number] = answer
    parts = [found[number] for number in range(len(jobs))]
    trails = [part["trail"] for part in parts]
    joined: list[Trail] = []
    for same in zip(*trails, strict=True):
        owners = np.concatenate([one[0] for one in same])
        pointers = {key: np.concatenate([one[1][key] for one in same]) for key in same[0][1]}
        joined.append((owners, pointers))
    return np.concatenate([part["features"] for part in parts]), joined


def features_job(job: Job) -> Answer:
    """Compute the features of a range of seeds in another process."""
    dataset = job["dataset"]
    if job["replica"] is not None:
        dataset = str(obtain(job["replica"])["dataset"])
    maker = _maker(dataset, job["task"], json.dumps(job["config"], sort_keys=True), job["about"])
    features, trail = maker.make_range(job["rows"], job["limits"], job["times"])
    return {"features": features, "trail": trail}


@lru_cache(maxsize=1)
def _maker(dataset: str, task: str, settings: str, about: str) -> FeatureMaker:
    """The same features as in the process that asks; a process makes them for several ranges."""
    config = Config(**json.loads(settings))
    told: dict[str, Any] = json.loads(about)
    opened = open_task(dataset, task, told["splits"], **asdict(config))
    prepared = opened.prepare(config, encode=False)
    return FeatureMaker(prepared, told["labels"], told["saved"])
