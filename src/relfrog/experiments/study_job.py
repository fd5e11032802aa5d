"""A run of a study as a job for another process: trained, resumed or there already."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from relfrog.cluster.folders import pack, unpack
from relfrog.cluster.guarded import Answer, Job
from relfrog.cluster.replica import obtain
from relfrog.errors import RunError, UsageError
from relfrog.models.run_folder import is_run
from relfrog.support.files import atomic_folder, write_json, write_text
from relfrog.support.forms import read_json

__all__ = ["DifferencesFile", "is_complete", "receive", "run_job"]

#: Names in what a machine sends back.
RUN, DIFFERENCES = "run", "differences.json"


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a complete run."""
    if not is_run(folder) or not (folder / "metrics.json").is_file():
        return False
    return bool(read_json(folder / "run.json", dict[str, Any]).get("status") == "complete")


def run_job(job: Job) -> Answer:
    """Train or resume a run; then analyse its embedding space, if the job asks for it.

    Args:
        job: `dataset`, `task`, `folder`; `settings`, `preset`, `size`, `seed`, `gates`, `members`
            as for `train`; `differences`: a file for the result of `relfrog.analysis.fd_space`;
            for a job on another machine also `replica`, the dataset to copy, `place`, the folder
            of the run folders, and `preset_text`, the content of the preset if it is a file.

    Returns:
        `{}`; or, from a machine that does not see the folder of the run folders, `files`: the run
        and the result of the analysis, packed.
    """
    replica, place = job.get("replica"), job.get("place")
    if replica is None or place is None:
        _make(job)
        return {}
    dataset = str(obtain(replica)["dataset"])
    if place.is_seen():
        _make(job | {"dataset": dataset})
        _rename(Path(job["folder"]), job["dataset"])
        return {}
    with tempfile.TemporaryDirectory(prefix="relfrog-") as base:
        run, differences = Path(base) / "out" / RUN, Path(base) / "out" / DIFFERENCES
        here = {"dataset": dataset, "folder": str(run), "members": None}
        if job.get("preset_text") is not None:
            preset = Path(base) / "preset.yaml"
            preset.write_text(job["preset_text"], encoding="utf-8")
            here["preset"] = str(preset)
        if job.get("differences"):
            here["differences"] = str(differences)
        _make(job | here)
        _rename(run, job["dataset"])
        return {"files": pack(Path(base) / "out")}


def receive(job: Job, answer: Answer) -> None:
    """Put what came from a machine that does not see our folders where it belongs."""
    with tempfile.TemporaryDirectory(prefix="relfrog-") as base:
        unpack(answer["files"], Path(base))
        with atomic_folder(Path(job["folder"]), True, lambda _: "") as partial:
            shutil.copytree(Path(base) / RUN, partial, dirs_exist_ok=True)
        if job.get("differences"):
            found = (Path(base) / DIFFERENCES).read_text(encoding="utf-8")
            write_text(Path(job["differences"]), found)


def _rename(folder: Path, dataset: str) -> None:
    """Let a run name its dataset as the study does, not by its copy on a node."""
    about = read_json(folder / "run.json", dict[str, Any])
    if about["dataset"] != dataset:
        write_json(folder / "run.json", about | {"dataset": dataset})


def _make(job: Job) -> None:
    _train(job)
    if job.get("differences"):
        _look_into(job)


def _train(job: Job) -> None:
    from relfrog.runs.train import train

    folder = Path(job["folder"])
    if is_complete(folder):
        return
    options = {
        "roles": job.get("gates"), "size": job["size"], "preset": job.get("preset"),
        "settings": job["settings"], "seed": job["seed"], "baselines": False,
        "members": job.get("members"),
    }  # fmt: skip
    if is_run(folder):
        try:
            train(job["dataset"], job["task"], folder, resume=True, **options)
            return
        except (RunError, UsageError):
            # The unfinished run is damaged or from an older version: start again.
            pass
    train(job["dataset"], job["task"], folder, overwrite=True, **options)


class DifferencesFile(msgspec.Struct):
    """What is kept of `relfrog.analysis.fd_space` for a run; null where a number is not defined."""

    points: list[tuple[float, float]]
    key: list[str]
    matched: list[bool]
    separation: dict[str, float | None]
    scored: dict[str, float | None]
    silhouette: float | None
    explained: float | None

    def __post_init__(self) -> None:
        if not len(self.points) == len(self.key) == len(self.matched):
            raise ValueError("points of different lengths")


def _look_into(job: Job) -> None:
    from relfrog.analysis.fd_space import differences
    from relfrog.runs.run import load_run

    file = Path(job["differences"])
    if file.is_file():
        return
    found = differences(load_run(job["folder"]))
    write_json(
        file,
        {
            "points": [[round(float(x), 4) for x in point] for point in found.points],
            "key": found.key, "matched": found.matched.tolist(),
            "separation": found.separation, "scored": found.scored,
            "silhouette": found.silhouette,
            "explained": found.explained,
        },
    )  # fmt: skip
