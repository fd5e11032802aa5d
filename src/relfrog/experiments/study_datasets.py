"""The datasets and tasks of an experiment: local folders, or datasets that RelBench hosts."""

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
from relfrog.support.files import user_path

__all__ = ["StudyDataset", "find_datasets"]

#: Timeout for RelBench's host, in seconds.
PATIENCE = 20.0


@dataclass(frozen=True)
class StudyDataset:
    """A dataset of an experiment, with the tasks to run.

    Attributes:
        name: its name.
        address: a folder, or the name of a dataset that RelBench hosts.
        kinds: the tasks to run, with RelBench's names of their types.
        tables: the names of its tables.
        fingerprints: hash of manifests and file sizes, per task.
    """

    name: str
    address: str
    kinds: dict[str, str]
    tables: frozenset[str]
    fingerprints: dict[str, str] = field(repr=False)


def find_datasets(
    datasets: Sequence[str],
    tasks: Sequence[str],
    usual: Sequence[str],
    skip: Callable[[str], None],
    patience: float = PATIENCE,
) -> list[StudyDataset]:
    """Find the datasets that can be opened, with the tasks to run.

    Args:
        datasets: folders or names; by default the datasets of `usual`.
        tasks: names, or dataset/task; by default the paper's tasks of a dataset of the paper, and
            all tasks of other datasets.
        usual: tasks, as dataset/task, to run if no dataset is given.
        skip: called with a line about each dataset that cannot be opened, and why.
        patience: timeout for RelBench's host, in seconds.

    Raises:
        UsageError: No dataset has a task of that name, or one is the address of a database.
    """
    asked = list(dict.fromkeys(datasets or (name.partition("/")[0] for name in usual)))
    if address := next((name for name in asked if "://" in name), None):
        raise UsageError(
            f"{address} is an address, not a dataset. Import it first: relfrog import ADDRESS "
            "FOLDER"
        )
    remote = [name for name in asked if not user_path(name).is_dir()]
    silent = _unanswered(remote, patience)
    reachable: list[StudyDataset] = []
    seen: list[str] = []
    for address in asked:
        if address in silent:
            skip(f"skipped: dataset {address} cannot be reached ({silent[address]})")
            continue
        try:
            opened = open_dataset(address)
            dataset = _study_dataset(opened, address, tasks, () if datasets else usual)
        except RelFrogError as error:
            skip(f"skipped: {' '.join(str(error).split())}")
            continue
        seen += task_names(opened)
        if any(dataset.name == other.name for other in reachable):
            raise UsageError(
                f"two datasets are called {dataset.name}. Name one of them, or rename one in its "
                "manifest.yaml."
            )
        if dataset.kinds:
            reachable.append(dataset)
        else:
            skip(f"skipped: dataset {address} has no such task: {', '.join(tasks) or 'none'}")
    wanted = [name.rpartition("/")[2] for name in tasks]
    if seen and (missing := [name for name in wanted if name not in seen]):
        raise UsageError(str(unknown("task", missing[0], sorted(set(seen)))))
    return reachable


def _study_dataset(
    opened: Dataset, address: str, tasks: Sequence[str], usual: Sequence[str]
) -> StudyDataset:
    """Describe an opened dataset, with the selected tasks."""
    folder = Path(opened.dataset_dir)
    local = user_path(address)
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
    kinds, fingerprints = {}, {}
    base = _fingerprint(folder / "manifest.yaml", sorted(Path(opened.db_dir).glob("*.parquet")))
    for task in wanted:
        manifest, task_folder = read_task_manifest(opened, task)
        kinds[task] = str(manifest.task_type)
        own = _fingerprint(task_folder / "manifest.yaml", sorted(task_folder.glob("*.parquet")))
        fingerprints[task] = base + own
    where = str(local.resolve()) if local.is_dir() else address
    return StudyDataset(name, where, kinds, frozenset(opened.manifest.tables), fingerprints)


def _fingerprint(manifest: Path, files: Sequence[Path]) -> str:
    """A hash of a manifest and of file sizes, independent of the location of the folder."""
    said = manifest.read_bytes() + "".join(f"{f.name} {f.stat().st_size}\n" for f in files).encode()
    return hashlib.sha256(said).hexdigest()[:12]


def _unanswered(names: Sequence[str], patience: float) -> dict[str, str]:
    """The names that RelBench's host does not resolve within the timeout, and why.

    All names are requested in parallel, so that the total wait is bounded.
    """
    if not names:
        return {}
    from huggingface_hub.utils.logging import set_verbosity_error
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    set_verbosity_error()  # type: ignore[no-untyped-call]  # it repeats its warnings
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
    """Fetch only the manifest, which is small; store an empty message on success."""
    try:
        from huggingface_hub import snapshot_download
        from relbench.hf import resolve_repo

        repository, folder = resolve_repo(name)
        file = f"{folder}/manifest.yaml" if folder else "manifest.yaml"
        snapshot_download(repository, repo_type="dataset", allow_patterns=[file], etag_timeout=5)
        found[name] = ""
    except Exception as error:  # whatever the hub's client raises
        found[name] = f"{type(error).__name__}; no such folder, name, or network"
