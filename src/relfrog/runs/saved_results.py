"""What training wrote into a run folder beside the model: scores, epochs, roles, baselines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from relfrog.datasets.metrics import REGIMES
from relfrog.errors import RunError
from relfrog.nn.roles import role_of
from relfrog.support.files import read_json

__all__ = ["read_baselines", "read_history", "read_metrics", "read_roles", "refit_before"]


def read_roles(folder: Path) -> pd.DataFrame:
    """The learned role of each route.

    Raises:
        RunError: The file is damaged.
    """
    names = ["route", "paradigm", "u", "v", "w", "gate"]
    try:
        found = [[entry[name] for name in names] for entry in _read(folder, "roles.json", list)]
        roles = [role_of(float(entry[-1])) for entry in found]
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(folder, "roles.json", error) from None
    return pd.DataFrame(found, columns=names).assign(role=roles)


def read_history(folder: Path) -> pd.DataFrame:
    """One row per epoch.

    Raises:
        RunError: The file is damaged.
    """
    try:
        lines = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
        return pd.DataFrame([dict(json.loads(line)) for line in lines])
    except (OSError, TypeError, ValueError) as error:
        raise _damaged(folder, "history.jsonl", error) from None


def read_metrics(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Scores by split and regime.

    Raises:
        RunError: The file is damaged.
    """
    found = _read(folder, "metrics.json", dict)
    try:
        return {split: _by_regime(found[split]) for split in ("val", "test")}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(folder, "metrics.json", error) from None


def refit_before(folder: Path, about: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Test scores by regime of what was refitted, before it was.

    Raises:
        RunError: `run.json` is damaged.
    """
    try:
        return _by_regime(about["refit"]["before"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(folder, "run.json", error) from None


def read_baselines(folder: Path) -> dict[str, dict[str, dict[str, dict[str, float | None]]]]:
    """Scores of the quick baselines by name, split and regime; empty if there are none.

    Raises:
        RunError: The file is damaged.
    """
    if not (folder / "baselines.json").is_file():
        return {}
    found = _read(folder, "baselines.json", dict).get("models")
    if not isinstance(found, dict):
        raise _damaged(folder, "baselines.json", "no models")
    return found


def _read(folder: Path, name: str, kind: type) -> Any:
    found = read_json(folder / name)
    if not isinstance(found, kind):
        raise _damaged(folder, name, f"a {type(found).__name__}, not a {kind.__name__}")
    return found


def _damaged(folder: Path, name: str, why: object) -> RunError:
    return RunError(f"{folder / name} is damaged ({why}). Train again.")


def _by_regime(found: Any) -> dict[str, dict[str, float]]:
    """Scores from JSON, NaN where there is none."""
    return {
        regime: {
            name: float("nan") if value is None else float(value)
            for name, value in found[regime].items()
        }
        for regime in REGIMES
    }
