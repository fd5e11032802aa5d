"""Quick baselines beside a model: what its scores are to be compared with.

They are kept in `baselines.json`: per model, split and regime the metrics, and the seconds it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relfrog.config import Config
from relfrog.datasets.metrics import REGIMES
from relfrog.kinds import BASELINES
from relfrog.models.boosting import QuickLightGBM
from relfrog.models.prepared import prepare
from relfrog.models.rankers import QuickLightGBMRanker
from relfrog.models.registry import Baseline, baseline_class

__all__ = ["FILE", "score_baselines"]

FILE = "baselines.json"


def score_baselines(
    dataset: Any, task: Any, config: Config, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Scores of the models that take little time.

    For one label per entity these are means, medians, recent labels, and LightGBM with few seeds
    and a single trial; for a recommendation popularity, past visits, and LightGBM's ranker with few
    pairs. One that fails is left out. Beside a model that is no network stand the others, without
    LightGBM.

    Args:
        dataset: RelBench's dataset.
        task: RelBench's task.
        config: the model's settings; regime and seed hold for the baselines too.
        tell: takes a line for each that fails.

    Returns:
        `{"models": {name: {split: {regime: {metric: value}}}}, "seconds": ...}`.
    """
    started = time.monotonic()
    kind = task.task_type.value
    own = Config(model="mean", regime=config.regime, seed=config.seed, trials=1)
    names = [name for name, kinds in BASELINES.items() if kind in kinds and name != config.model]
    if config.model in BASELINES:  # beside what takes seconds nothing that takes minutes
        names = [name for name in names if name != "lightgbm"]
    ranks = kind == "recommendation"
    quick: type[Baseline] = QuickLightGBMRanker if ranks else QuickLightGBM
    encode = "lightgbm" in names and quick.encoded
    prepared = prepare(dataset, task, own, encode=encode)
    assert prepared.train_seeds is not None
    about = prepared.describe_labels(prepared.train_seeds)
    models = {}
    for name in names:
        chosen = quick if name == "lightgbm" else baseline_class(name, kind)
        try:
            baseline = chosen(replace(prepared, config=replace(own, model=name)), about)
            baseline.fit()
            models[name] = {
                split: {regime: baseline.score(split, regime) for regime in REGIMES}
                for split in ("val", "test")
            }
        except Exception as error:  # whatever it is, the run itself is whole
            tell(f"baseline {name} left out: {' '.join(str(error).split()) or type(error)}")
    return {"models": models, "seconds": round(time.monotonic() - started, 1)}
