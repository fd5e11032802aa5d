"""The tasks of a dataset that was imported again: their labels made anew, or why they cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.files import database_in_files
from relfrog.datasets.new_task import split_labels
from relfrog.datasets.task_splits import fit_splits
from relfrog.datasets.tasks import read_task_manifest, task_names
from relfrog.errors import RelFrogError
from relfrog.support.files import atomic_folder

__all__ = ["renew_tasks"]


def renew_tasks(folder: str | Path) -> dict[str, str]:
    """Make the labels of all tasks with SQL anew, from the rows that are there now.

    Splits that a task chose for itself are chosen anew, as the dataset's are; those that the user
    chose stay.

    Args:
        folder: A dataset folder.

    Returns:
        Per task what is wrong with it now; empty if it works.
    """
    dataset = open_dataset(folder)
    found: dict[str, str] = {}
    full = None
    for name in task_names(dataset):
        try:
            manifest, place = read_task_manifest(dataset, name)
            if manifest.sql is None:
                continue
            full = full or database_in_files(dataset)
            own = (manifest.val_timestamp, manifest.test_timestamp)
            chosen = own if manifest.split_reason == "chosen" else (None, None)
            plain = replace(
                manifest, val_timestamp=None, test_timestamp=None, train_from=None,
                split_reason=None,
            )  # fmt: skip
            fitted = fit_splits(dataset, plain, full, split_labels, *chosen)
            with atomic_folder(place, True, lambda _: "") as partial:
                for split, frame in fitted.frames.items():
                    frame.to_parquet(partial / f"{split}.parquet", index=False)
                fitted.manifest.save(partial / "manifest.yaml")
            found[name] = ""
        except RelFrogError as error:
            found[name] = str(error)
    return found
