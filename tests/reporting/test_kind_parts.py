"""The report's parts by task type: one entry per type, and no other place that knows the types."""

from __future__ import annotations

import re
from pathlib import Path

import relfrog.reporting
from relfrog.kinds import TASK_KINDS
from relfrog.nn.task_heads import HEADS
from relfrog.reporting.kind_parts import KIND_PARTS


def test_every_task_type_is_registered() -> None:
    assert set(KIND_PARTS) == set(TASK_KINDS) == set(HEADS)


def test_only_the_registry_names_task_types() -> None:
    folder = Path(relfrog.reporting.__file__).parent
    names = re.compile("|".join(f'"{name}"' for name in TASK_KINDS))
    found = {path.name for path in folder.rglob("*.py") if names.search(path.read_text("utf-8"))}
    assert found == {"kind_parts.py"}
