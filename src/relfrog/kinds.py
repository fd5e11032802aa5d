"""The registries of task types and models: names, metrics, and which model supports which type."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from relfrog.errors import UsageError

__all__ = [
    "ENTITY_KINDS", "LOSSES", "MODELS", "TASK_KINDS", "ModelKind", "TaskKind", "ThresholdRule",
    "member_model", "models_for", "parse_threshold", "task_kind",
]  # fmt: skip


@dataclass(frozen=True)
class TaskKind:
    """A task type.

    Attributes:
        name: RelBench's name of it.
        word: its name for `relfrog task --type`.
        metric: the main metric, by which models are selected and compared.
        higher: whether higher values of the metric are better.
        title: the metric as the heading of a table.
        percent: whether tables show the metric times 100.
        ranks: whether a prediction is a ranked list of targets rather than one label. Scores of
            lists have no common scale, so predictions of two models cannot be averaged.
        scalar: whether a prediction is a single number.
        probability: whether predictions are probabilities.
    """

    name: str
    word: str
    metric: str
    higher: bool
    title: str
    percent: bool = True
    ranks: bool = False
    scalar: bool = False
    probability: bool = True

    def better(self, new: float, best: float | None) -> bool:
        """Whether a value of the main metric beats the best so far; NaN never beats a number."""
        if new != new:
            return best is None
        if best is None or best != best:
            return True
        return new > best if self.higher else new < best


#: Task types by RelBench's name.
TASK_KINDS: dict[str, TaskKind] = {
    kind.name: kind
    for kind in (
        TaskKind("binary_classification", "binary", "roc_auc", True,
                 "Binary classification: ROC-AUC in % ↑", scalar=True),
        TaskKind("multiclass_classification", "multiclass", "accuracy", True,
                 "Several classes: accuracy in % ↑"),
        TaskKind(
            "multilabel_classification", "multilabel", "roc_auc_macro", True,
            "Several labels: ROC-AUC in % ↑",
        ),
        TaskKind("regression", "regression", "mae", False,
                 "Regression: mean absolute error ↓", percent=False, scalar=True,
                 probability=False),
        TaskKind("recommendation", "recommendation", "map", True,
                 "Recommendation: MAP in % ↑", ranks=True, probability=False),
    )
}  # fmt: skip
#: The losses of regression: what a prediction estimates, and the metric that selects for it.
LOSSES = {
    "l1": ("median", "mae"),
    "quantile": ("quantile", "pinball"),
    "squared": ("mean", "rmse"),
    "poisson": ("mean", "rmse"),
    "tweedie": ("mean", "rmse"),
    # Whichever of the three above has the best validation score.
    "mean": ("mean", "rmse"),
}
_TITLES = {
    "pinball": "Regression: pinball loss ↓", "rmse": "Regression: root mean squared error ↓",
}  # fmt: skip


def task_kind(name: str, loss: str = "l1") -> TaskKind:
    """A task type; for regression, with the main metric that goes with the loss."""
    kind = TASK_KINDS[name]
    metric = LOSSES[loss][1] if name == "regression" else kind.metric
    return kind if metric == kind.metric else replace(kind, metric=metric, title=_TITLES[metric])


#: The task types with one label per entity.
ENTITY_KINDS = tuple(name for name, kind in TASK_KINDS.items() if not kind.ranks)


@dataclass(frozen=True)
class ModelKind:
    """A model of `relfrog train --model`.

    Attributes:
        name: its name.
        homes: its class for each task type that it supports, or `module:name` to import it lazily.
        network: whether it is a graph network.
        learns: whether it fits parameters to labels, so that it can be refitted with more of them.
        roles: whether it has table roles.
        ensemble: whether it trains other models, and uses the best or a blend.
    """

    name: str
    homes: Mapping[str, str | type[Any]]
    network: bool = False
    learns: bool = False
    roles: bool = False
    ensemble: bool = False

    @property
    def task_kinds(self) -> tuple[str, ...]:
        """The task types that it supports."""
        return tuple(self.homes)

    @property
    def baseline(self) -> bool:
        """Whether it is a baseline: neither a network nor an ensemble."""
        return not self.network and not self.ensemble

    def load(self, kind: str) -> Any:
        """Import its class for a task type."""
        home = self.homes[kind]
        if isinstance(home, type):
            return home
        module, _, name = home.partition(":")
        return getattr(importlib.import_module(module), name)


def _network(name: str, kinds: tuple[str, ...], roles: bool = False) -> ModelKind:
    homes = dict.fromkeys(kinds, "relfrog.models.network_model:NetworkModel")
    return ModelKind(name, homes, network=True, learns=True, roles=roles)


def _past(name: str, home: str, kinds: tuple[str, ...]) -> ModelKind:
    return ModelKind(name, dict.fromkeys(kinds, home))


_LABELS, _RANKERS = "relfrog.models.past_labels", "relfrog.models.rankers"
#: All models, with the task types that they support, in the order of tables.
MODELS: dict[str, ModelKind] = {
    model.name: model
    for model in (
        _network("frog", tuple(TASK_KINDS), roles=True),
        _network("sage", tuple(TASK_KINDS)),
        _network("relgnn", tuple(TASK_KINDS)),
        _network("id-gnn", ("recommendation",)),
        _past("mean", f"{_LABELS}:EntityMean", ENTITY_KINDS),
        _past("median", f"{_LABELS}:EntityMedian", ("regression",)),
        _past("global-mean", f"{_LABELS}:GlobalMean", ENTITY_KINDS),
        _past("global-median", f"{_LABELS}:GlobalMedian", ("regression",)),
        _past("recent", f"{_LABELS}:RecentMean", ENTITY_KINDS),
        ModelKind(
            "lightgbm",
            {
                **dict.fromkeys(ENTITY_KINDS, "relfrog.models.boosting:BoostedTrees"),
                "recommendation": f"{_RANKERS}:BoostedRanker",
            },
            learns=True,
        ),
        _past("popularity", f"{_RANKERS}:PopularityRanker", ("recommendation",)),
        _past("past-visit", f"{_RANKERS}:PastVisitRanker", ("recommendation",)),
        ModelKind(
            "auto", dict.fromkeys(TASK_KINDS, "relfrog.models.auto:AutoModel"), learns=True,
            roles=True, ensemble=True,
        ),
    )
}  # fmt: skip


def member_model(member: str) -> ModelKind:
    """The model of a member of an ensemble: that of `frog-2`, a second network, is `frog`.

    Raises:
        KeyError: There is no such model.
    """
    name, _, number = member.rpartition("-")
    return MODELS[name if number.isdecimal() and name in MODELS else member]


def models_for(kind: str) -> list[ModelKind]:
    """The models that support a task type."""
    return [model for model in MODELS.values() if kind in model.homes]


@dataclass(frozen=True)
class ThresholdRule:
    """How the threshold is chosen.

    Attributes:
        kind: "f1" (the highest F1), "cost" (the lowest cost), "top" (a share of entities), or
            "fixed".
        value: how many false positives a false negative costs, the share, or the threshold.
    """

    kind: str
    value: float = 0.0

    @property
    def words(self) -> str:
        """What the threshold was chosen for, in words."""
        return {
            "f1": "the highest F1 on validation",
            "cost": f"the lowest cost on validation, a miss costing {self.value:g} false alarms",
            "top": f"the highest {100 * self.value:g} % of validation",
            "fixed": "given in the settings",
        }[self.kind]


def parse_threshold(text: str) -> ThresholdRule:
    """Read the setting: `f1`, `cost:5`, `top:10%`, or a number.

    Raises:
        UsageError: It is none of these.
    """
    plain = text.strip().lower()
    if plain == "f1":
        return ThresholdRule("f1")
    found = re.fullmatch(r"(?:(cost|top):)?([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)(%?)", plain)
    if found:
        kind, value = found[1] or "fixed", float(found[2]) / (100 if found[3] else 1)
        if kind == "cost" and not found[3] and 0 < value < 1e9:
            return ThresholdRule(kind, value)
        if kind == "top" and 0 < value < 1:
            return ThresholdRule(kind, value)
        if kind == "fixed" and 0 <= value <= 1:
            return ThresholdRule(kind, value)
    raise UsageError(
        f"threshold must be f1, cost:NUMBER (of false positives that a false negative costs), "
        f"top:SHARE such as top:10%, or a probability (got {text!r})."
    )
