"""Refuse to train on what `check` calls an error; each content is checked once.

The label SQL has to be run several times to find out whether labels come from their window. What
was found is kept in the store, named by the content of the database and the task.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relfrog.datasets.checks.findings import CheckReport, Finding
from relfrog.datasets.checks.records import check_records
from relfrog.datasets.checks.tasks import MakeFrame, check_task
from relfrog.datasets.files import database_content, database_in_files
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogError, StoreError, TaskError
from relfrog.store.parts import Store, open_store
from relfrog.support.forms import read_json

__all__ = ["refuse_errors", "remember_errors"]

FILE = "errors.json"
#: Place, text and remedy of each error.
_Errors = list[tuple[str, str, str]]


def refuse_errors(opened: Dataset, name: str, labels: MakeFrame | None = None) -> None:
    """Refuse a task in which `check` finds an error.

    Args:
        opened: The dataset.
        name: The task.
        labels: Gives the labels of a split, if somebody has them.

    Raises:
        TaskError: There is one.
    """
    store = open_store()

    def build(folder: Path) -> None:
        report = CheckReport()
        full = database_in_files(opened)
        check_task(opened, name, full, report, errors_only=True, labels=labels)
        check_records(opened, report)
        _write(folder, report.findings)

    found: _Errors = store.use(
        "checked", _made_of(opened, name, store), build, _read, f"{opened.manifest.name}: {name}"
    )
    if found:
        place, text, remedy = found[0]
        more = f" ({len(found) - 1:,} more)" if len(found) > 1 else ""
        raise TaskError(
            f"{place}: {text.rstrip('.')}. {remedy} See all findings{more}: "
            f"relfrog check {opened.dataset_dir} {name}"
        )


def remember_errors(opened: Dataset, name: str, findings: Sequence[Finding]) -> None:
    """Keep what a check of a task found, so that training need not check it again."""
    with contextlib.suppress(RelFrogError, OSError):  # then it is checked again
        store = open_store()
        made_of = _made_of(opened, name, store)
        about = f"{opened.manifest.name}: {name}"
        store.use("checked", made_of, lambda folder: _write(folder, findings), _read, about)


def _made_of(opened: Dataset, name: str, store: Store) -> dict[str, Any]:
    task: Any = load_task(opened, name)
    base = Path(opened.dataset_dir)
    files = [base / "import.json", *sorted((base / "keys").glob("*.parquet"))]
    return {
        "database": database_content(opened, store), "task": task.content(store.fingerprint),
        "records": [[file.name, store.fingerprint(file)] for file in files if file.is_file()],
    }  # fmt: skip


def _write(folder: Path, findings: Sequence[Finding]) -> None:
    errors = [[f.place, f.text, f.remedy] for f in findings if f.level == "error"]
    (folder / FILE).write_text(json.dumps(errors), encoding="utf-8")


def _read(folder: Path) -> _Errors:
    found: _Errors = read_json(folder / FILE, _Errors, StoreError)
    return found
