"""What was chosen by backtests, and how sure that is."""

from __future__ import annotations

from typing import Any

from relfrog.models.backtest import Comparison
from relfrog.reporting.html import Markup, amount, join, metric_name, sheet, tag
from relfrog.reporting.material import Material

__all__ = ["backtests"]


def backtests(m: Material) -> Markup | None:
    """The scores of the folds, and what was said of families of features; None without folds."""
    found = m.backtests
    lengths = {len(found[part]) for part in ("cuts", "labels", "first", "chosen")} if found else {0}
    if not found or len(lengths) > 1 or len(found["labels"]) < 2:
        return None
    name, count = metric_name(found["metric"]), len(found["labels"])
    against = _comparison(found["against_first"])
    models = f"{found['models']} model{'' if found['models'] == 1 else 's'}"
    rows = [
        [cut[:16], f"{labels:,}", *((amount(v, 4), v or 0.0) for v in (first, chosen))]
        for cut, labels, first, chosen in zip(
            found["cuts"], found["labels"], found["first"], found["chosen"], strict=True
        )
    ]
    parts = [
        tag("p", f"LightGBM's features and settings were chosen by {count} backtests: each time it "
            "learned from the labels known by then, and was scored on those that followed. The "
            f"last is validation. Better with the chosen settings ({models} averaged) than with "
            f"the first: {against.words}."),
        sheet(["trained at", "labels scored", f"{name}, first settings", f"{name}, chosen"], rows,
              numbers=[1, 2, 3], label="Backtests"),
    ]  # fmt: skip
    if found.get("families"):
        gone = set(found.get("dropped", ()))
        families = [
            [family, "left out" if family in gone else "kept", _comparison(known).words]
            for family, known in found["families"].items()
        ]
        parts.append(
            sheet(["family of features", "", "better with it?"], families, label="Families")
        )
    if stale := found.get("staleness"):
        words = _comparison(stale).words
        parts.append(tag("p", f"Better if training seeds have older data, too: {words}."))
    if newer := found.get("newer_labels"):
        words = _comparison(newer).words
        parts.append(tag("p", f"Better with newer labels, as a refit adds: {words}."))
    return join(parts)


def _comparison(found: dict[str, Any]) -> Comparison:
    gain = found["gain"]
    return Comparison(0.0 if gain is None else gain, found["sure"], found["won"], found["folds"])
