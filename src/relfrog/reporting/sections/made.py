"""How it was made: data, split times, settings, seeds, versions, seconds, memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from relfrog.reporting.html import Markup, bytes_, horizon, join, missing, sheet, tag
from relfrog.reporting.material import Material
from relfrog.support.text import duration

__all__ = ["made"]


def made(m: Material) -> Markup:
    """The section."""
    about, database = m.run.about, m.database or {}
    task = database.get("task") or {}
    data = [
        ("dataset", about["dataset"]),
        ("task", f"{about['task']} ({about['task_type'].replace('_', ' ')})"),
    ]
    if task and not task.get("completes"):
        data.append(("looks ahead", horizon(task["horizon_seconds"])))
    if database:
        data += [
            ("validation from", database.get("val_timestamp") or "not known"),
            ("test from", database.get("test_timestamp") or "not known"),
            ("newest time in the data", database.get("newest") or "none"),
            ("tables", f"{len(database['tables']):,} with "
             f"{sum(t['rows'] for t in database['tables']):,} rows, earlier labels among them"),
            ("fingerprint of the data", database.get("fingerprint") or "not known"),
        ]  # fmt: skip
    state = {
        True: "the data are the same now",
        False: "the data have changed since: what is computed here comes from those of now",
        None: "the data were not looked at: what is shown of them was kept when it was trained"
        if m.kept
        else "the data could not be read again",
    }[m.same_data]
    data += [("since then", state), ("fingerprint of the schema", about.get("schema", "not known"))]
    versions = about.get("versions", {})
    run: list[tuple[str, Any]] = [
        ("run folder", str(m.run.folder)),
        ("RelFrog", about.get("relfrog", "not known")),
        *((name, value) for name, value in versions.items()),
        ("random seed", m.run.config.seed),
        ("model", m.run.config.model),
        ("weights", f"{about.get('weights', 0):,}"),
        ("epochs", f"{about.get('epochs', 0)}, the best of them {about.get('best_epoch', 0)}"),
        ("time", duration(float(about.get("seconds", 0)))),
        ("peak memory", bytes_(float(about.get("peak_memory_bytes", 0)))),
    ]
    settings = asdict(m.run.config)
    table = sheet(["setting", "value"], [[name, str(value)] for name, value in settings.items()],
                  label="All settings")  # fmt: skip
    return join([
        None if database else missing("The run folder has no database.json: no split times."),
        tag("div", _pairs("Data", data), _pairs("Run", run), class_="columns facts"),
        tag("details", tag("summary", f"All {len(settings)} settings"), table),
    ])  # fmt: skip


def _pairs(title: str, entries: list[tuple[str, Any]]) -> Markup:
    parts = [part for name, value in entries for part in (tag("dt", name), tag("dd", str(value)))]
    return tag("div", tag("h3", title), tag("dl", *parts))
