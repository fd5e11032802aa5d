"""Names of metrics, tasks and models as people say them."""

from __future__ import annotations

from typing import Any

from relfrog.console import duration

__all__ = ["METRIC_NAMES", "horizon", "metric_name", "model_name", "regime_words", "task_words"]

METRIC_NAMES = {
    "roc_auc": "ROC-AUC", "average_precision": "average precision", "accuracy": "accuracy",
    "f1": "F1", "mae": "MAE", "rmse": "RMSE", "r2": "R²", "nmae": "NMAE", "macro_f1": "macro F1",
    "map": "MAP", "precision": "precision", "recall": "recall", "mrr": "MRR",
    "roc_auc_macro": "macro ROC-AUC", "average_precision_macro": "macro average precision",
    "f1_macro": "macro F1",
}  # fmt: skip

_MODELS = {
    "frog": "FROG", "sage": "plain GNN", "lightgbm": "LightGBM", "mean": "entity mean",
    "median": "entity median", "global-mean": "constant: mean", "global-median": "constant: median",
    "recent": "mean of recent labels", "popularity": "most popular", "past-visit": "past visits",
    "auto": "auto",
}  # fmt: skip


def metric_name(name: str, k: int | None = None) -> str:
    """A metric as people write it."""
    found = METRIC_NAMES.get(name, name.replace("_", " "))
    return f"{found}@{k}" if k and name in ("map", "precision", "recall", "mrr") else found


def model_name(name: str) -> str:
    """A model as people call it."""
    return _MODELS.get(name, name)


def regime_words(regime: str) -> str:
    """What a regime means."""
    return {
        "rolling": "each prediction sees everything up to its own time",
        "frozen": "the database stops at the split's time for all predictions",
    }[regime]


def horizon(seconds: float) -> str:
    """How far ahead labels look."""
    days = seconds / 86400
    if days >= 1:
        return f"{days:g} day{'' if days == 1 else 's'}"
    return duration(seconds)


def task_words(about: dict[str, Any], database: dict[str, Any] | None) -> str:
    """What is predicted: in the words of whoever made the task, or in ours."""
    task = (database or {}).get("task") or {}
    if task.get("description"):
        return str(task["description"])
    if not task:
        return f"Task {about['task']}"
    ahead = f"over the next {horizon(task['horizon_seconds'])}"
    if about["task_type"] == "recommendation":
        ends = f"{task['target_table']} will belong to a row of {task['entity_table']}"
        return f"Which rows of {ends} {ahead}?"
    return f"What will {task['label']} of a row of {task['entity_table']} be {ahead}?"
