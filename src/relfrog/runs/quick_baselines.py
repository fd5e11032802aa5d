"""Quick baselines that a model's scores are compared with.

`baselines.json` holds their metrics by model, split and regime, and the seconds they took.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relfrog.config import Config
from relfrog.kinds import MODELS, models_for
from relfrog.models.boosting import QuickBoostedTrees
from relfrog.models.model import Model
from relfrog.models.rankers import QuickBoostedRanker
from relfrog.models.scoring import finish_and_score
from relfrog.training.callbacks import Callback, announce
from relfrog.training.opened_task import OpenedTask

__all__ = ["FILE", "score_baselines"]

FILE = "baselines.json"


def score_baselines(
    opened: OpenedTask, config: Config, folder: Path, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Fit and score the baselines that take little time.

    For one label per entity these are means, medians, recent labels, and LightGBM with few seeds
    and a single trial; for a recommendation popularity, past visits, and LightGBM's ranker with few
    pairs. One that fails is left out. A model that is itself a baseline is compared with the
    others, without LightGBM.

    Args:
        opened: the task.
        config: the model's settings; the baselines use its regime, seed and text model.
        folder: the run folder.
        callbacks: notified of each baseline that fails.

    Returns:
        `{"models": {name: {split: {regime: {metric: value}}}}, "seconds": ...}`.
    """
    started = time.monotonic()
    own = Config(
        model="mean", regime=config.regime, seed=config.seed, trials=1, text=config.text,
        text_channels=config.text_channels, calibration=config.calibration,
        threshold=config.threshold, interval=config.interval,
    )  # fmt: skip
    models = {}
    for kind in models_for(opened.kind):
        if not kind.baseline or kind.name == config.model:
            continue
        made: type[Model] = kind.load(opened.kind)
        if kind.learns:
            if MODELS[config.model].baseline:
                continue  # a model that takes seconds is not compared with one that takes minutes
            made = QuickBoostedRanker if made.encoded else QuickBoostedTrees
        try:
            prepared = opened.prepare(replace(own, model=kind.name), encode=made.encoded)
            assert prepared.train_seeds is not None
            model = made(prepared, prepared.describe_labels(prepared.train_seeds))
            model.fit(folder)
            models[kind.name] = finish_and_score(model)
        except Exception as error:  # whatever it is, the run itself is complete
            why = " ".join(str(error).split()) or type(error)
            announce(callbacks, f"baseline {kind.name} left out: {why}")
    return {"models": models, "seconds": round(time.monotonic() - started, 1)}
