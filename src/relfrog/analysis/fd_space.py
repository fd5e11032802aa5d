"""Differences h_parent - h_child of foreign-key pairs in the embedding space of a trained run.

True pairs of a foreign key are compared with mismatched ones, which have the parent of another row.
If the functional dependency is learned, true differences are more similar than mismatched ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import UsageError
from relfrog.support.threads import thread_limit
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    from relfrog.runs.run import Run

__all__ = ["Differences", "differences"]

#: The most batches to use.
BATCHES = 8
#: The most seeds to use.
SEEDS = 512
#: The most true pairs per foreign key for measuring the separation.
MEASURED = 1000


@dataclass(frozen=True)
class Differences:
    """Differences in two dimensions, and how well true and mismatched pairs are separated.

    Attributes:
        points: first two principal components. Shape [n, 2].
        key: the foreign key of each point, as `table.column -> parent`.
        matched: whether the point is a true pair. Shape [n].
        separation: ROC-AUC of true against mismatched pairs per foreign key, by their distance
            from the mean of held-out true pairs: 0.5 is chance, 1 is perfect. NaN with too few
            pairs.
        scored: the same by the score that L_pair learned for the key, Eq. (15); NaN for a run
            trained without L_pair.
        silhouette: silhouette score of the true pairs, clustered by foreign key; NaN with fewer
            than two keys.
        explained: share of the variance explained by the two components.
    """

    points: NDArray[np.float64]
    key: list[str]
    matched: NDArray[np.bool_]
    separation: dict[str, float]
    scored: dict[str, float]
    silhouette: float
    explained: float


def differences(run: Run, *, pairs: int = 500, seed: int = 0) -> Differences:
    """Compute the differences of true and mismatched foreign-key pairs of a run.

    Args:
        run: a trained run whose model is a network, or has one as a member.
        pairs: total number of true pairs among the points, shared evenly between foreign keys.
            Each has a mismatched counterpart, if there is another parent.
        seed: random seed for the choice of pairs.

    Raises:
        RunError: The model is not a network.
        UsageError: `pairs` is less than 1.
    """
    run = run.network_member or run
    run.need_network("no embeddings of rows")
    if pairs < 1:
        raise UsageError(f"pairs must be 1 or more (got {pairs}).")
    rng = np.random.default_rng(seed)
    found = {name: part for name, part in _pairs(run, rng).items() if len(part[0])}
    apart = {name: _apart(*part, rng) for name, part in found.items()}
    separation = {name: _separation(*part) for name, part in apart.items()}
    each = max(1, pairs // max(len(apart), 1))
    shown = {name: (true[:each], wrong[:each]) for name, (true, wrong) in apart.items()}
    everything = [part for both in shown.values() for part in both]
    names = [name for name, both in shown.items() for part in both for _ in part]
    matched = [number == 0 for both in shown.values() for number in (0, 1) for _ in both[number]]
    flags = np.array(matched, bool)
    rows = np.concatenate(everything) if everything else np.empty((0, run.config.channels))
    points, explained = _two_dimensions(rows, flags)
    return Differences(
        points, names, flags, separation, _scored(run, apart),
        _silhouette(rows[flags], [n for n, true in zip(names, flags, strict=True) if true]),
        explained,
    )  # fmt: skip


def _pairs(run: Run, rng: np.random.Generator) -> dict[str, tuple[Any, Any, Any]]:
    """Embeddings of child and parent, and the parent's row, of pairs per foreign key."""
    import torch

    from relfrog.nn.network import dependency_pairs

    # Embeddings as in the training losses: unless `fd_final` is set, each row after as many layers
    # as the seeds need. On other embeddings the learned scorers hardly work.
    prepared = run.prepared
    seeds = _some_seeds(prepared, rng)
    device = torch.device(run.device)
    features = {name: part.to(device) for name, part in prepared.features.items()}
    keys = [key for key in prepared.graph.foreign_keys if key.table != prepared.history]
    parts: dict[str, list[tuple[Any, Any, Any]]] = {str(key): [] for key in keys}
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
    plans = iter(prepared.loader(seeds, every_row=run.config.fd_final)) if len(seeds) else iter(())
    try:
        with torch.no_grad(), thread_limit(run.config.threads):
            for _, plan in zip(range(BATCHES), plans, strict=False):
                plan = plan.to(device)
                output = run.network(plan, features)
                chosen = dependency_pairs(output, plan, keys, MEASURED // 2, generator)
                for key, some in chosen.items():
                    parts[str(key)].append(
                        tuple(part.cpu().numpy() for part in some)  # type: ignore[arg-type]
                    )
    finally:
        if hasattr(plans, "close"):
            plans.close()
    joined = {}
    for name, several in parts.items():
        if several:
            child, parent, row = (np.concatenate(x) for x in zip(*several, strict=True))
            order = rng.permutation(len(row))[:MEASURED]
            joined[name] = child[order].astype(float), parent[order].astype(float), row[order]
    return joined


def _some_seeds(prepared: Prepared, rng: np.random.Generator) -> Seeds:
    """A sample of validation seeds, or of another split if there are none."""
    for split in ("val", "test", "train"):
        seeds = prepared.seeds(split)
        if len(seeds):
            chosen = np.sort(rng.permutation(len(seeds))[:SEEDS])
            return seeds.take(chosen)
    return seeds


def _apart(
    child: NDArray[Any], parent: NDArray[Any], row: NDArray[Any], rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Differences of true pairs, and of mismatched pairs. Shapes [n, c], [m, c]."""
    other = rng.integers(len(row), size=len(row))
    for _ in range(8):  # redraw parents that equal the true one
        same = row[other] == row
        other[same] = rng.integers(len(row), size=int(same.sum()))
    allowed = row[other] != row
    return parent - child, (parent[other] - child)[allowed]


def _separation(true: NDArray[Any], wrong: NDArray[Any]) -> float:
    """ROC-AUC by distance from the mean of held-out true pairs."""
    from sklearn.metrics import roc_auc_score

    half = len(true) // 2
    if half < 2 or not len(wrong):
        return float("nan")
    center = true[:half].mean(0)
    far = [np.linalg.norm(part - center, axis=1) for part in (true[half:], wrong)]
    truth = np.repeat([1, 0], [len(far[0]), len(far[1])])
    return float(roc_auc_score(truth, -np.concatenate(far)))


def _scored(run: Run, apart: dict[str, tuple[NDArray[Any], NDArray[Any]]]) -> dict[str, float]:
    """ROC-AUC by the learned scorers of the run, per foreign key."""
    from sklearn.metrics import roc_auc_score

    from relfrog.training.weights import load_weights

    learned = {k: v.double().numpy() for k, v in load_weights(run.folder, "fd").items()}
    number = {str(key): i for i, key in enumerate(run.prepared.graph.foreign_keys)}
    found = {}
    for name, (true, wrong) in apart.items():
        i = number[name]
        found[name] = float("nan")
        if f"hidden.{i}.weight" in learned and len(true) and len(wrong):
            rows = np.concatenate([true, wrong])
            hidden = rows @ learned[f"hidden.{i}.weight"].T + learned[f"hidden.{i}.bias"]
            score = np.maximum(hidden, 0) @ learned[f"score.{i}.weight"][0]
            truth = np.repeat([1, 0], [len(true), len(wrong)])
            found[name] = float(roc_auc_score(truth, score))
    return found


def _silhouette(rows: NDArray[Any], names: list[str]) -> float:
    from sklearn.metrics import silhouette_score

    if not 2 <= len(set(names)) < len(names):
        return float("nan")
    return float(silhouette_score(rows, names))


def _two_dimensions(
    rows: NDArray[Any], matched: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], float]:
    """Project all pairs on the principal components of the true ones. Shapes [n, c] -> [n, 2]."""
    points = np.zeros((len(rows), 2))
    true = rows[matched]
    if not len(true):
        return points, float("nan")
    center = true.mean(0)
    _, sizes, axes = np.linalg.svd(true - center, full_matrices=False)
    axes = axes[:2]
    # Fix the sign of each component: its largest entry is positive.
    axes = axes * np.sign(np.take_along_axis(axes, abs(axes).argmax(1)[:, None], 1))
    points[:, : len(axes)] = (rows - center) @ axes.T
    total = float((sizes**2).sum())
    return points, float((sizes[:2] ** 2).sum()) / total if total else float("nan")
