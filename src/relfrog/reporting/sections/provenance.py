"""Provenance of a run: data, split times, settings, random seed, versions, time and memory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from relfrog.errors import RunError
from relfrog.reporting.html import Markup, bytes_, join, missing, sheet, tag
from relfrog.reporting.material import Material
from relfrog.support.forms import read_json
from relfrog.support.text import duration, horizon

__all__ = ["provenance"]


def provenance(m: Material) -> Markup:
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
            *_times(database["tables"]),
            ("fingerprint of the data", database.get("fingerprint") or "not known"),
        ]  # fmt: skip
    state = {
        True: "the data are unchanged",
        False: "the data have changed since: what this report computes comes from the current data",
        None: "the data were not read: what is shown of them was kept when it was trained"
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
        *_certificates(m.run.folder),
    ]
    settings = asdict(m.run.config)
    table = sheet(["setting", "value"], [[name, str(value)] for name, value in settings.items()],
                  label="All settings")  # fmt: skip
    return join([
        None if database else missing("The run folder has no database.json: no split times."),
        tag("div", _pairs("Data", data), _pairs("Run", run), class_="columns facts"),
        tag("details", tag("summary", f"All {len(settings)} settings"), table),
    ])  # fmt: skip


def _times(tables: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Tables whose times are inherited, and tables whose rows are always visible."""
    heirs = [
        f"{t['name']} (from {', '.join(sorted({key['parent'] for key in sources}))})"
        for t in tables
        if (sources := t.get("time_inherited_from"))
    ]
    always = [f"{t['name']} ({t['rows']:,} rows)" for t in tables if not t["time_column"]]
    found = [("times inherited by", ", ".join(heirs)), ("always visible", ", ".join(always))]
    return [(name, listed) for name, listed in found if listed]


class Certified(msgspec.Struct):
    """What is shown of a certificate."""

    sentence: str


def _certificates(folder: Path) -> list[tuple[str, str]]:
    """What the certificates in the run folder say of themselves."""
    found = []
    for path in sorted(folder.glob("*.certificate.json")):
        try:
            said = read_json(path, Certified)["sentence"]
        except RunError:
            continue  # from before they said it
        found.append((f"certificate of {path.name.removesuffix('.certificate.json')}", str(said)))
    return found


def _pairs(title: str, entries: list[tuple[str, Any]]) -> Markup:
    parts = [part for name, value in entries for part in (tag("dt", name), tag("dd", str(value)))]
    return tag("div", tag("h3", title), tag("dl", *parts))
