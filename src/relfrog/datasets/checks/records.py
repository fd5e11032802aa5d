"""Check what an import recorded: the source's keys, one per row, and folders of tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from relfrog.datasets.checks.findings import CheckReport
from relfrog.datasets.dataset import read_tables, source_keys
from relfrog.datasets.protocols import Dataset
from relfrog.errors import DatasetError
from relfrog.importing.record import read_record

__all__ = ["check_records"]


def check_records(opened: Dataset, report: CheckReport) -> None:
    """Check what ``relfrog import`` writes in addition to RelBench's files: the source's keys."""
    folder = Path(opened.dataset_dir)
    for path in sorted((folder / "tasks").glob("*/")):
        if not (path / "manifest.yaml").is_file() and not path.name.startswith("."):
            report.warning(f"tasks/{path.name}", "has no manifest.yaml", "Restore or remove it.")
    record = read_record(folder)
    if record is None:
        return
    rows = {t.name: t.rows for t in read_tables(opened)}
    # Of tables of the dataset alone: another name could lead anywhere.
    keyed = {n: t["key"] for n, t in record["tables"].items() if t["key"] and n in rows}
    for name, columns in keyed.items():
        place = f"keys/{name}.parquet"
        try:
            source_keys(folder, name)
            file = pq.read_table(folder / place)
        except (OSError, DatasetError, pa.ArrowException, NotImplementedError) as error:
            text = f"the source's keys cannot be read: {' '.join(str(error).split())}"
            report.error(place, text, "Import the database again.")
            continue
        if file.num_rows != rows.get(name) or file.column_names != columns:
            text = (
                f"holds {file.num_rows:,} keys of {', '.join(file.column_names)}, but "
                f"{name} has {rows.get(name, 0):,} rows with {', '.join(columns)}"
            )
            report.error(place, text, "Import the database again.")
            continue
        known = file.drop_null()
        repeated = known.num_rows - known.group_by(columns).aggregate([]).num_rows
        if repeated:
            text = f"{repeated:,} of {file.num_rows:,} source keys are duplicates"
            report.error(place, text, "Import the database again.")
