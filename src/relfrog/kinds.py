"""The names of all models, and the types of task that each is for: the one list of them."""

from __future__ import annotations

__all__ = ["BASELINES", "ENTITY_KINDS", "LEARNING", "MODELS", "NETWORKS"]

#: RelBench's names of the types of task with one label per entity.
ENTITY_KINDS = (
    "binary_classification", "multiclass_classification", "multilabel_classification", "regression",
)  # fmt: skip
#: Models that are networks; for every type of task, but for id-gnn, which recommends.
NETWORKS = ("frog", "sage", "relgnn", "id-gnn")
#: Models that are none, with the types of task that each is for.
BASELINES: dict[str, tuple[str, ...]] = {
    "mean": ENTITY_KINDS,
    "median": ("regression",),
    "global-mean": ENTITY_KINDS,
    "global-median": ("regression",),
    "recent": ENTITY_KINDS,
    "lightgbm": (*ENTITY_KINDS, "recommendation"),
    "popularity": ("recommendation",),
    "past-visit": ("recommendation",),
}
#: Models that learn from labels, and can do so once more.
LEARNING = (*NETWORKS, "lightgbm", "auto")
#: Everything that `relfrog train --model` takes; auto trains several of the others.
MODELS = (*NETWORKS, *BASELINES, "auto")
