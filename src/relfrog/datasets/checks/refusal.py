"""Refuse to train on what `check` calls an error; each sound content is checked once.

The label SQL has to be run several times to find out whether labels come from their window. That
nothing was found is kept in the store, named by the content of the database and the task. Errors
are not kept: some are the machine's, such as a full disk, and gone the next time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relfrog.datasets.checks.findings import CheckReport, Finding
from relfrog.datasets.checks.records import check_records
from relfrog.datasets.checks.tasks import MakeFrame, check_task
from relfrog.datasets.files import database_content, database_in_files
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogError, TaskError
from relfrog.store.parts import Store, open_store

__all__ = ["refuse_errors", "remember_sound"]

#: A part of the store without files: that it is there says all.
SOUND = "sound"


def refuse_errors(opened: Dataset, name: str, labels: MakeFrame | None = None) -> None:
    """Refuse a task in which `check` finds an error.

    Args:
        opened: The dataset.
        name: The task.
        labels: Gives the labels of a split, if somebody has them.

    Raises:
        TaskError: There is one.
    """

    def build(_: Path) -> None:
        report = CheckReport()
        full = database_in_files(opened)
        check_task(opened, name, full, report, errors_only=True, labels=labels)
        check_records(opened, report)
        errors = [finding for finding in report.findings if finding.level == "error"]
        if errors:
            raise _refusal(opened, name, errors)

    _use(opened, name, open_store(), build)


def remember_sound(opened: Dataset, name: str) -> None:
    """Keep that a check found no error in a task, so that training need not check it again."""
    with contextlib.suppress(RelFrogError, OSError):  # then it is checked again
        _use(opened, name, open_store(), lambda _: None)


def _use(opened: Dataset, name: str, store: Store, build: Callable[[Path], None]) -> None:
    task: Any = load_task(opened, name)
    base = Path(opened.dataset_dir)
    files = [base / "import.json", *sorted((base / "keys").glob("*.parquet"))]
    made_of = {
        "database": database_content(opened, store), "task": task.content(store.fingerprint),
        "records": [[file.name, store.fingerprint(file)] for file in files if file.is_file()],
    }  # fmt: skip
    store.use(SOUND, made_of, build, lambda _: None, f"{opened.manifest.name}: {name}")


def _refusal(opened: Dataset, name: str, errors: list[Finding]) -> TaskError:
    first = errors[0]
    more = f" ({len(errors) - 1:,} more)" if len(errors) > 1 else ""
    return TaskError(
        f"{first.place}: {first.text.rstrip('.')}. {first.remedy} See all findings{more}: "
        f"relfrog check {opened.dataset_dir} {name}"
    )
