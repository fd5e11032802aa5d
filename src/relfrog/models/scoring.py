"""Score a fitted model on both splits, after fitting what turns its predictions into answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.datasets.metrics import REGIMES
from relfrog.models.model import Model
from relfrog.models.postprocessing.bundle import fit_postprocessing

__all__ = ["finish_and_score"]


def finish_and_score(model: Model) -> dict[str, dict[str, dict[str, float]]]:
    """Fit calibration, thresholds and intervals on validation, then score both splits.

    They are fitted to the model that validation has selected; a refitted model, which has learned
    from validation labels, takes them over. Test labels play no part in it.

    Returns:
        Metrics by split and regime, as in `metrics.json`.
    """
    prepared, selected = model.prepared, model.selected
    seeds = prepared.seeds("val")
    raw = {
        regime: selected.predict_once(seeds, prepared.cutoff("val", regime)) for regime in REGIMES
    }
    found = fit_postprocessing(
        model.kind.name, model.truth(seeds), raw[prepared.config.regime], seeds.rows,
        prepared.config, _floor(model),
    )  # fmt: skip
    model.postprocessing = selected.postprocessing = found
    return {
        "val": {regime: model.metrics(seeds, found.apply(raw[regime])) for regime in REGIMES},
        "test": {regime: model.score("test", regime) for regime in REGIMES},
    }


def _floor(model: Model) -> float | None:
    """0 where no label that may be learned from is negative."""
    if model.kind.name != "regression":
        return None
    train = model.prepared.train_seeds
    known = [model.prepared.seeds("val").labels, None if train is None else train.labels]
    labels: list[NDArray[Any]] = [np.asarray(part, float) for part in known if part is not None]
    return 0.0 if all((part >= 0).all() for part in labels) else None
