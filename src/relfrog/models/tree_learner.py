"""LightGBM for one task: what it minimises, its data, and predictions from its models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import RunError
from relfrog.kinds import TaskKind
from relfrog.models.booster_file import load_lightgbm
from relfrog.models.feature_budget import stop_in_time
from relfrog.training.budget import UNLIMITED, Budget

__all__ = ["TreeLearner", "boosted", "rounds_of"]

Floats = NDArray[np.float32]

#: LightGBM's objectives by the setting `loss`, the first trial's first.
OBJECTIVES = {
    "l1": ("l1", "huber", "regression"), "quantile": ("quantile",), "squared": ("regression",),
    "poisson": ("poisson",), "tweedie": ("tweedie",),
    "mean": ("regression", "poisson", "tweedie"),
}  # fmt: skip
#: Objectives that LightGBM refuses where all labels are zero, as those of a backtest may be.
NEED_SOME = ("poisson", "tweedie")
#: Rounds of a model that has neither labels to stop by nor a number of rounds.
BLIND_ROUNDS = 200


class TreeLearner:
    """Trains models of LightGBM for the labels of a task.

    Args:
        kind: the task type.
        labels: description of the training labels.
        seed: random seed.
    """

    def __init__(self, kind: TaskKind, labels: dict[str, Any], seed: int) -> None:
        self.kind, self.labels = kind, labels
        given: dict[str, Any] = {
            "objective": "binary", "metric": "auc", "verbosity": -1, "bagging_freq": 1,
            "seed": seed, "deterministic": True, "force_col_wise": True,
            # One thread, for reproducibility and to leave the cores to other processes.
            "num_threads": 1, "feature_pre_filter": False,
        }  # fmt: skip
        if kind.name == "regression":
            # Alpha is where Huber's loss becomes linear, or the quantile.
            alpha = labels.get("quantile", 0.5 * float(labels["scale"]))
            metric = {"mae": "l1", "rmse": "rmse", "pinball": "quantile"}[kind.metric]
            given |= {"metric": metric, "alpha": float(alpha)}
        elif kind.name == "multiclass_classification":
            classes = len(labels["classes"])
            given |= {"objective": "multiclass", "metric": "multi_logloss", "num_class": classes}
        elif weight := labels.get("weight"):
            given["scale_pos_weight"] = weight
        self._given = given

    @property
    def objectives(self) -> tuple[str, ...]:
        """LightGBM's names of what may be minimised, for a regression."""
        if self.kind.name != "regression":
            return ()
        loss = str(self.labels.get("loss", "l1"))
        if loss == "mean":
            return OBJECTIVES[loss] if float(self.labels["low"]) >= 0 else OBJECTIVES["squared"]
        return OBJECTIVES[loss]

    def data(
        self, x: Floats, y: NDArray[np.float64], codes: Sequence[int], reference: Any = None
    ) -> Any:
        """LightGBM's form of features and labels, which several models can be trained on.

        Args:
            x: features. Shape [seeds, features].
            y: labels. Shape [seeds].
            codes: indices of the categorical features.
            reference: the data to learn from, if these are to stop by.
        """
        lightgbm = load_lightgbm()
        x, y = self.rows(x, y, stopping=reference is not None)
        if reference is not None:
            return lightgbm.Dataset(x, y, reference=reference, free_raw_data=False)
        return lightgbm.Dataset(
            x, y, categorical_feature=list(codes), params=dict(self._given), free_raw_data=False
        )

    def rows(
        self, x: Floats, y: NDArray[np.float64], *, stopping: bool = False
    ) -> tuple[Floats, NDArray[np.float64]]:
        """Features and labels as LightGBM gets them, to learn from or to stop by."""
        if self.kind.name == "multiclass_classification":
            x, y = x[y >= 0], y[y >= 0]  # classes unseen in training have no index
        if self.kind.name == "regression" and not stopping:
            y = np.clip(y, float(self.labels["low"]), float(self.labels["high"]))
        return x, y

    def settings(
        self, more: dict[str, Any], learned: NDArray[Any], stop: NDArray[Any]
    ) -> dict[str, Any]:
        """LightGBM's parameters, with an objective and a metric that the labels define.

        Args:
            more: the settings of a trial.
            learned: labels to learn from.
            stop: labels to stop by.
        """
        given = self._given | more
        if given["objective"] in NEED_SOME and not learned.any():
            given["objective"] = "regression"
        if given["metric"] == "auc" and len(stop) and len(np.unique(stop)) < 2:
            given["metric"] = "binary_logloss"
        return given

    def train(
        self, settings: dict[str, Any], data: Any, *, stop: Any = None, patience: int = 60,
        rounds: int | None = None, budget: Budget = UNLIMITED,
    ) -> tuple[Any, NDArray[np.float64]]:  # fmt: skip
        """Train a model, with early stopping or for the given rounds.

        Args:
            settings: of LightGBM.
            data: to learn from.
            stop: to stop by; None for none.
            patience: rounds without a better score before it stops.
            rounds: the most rounds.
            budget: time budget.

        Returns:
            The model, and how bad it was on the labels to stop by after each round.
        """
        lightgbm = load_lightgbm()
        labels = np.zeros(0) if stop is None else np.asarray(stop.get_label())
        given = self.settings(settings, np.asarray(data.get_label()), labels)
        if not len(labels):
            return boosted(given, data, rounds or BLIND_ROUNDS, [], []), np.zeros(0)
        seen: dict[str, dict[str, list[float]]] = {}
        callbacks = [
            lightgbm.record_evaluation(seen),
            lightgbm.early_stopping(patience, verbose=False),
            stop_in_time(lightgbm, budget),
        ]
        model = boosted(given, data, rounds or BLIND_ROUNDS, [stop], callbacks)
        curve = np.array(next(iter(next(iter(seen.values())).values())))
        return model, -curve if given["metric"] == "auc" else curve

    def predict(self, models: Sequence[Sequence[Any]], x: Floats) -> NDArray[Any]:
        """The mean prediction of several models, each with a booster per label."""
        if not len(x):
            return np.zeros((0, *self.shape))
        found: Any = 0.0
        for some in models:
            parts = [np.asarray(m.predict(x, num_iteration=m.best_iteration)) for m in some]
            single = self.kind.name != "multilabel_classification"
            found = found + (parts[0] if single else np.stack(parts, 1))
        return self.finish(found / len(models))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one prediction."""
        wide = len(self.labels.get("classes", ())) or int(self.labels.get("labels", 0))
        return (wide,) if wide else ()

    def finish(self, found: NDArray[Any]) -> NDArray[Any]:
        """The prediction from the mean of the models."""
        if weight := self.labels.get("weight"):
            found = found / (found + weight * (1 - found))  # what the weight added to the odds
        if self.kind.name == "regression":
            found = np.clip(found, float(self.labels["low"]), float(self.labels["high"]))
        return np.asarray(found)


def boosted(
    settings: dict[str, Any], data: Any, rounds: int, valid: list[Any], callbacks: list[Any]
) -> Any:
    """Train a LightGBM model.

    Raises:
        RunError: LightGBM raises an error.
    """
    lightgbm = load_lightgbm()
    try:
        return lightgbm.train(settings, data, rounds, valid, callbacks=callbacks)
    except lightgbm.basic.LightGBMError as error:
        raise RunError(f"LightGBM cannot learn from these labels: {error}") from None


def rounds_of(model: Any) -> int:
    """How many rounds a booster has that are used: those up to its best, if it was stopped."""
    best = int(model.best_iteration)
    return best if best > 0 else max(1, int(model.current_iteration()))
