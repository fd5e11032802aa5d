"""The table of docs/ask.md: RelBench's tasks as questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["relbench_questions"]

HERE = Path(__file__).parent


def relbench_questions() -> str:
    """Which tasks can be said, how many labels were compared, and what differs."""
    found = json.loads((HERE / "relbench-questions.json").read_text(encoding="utf-8"))
    tasks: dict[str, list[dict[str, Any]]] = {}
    for record in found["tasks"]:
        tasks.setdefault(record["task"], []).append(record)
    lines = [
        f"Compared with the SQL of RelBench {found['relbench']}: `{found['command']}`.",
        "",
        "| task | can be said | labels compared | the same |",
        "|---|---|--:|---|",
    ]
    for name, records in sorted(tasks.items()):
        first = records[0]
        if first["question"] is None:
            lines.append(f"| {name} | no: {first['why']} | | |")
            continue
        counts = ", ".join(_count(record) for record in records)
        same = all(record["same"] for record in records)
        why = next((record["why"] for record in records if not record["same"]), "")
        lines.append(
            f"| {name} | {'yes' if same else 'nearly'} | {counts} | "
            f"{'yes' if same else f'at validation and test; {_apart(records)}: {why}'} |"
        )
    return "\n".join(lines)


def _count(record: dict[str, Any]) -> str:
    of = "" if record["rows"] == "made up" else f" of {record['rows']}"
    return f"{record['labels']:,}{of}"


def _apart(records: list[dict[str, Any]]) -> str:
    """How many labels of the training times differ."""
    apart = [parts for record in records for parts in record.get("differs", {}).values()]
    total = sum(sum(parts.values()) for parts in apart)
    return f"{total} labels of training differ"
