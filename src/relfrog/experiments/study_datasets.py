"""Datasets and tasks that an experiment runs on: folders, or what RelBench hosts, within reach."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.tasks import read_task_manifest, task_names
from relfrog.errors import RelFrogError, UsageError, unknown
from relfrog.experiments.paper import paper_tasks

__all__ = ["StudyDataset", "find_datasets"]

#: Seconds within which RelBench's host must answer.
PATIENCE = 20.0


@dataclass(frozen=True)
class StudyDataset:
    """A dataset within reach.

    Attributes:
        name: its own name.
        address: a folder, or a name that RelBench knows.
        kinds: per task to be run its type.
        tables: the names of its tables.
        prints: per task what its results depend on, as a hash of manifests and sizes of files.
    """

    name: str
    address: str
    kinds: dict[str, str]
    tables: frozenset[str]
    prints: dict[str, str] = field(repr=False)


def find_datasets(
    datasets: Sequence[str],
    tasks: Sequence[str],
    usual: Sequence[str],
    skip: Callable[[str], None],
    patience: float = PATIENCE,
) -> list[StudyDataset]:
    """The datasets within reach with the tasks to run.

    Args:
        datasets: folders or names; by default those of the usual tasks.
        tasks: by name, or as dataset/task; by default the paper's tasks of a dataset of the
            paper, and all tasks of another.
        usual: tasks, as dataset/task, that are run where no dataset is named.
        skip: told in one line what cannot be reached, and why.
        patience: seconds within which RelBench's host must answer.

    Raises:
        UsageError: No dataset has a task of that name.
    """
    asked = list(dict.fromkeys(datasets or (name.partition("/")[0] for name in usual)))
    remote = [name for name in asked if not Path(name).expanduser().is_dir()]
    silent = _unanswered(remote, patience)
    places: list[StudyDataset] = []
    seen: list[str] = []
    for address in asked:
        if address in silent:
            skip(f"skipped: dataset {address} cannot be reached ({silent[address]})")
            continue
        try:
            opened = open_dataset(address)
            place = _place(opened, address, tasks, () if datasets else usual)
        except RelFrogError as error:
            skip(f"skipped: {' '.join(str(error).split())}")
            continue
        seen += task_names(opened)
        if any(place.name == other.name for other in places):
            raise UsageError(
                f"two datasets are called {place.name}. Name one of them, or rename one in its "
                "manifest.yaml."
            )
        if place.kinds:
            places.append(place)
        else:
            skip(f"skipped: dataset {address} has no such task: {', '.join(tasks) or 'none'}")
    wanted = [name.rpartition("/")[2] for name in tasks]
    if seen and (missing := [name for name in wanted if name not in seen]):
        raise UsageError(str(unknown("task", missing[0], sorted(set(seen)))))
    return places


def _place(
    opened: Dataset, address: str, tasks: Sequence[str], usual: Sequence[str]
) -> StudyDataset:
    """An opened dataset with the tasks that are wanted of it."""
    folder = Path(opened.dataset_dir)
    local = Path(address).expanduser()
    name = str(getattr(opened.manifest, "name", "") or folder.name)
    there = task_names(opened)
    papers = [task.task for task in paper_tasks() if task.dataset == name]
    if tasks:
        wanted = [
            task for task in there if task in tasks
            or any(full in tasks for full in (f"{name}/{task}", f"{address}/{task}"))
        ]  # fmt: skip
    elif usual:
        wanted = [task for task in there if f"{name}/{task}" in usual]
    else:
        wanted = [task for task in papers if task in there] or list(there)
    kinds, prints = {}, {}
    base = _fingerprint(folder / "manifest.yaml", sorted(Path(opened.db_dir).glob("*.parquet")))
    for task in wanted:
        manifest, place = read_task_manifest(opened, task)
        kinds[task] = str(manifest.task_type)
        own = _fingerprint(place / "manifest.yaml", sorted(place.glob("*.parquet")))
        prints[task] = base + own
    where = str(local.resolve()) if local.is_dir() else address
    return StudyDataset(name, where, kinds, frozenset(opened.manifest.tables), prints)


def _fingerprint(manifest: Path, files: Sequence[Path]) -> str:
    """Of a manifest's text and the sizes of files: the same wherever the folder is."""
    said = manifest.read_bytes() + "".join(f"{f.name} {f.stat().st_size}\n" for f in files).encode()
    return hashlib.sha256(said).hexdigest()[:12]


def _unanswered(names: Sequence[str], patience: float) -> dict[str, str]:
    """Names that RelBench's host does not know or does not answer for in time, and why.

    All are asked at once, so that the wait is bounded however many there are.
    """
    if not names:
        return {}
    from huggingface_hub.utils.logging import set_verbosity_error
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    set_verbosity_error()  # type: ignore[no-untyped-call]  # it repeats itself
    disable_progress_bars()
    found: dict[str, str] = {}
    threads = []
    for name in names:
        thread = threading.Thread(target=_ask, args=(name, found), daemon=True)
        thread.start()
        threads.append(thread)
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    enable_progress_bars()
    late = f"no answer within {patience:.0f} s"
    return {name: said for name in names if (said := found.get(name, late))}


def _ask(name: str, found: dict[str, str]) -> None:
    """Fetch the manifest alone, which is small; an empty answer is a good one."""
    try:
        from huggingface_hub import snapshot_download
        from relbench.hf import resolve_repo

        repository, folder = resolve_repo(name)
        file = f"{folder}/manifest.yaml" if folder else "manifest.yaml"
        snapshot_download(repository, repo_type="dataset", allow_patterns=[file], etag_timeout=5)
        found[name] = ""
    except Exception as error:  # whatever the hub's client raises
        found[name] = f"{type(error).__name__}; no such folder, name, or network"
