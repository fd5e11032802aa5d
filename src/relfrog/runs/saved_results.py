"""What training wrote into a run folder beside the model: scores, epochs, roles, baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from relfrog.datasets.metrics import REGIMES
from relfrog.errors import RunError
from relfrog.models.run_forms import BaselinesFile, Epoch, Metrics, RoleEntry
from relfrog.nn.roles import role_of
from relfrog.support.forms import read_json, read_json_lines

__all__ = ["read_baselines", "read_history", "read_metrics", "read_roles", "refit_before"]


def read_roles(folder: Path) -> pd.DataFrame:
    """The learned role of each route.

    Raises:
        RunError: The file is damaged.
    """
    names = ["route", "paradigm", "u", "v", "w", "gate"]
    entries = read_json(folder / "roles.json", list[RoleEntry])
    found = [[entry[name] for name in names] for entry in entries]
    roles = [role_of(float(entry["gate"]), float(entry.get("bound", 0.0))) for entry in entries]
    return pd.DataFrame(found, columns=names).assign(role=roles)


def read_history(folder: Path) -> pd.DataFrame:
    """One row per epoch.

    Raises:
        RunError: The file is damaged.
    """
    return pd.DataFrame(read_json_lines(folder / "history.jsonl", Epoch))


def read_metrics(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Scores by split and regime.

    Raises:
        RunError: The file is damaged.
    """
    found = read_json(folder / "metrics.json", Metrics)
    return {split: _by_regime(found[split]) for split in ("val", "test")}


def refit_before(folder: Path, about: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Test scores by regime of what was refitted, before it was.

    Raises:
        RunError: `run.json` is damaged.
    """
    before = (about.get("refit") or {}).get("before")
    if before is None:
        path = folder / "run.json"
        raise RunError(f"{path} is damaged (no scores before the refit). Train again.")
    return _by_regime(before)


def read_baselines(folder: Path) -> dict[str, dict[str, dict[str, dict[str, float | None]]]]:
    """Scores of the quick baselines by name, split and regime; empty if there are none.

    Raises:
        RunError: The file is damaged.
    """
    if not (folder / "baselines.json").is_file():
        return {}
    return dict(read_json(folder / "baselines.json", BaselinesFile)["models"])


def _by_regime(found: Any) -> dict[str, dict[str, float]]:
    """Scores from JSON, NaN where there is none."""
    return {
        regime: {
            name: float("nan") if value is None else float(value)
            for name, value in found[regime].items()
        }
        for regime in REGIMES
    }
