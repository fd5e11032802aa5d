"""The result of an import, and the records written beside the tables."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relfrog._version import __version__
from relfrog.errors import UsageError
from relfrog.importing.mapping import ImportMapping, Notice
from relfrog.importing.writer import WrittenTable

__all__ = ["ImportResult", "check_split", "import_record", "time_span", "write_records"]


@dataclass(frozen=True, repr=False)
class ImportResult:
    """What an import did.

    Attributes:
        folder: The dataset folder.
        tables: The tables in it.
        mapping: What each table, column and key became, and who decided it.
        notices: What was changed, left out or suggested, and what may leak.
        span: The earliest and the latest time, if there is any.
        selection: The schemas, tables and views to which it was limited, and those left out.
        options: The dataset's name and what to do with repeated keys, if they were chosen.
    """

    folder: Path
    tables: list[WrittenTable]
    mapping: ImportMapping
    notices: list[Notice]
    span: tuple[dt.datetime, dt.datetime] | None
    selection: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        rows, keys = (sum(counts) for counts in ([t.rows for t in self.tables],
                                                 [len(t.fkeys) for t in self.tables]))  # fmt: skip
        span = (
            "no times"
            if self.span is None
            else f"{self.span[0]:%Y-%m-%d} to {self.span[1]:%Y-%m-%d}"
        )
        return (
            f"ImportResult({str(self.folder)!r}: {len(self.tables):,} tables, {rows:,} rows, "
            f"{keys:,} foreign keys, {span}, {len(self.notices):,} notices)"
        )


def time_span(folder: Path, written: list[WrittenTable]) -> tuple[dt.datetime, dt.datetime] | None:
    """The earliest and the latest time in the dataset, from the statistics of the Parquet files."""
    import pyarrow.parquet as pq

    low: list[dt.datetime] = []
    high: list[dt.datetime] = []
    for table in written:
        if table.time_col is None or not table.rows:
            continue
        data = pq.ParquetFile(folder / "db" / f"{table.name}.parquet")
        index = data.schema_arrow.get_field_index(table.time_col)
        for group in range(data.metadata.num_row_groups):
            statistics = data.metadata.row_group(group).column(index).statistics
            low.append(statistics.min)
            high.append(statistics.max)
    return (min(low), max(high)) if low else None


def check_split(result: ImportResult, strict: bool) -> None:
    """Check that the split times lie within the data.

    Args:
        result: The import.
        strict: Whether to raise UsageError if not: the user has just chosen them. Those of a
            mapping file lay within the data that it was made of; an older copy may end before.
    """
    if result.span is None:
        return
    low, high = result.span
    val, test = (dt.datetime.fromisoformat(t) for t in (result.mapping.val, result.mapping.test))
    if result.mapping.split_reason.startswith("all rows lie"):
        result.notices.append(Notice("note", "", "", result.mapping.split_reason))
        return
    for flag, time in (("--val", val), ("--test", test)):
        if not low < time < high:
            text = (
                f"{flag} {time:%Y-%m-%d} lies outside the data, which range from {low:%Y-%m-%d} to "
                f"{high:%Y-%m-%d}"
            )
            if strict and result.mapping.split_reason == "chosen":
                raise UsageError(text + ". Choose a time in between.")
            result.notices.append(Notice("note", "", "", text))


def write_records(result: ImportResult, folder: Path, name: str) -> None:
    """Write ``manifest.yaml``, which RelBench reads, ``mapping.yaml`` and ``import.json``."""
    from relbench.manifest import DatasetManifest, TableSpec

    mapping = result.mapping
    DatasetManifest(
        name=name,
        val_timestamp=mapping.val,
        test_timestamp=mapping.test,
        description=f"Imported by RelFrog {__version__} from {mapping.source}",
        tables={t.name: TableSpec(t.pkey, t.time_col, t.fkeys) for t in result.tables},
    ).save(folder / "manifest.yaml")
    (folder / "mapping.yaml").write_text(mapping.to_yaml(), encoding="utf-8")
    record = import_record(result)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (folder / "import.json").write_text(text, encoding="utf-8")


def import_record(result: ImportResult) -> dict[str, Any]:
    """The content of ``import.json``: the origin of every column, and all notices."""
    return {
        "relfrog": __version__,
        "format": 1,
        "source": result.mapping.source,
        "selection": result.selection,
        "options": result.options,
        "val": result.mapping.val,
        "test": result.mapping.test,
        "split_reason": result.mapping.split_reason,
        "span": [t.isoformat(" ") for t in result.span] if result.span else None,
        "tables": {
            t.name: {
                "source": t.source,
                "rows": t.rows,
                "key": list(t.key),
                "inherited_from": t.inherited_from,
                "columns": {
                    c: {"source": list(sources), "role": role, **_reference(result, t, c)}
                    for c, (sources, role) in t.sources.items()
                },
            }
            for t in result.tables
        },
        "notices": [
            {"kind": n.kind, "table": n.table, "column": n.column, "text": n.text}
            for n in result.notices
        ],
    }


def _reference(result: ImportResult, table: WrittenTable, column: str) -> dict[str, Any]:
    """The table that a foreign key refers to, and which columns of it."""
    if column not in table.fkeys:
        return {}
    parent, (sources, _) = table.fkeys[column], table.sources[column]
    for key in result.mapping.tables[table.source].used_keys():
        if key.columns == sources and result.mapping.tables[key.parent].name == parent:
            return {"parent": parent, "parent_columns": list(key.parent_columns)}
    return {"parent": parent}
