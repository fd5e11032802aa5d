"""What commands about data say at their end, as text: import, inspect, check, task."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relfrog.cli.import_tables import alike, mapping_tables, split_line
from relfrog.cli.terminal import styled, table, wrapped
from relfrog.support.text import counted, number, percent

if TYPE_CHECKING:
    from relfrog.datasets.checks import CheckReport
    from relfrog.datasets.new_task import AddedTask
    from relfrog.importing.mapping import Notice
    from relfrog.importing.result import ImportResult

__all__ = ["check_lines", "import_summary", "inspection", "notice_lines", "task_summary"]

_HEADINGS = {
    "changed": "Changed",
    "left out": "Left out",
    "suggestion": "Suggested, not used",
    "leak": "May leak",
    "note": "Worth knowing",
}
#: Notices of one kind that are shown; all of them are in import.json.
_MOST = 25
#: The places that one line names.
_MOST_PLACES = 12


def notice_lines(notices: Sequence[Notice]) -> Iterator[str]:
    """Notices under their headings."""
    for kind, heading in _HEADINGS.items():
        found: dict[str, list[Notice]] = {}  # many tables often have the same thing said of them
        for notice in notices:
            if notice.kind == kind:
                found.setdefault(notice.text, []).append(notice)
        if not found:
            continue
        yield styled(f"{heading}:", "bold yellow" if kind in ("changed", "leak") else "bold")
        lines = list(alike(list(found.values())) if kind != "suggestion" else found.values())
        for group in lines[:_MOST]:
            places = [notice.place for notice in group]
            shown = ", ".join(places[:_MOST_PLACES])
            if len(places) > _MOST_PLACES:
                shown += f" and {len(places) - _MOST_PLACES} more"
            text = group[0].text
            if any(notice.text != text for notice in group):
                text = f"{text} (and alike)"
            yield wrapped(f"{shown}: {text}".removeprefix(": "), "  ")
        if len(lines) > _MOST:
            yield f"  and {len(lines) - _MOST} more, all in import.json"


def import_summary(result: ImportResult, tasks: Mapping[str, str] | None = None) -> str:
    """The end of an import: tables, keys, notices, times, and the next command.

    Args:
        result: What was imported.
        tasks: The tasks that were kept, each with what is wrong with it now.
    """
    mapping = result.mapping
    total = sum(t.rows for t in result.tables)
    lines = [
        f"Imported {counted(len(result.tables), 'table')}, {counted(total, 'row')} from "
        f"{mapping.source}",
        "",
        mapping_tables(mapping, {t.source: t.rows for t in result.tables}),
    ]
    lines += _inherited_lines(result)
    lines += notice_lines(result.notices)
    if result.notices:
        lines.append("")
    if result.span is not None:
        lines.append(f"Time span: {result.span[0]} to {result.span[1]}")
    lines.append(split_line(mapping))
    broken = {name: text for name, text in (tasks or {}).items() if text}
    if tasks:
        works = [name for name in tasks if name not in broken]
        if works:
            lines.append(wrapped(f"Tasks kept, with new labels: {', '.join(works)}"))
        for name, text in broken.items():
            said = wrapped(f"Task {name} no longer works: {text}")
            lines.append(styled(said, "yellow"))
    folder = shlex.quote(str(result.folder))
    lines += ["", f"Written to {result.folder}. Next:", f"  relfrog check {folder}"]
    return "\n".join(lines)


def _inherited_lines(result: ImportResult) -> list[str]:
    """Which tables inherit times, and along which foreign keys."""
    heirs = [t for t in result.tables if t.inherited_from]
    if not heirs:
        return []
    lines = ["Without a time of their own, rows are known from the latest of the rows they name:"]
    for heir in heirs:
        sources = ", ".join(f"{heir.fkeys[column]} ({column})" for column in heir.inherited_from)
        given = result.mapping.tables[heir.source]
        some = f" where {given.time} is NULL" if given.time else ""
        lines.append(f"  {heir.name}: from {sources}{some}")
    which = heirs[0].source
    parent = heirs[0].fkeys[heirs[0].inherited_from[0]]
    lines.append(
        wrapped(
            f"Change it with --time TABLE.COLUMN, --time TABLE=PARENT (such as {which}={parent}) "
            f"or --time TABLE=none (always visible)."
        )
    )
    return [*lines, ""]


def inspection(found: dict[str, Any]) -> str:
    """A dataset for the eye."""
    total = sum(t["rows"] for t in found["tables"])
    lines = [
        f"{found['name']}: {counted(len(found['tables']), 'table')}, {counted(total, 'row')}; "
        f"validation from {found['val_timestamp'][:10]}, test from {found['test_timestamp'][:10]}",
        "",
        table(
            ["table", "rows", "primary key", "time column", "from", "to", "features"],
            [
                [
                    t["name"],
                    number(t["rows"]),
                    t["primary_key"] or "",
                    _time_column(t),
                    (t["first_time"] or "")[:10],
                    (t["last_time"] or "")[:10],
                    ", ".join(f"{count} {kind}" for kind, count in sorted(t["features"].items())),
                ]
                for t in found["tables"]
            ],
            right=[1],
        ),
        "",
    ]
    if found["foreign_keys"]:
        lines += [
            table(
                ["foreign key", "NULL"],
                [
                    [f"{k['table']}.{k['column']} -> {k['parent']}", percent(k["null_share"])]
                    for k in found["foreign_keys"]
                ],
                right=[1],
            ),
            "",
        ]
    routes = found["routes"]
    lines.append(
        f"{len(found['foreign_keys'])} foreign keys, {routes['co_occurrence']} co-occurrence "
        f"routes, {routes['completion']} completion routes"
    )
    lines.append(wrapped(_keys_in_sql(found["keys_in_sql"])))
    if found["tasks"]:
        lines += ["", _task_table(found["tasks"])]
        own = [
            f"{t['name']} has splits of its own: validation from {t['val_timestamp'][:10]}, test "
            f"from {t['test_timestamp'][:10]}"
            for t in found["tasks"]
            if "val_timestamp" in t
        ]
        lines += ["", *own] if own else []
    else:
        lines += ["", "No tasks yet. For questions worth asking: relfrog suggest DATASET"]
    return "\n".join(lines)


def _time_column(described: Mapping[str, Any]) -> str:
    """A table's time column, and where its times come from if they are not its own."""
    parents = dict.fromkeys(key["parent"] for key in described["time_inherited_from"])
    name = described["time_column"] or ""
    return f"{name} (of {', '.join(parents)})" if parents else name


def _task_table(tasks: list[dict[str, Any]]) -> str:
    rows = []
    for task in tasks:
        if "error" in task:
            rows.append([task["name"], "", "", "", "", "", task["error"]])
            continue
        ends = task.get("entity_table") or (
            f"{task.get('src_entity_table')} -> {task.get('dst_entity_table')}"
        )
        splits = task.get("splits", {})
        counts = [
            number(splits[s]["rows"]) if s in splits else "" for s in ("train", "val", "test")
        ]
        label = _label(splits["train"]["label"]) if "train" in splits else ""
        rows.append([task["name"], task["task_type"], ends, *counts, label])
    headers = ["task", "type", "for", "train", "val", "test", "label in train"]
    return table(headers, rows, right=[3, 4, 5])


def _label(label: dict[str, float]) -> str:
    if "positive" in label:
        return f"{percent(label['positive'])} positive"
    if "targets" in label:
        return f"{label['targets']:.2f} targets each"
    return ", ".join(f"{name} {number(value)}" for name, value in label.items())


def check_lines(report: CheckReport) -> str:
    """Findings and what holds."""
    lines = []
    for finding in report.findings:
        said = wrapped(f"{finding.level}: {finding.place}: {finding.text}")
        colour = "bold red" if finding.level == "error" else "bold yellow"
        lines.append(styled(finding.level, colour) + said.removeprefix(finding.level))
        lines.append(wrapped(finding.remedy, "  "))
    lines += [f"{styled('ok', 'green')}: {text}" for text in report.passed]
    errors = sum(f.level == "error" for f in report.findings)
    warnings = len(report.findings) - errors
    lines.append(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
    return "\n".join(lines)


def _keys_in_sql(about: dict[str, Any]) -> str:
    """Which values one writes for keys in label SQL."""
    if about["values"] == "rows":
        return "Keys in label SQL are row numbers: 0, 1, 2, and so on."
    shown = [
        " AND ".join(f"{table}.{column} = {value!r}" for column, value in key.items())
        for table, key in list(about["examples"].items())[:3]
    ]
    examples = f", such as {'; '.join(shown)}" if shown else ""
    return f"Keys in label SQL are those of the source{examples}."


def task_summary(dataset: str, added: AddedTask) -> str:
    """A task that was added: its labels, and the next command."""
    rows = [
        [
            split,
            number(stats.rows),
            number(stats.seed_times),
            number(stats.entities),
            _label(stats.label),
        ]
        for split, stats in added.stats.items()
    ]
    manifest = added.manifest
    how = f"{manifest.timedelta} ahead"
    if manifest.kind == "autocomplete":
        how = f"fills in {manifest.entity_table}.{manifest.target_col}"
    return "\n".join(
        [
            f"Added task {manifest.name} ({manifest.task_type}, {how}) in {added.folder}",
            "",
            table(["split", "rows", "seed times", "entities", "label"], rows, right=[1, 2, 3]),
            "",
            *(wrapped(f"note: {text}") for text in added.notes),
            *(
                styled("warning", "bold yellow") + wrapped(f"warning: {text}")[len("warning") :]
                for text in added.warnings
            ),
            *([""] if added.notes or added.warnings else []),
            "Next:",
            f"  relfrog check {shlex.quote(str(dataset))} {shlex.quote(added.manifest.name)}",
        ]
    )
