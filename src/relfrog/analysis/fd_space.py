"""Differences h_parent - h_child of a trained run: do foreign keys leave a mark in the embedding?

Pairs that a foreign key joins are compared with mismatched ones: the same child with a parent of
another row. If the key is learned, the true differences lie closer together than the others.
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

#: Batches that are looked at, at most.
BATCHES = 8
#: Seeds that are looked at, at most.
SEEDS = 512
#: True pairs per foreign key that the separation is measured on, at most.
MEASURED = 1000


@dataclass(frozen=True)
class Differences:
    """Differences in two dimensions, and how well true ones stand apart from mismatched ones.

    Attributes:
        points: first two principal components. Shape [n, 2].
        key: the foreign key of each point, as `table.column -> parent`.
        matched: whether the point is a true pair. Shape [n].
        separation: per foreign key the area under the ROC curve of true against mismatched pairs,
            by their distance from the key's mean, which is that of other pairs: 0.5 for none, 1
            for all. NaN where there are too few pairs.
        scored: the same by the score that the run's own L_pair has learned for the key, Eq. (15);
            NaN for a run that was trained without.
        silhouette: how well the true pairs of different keys stand apart, from -1 to 1; NaN with
            fewer than two keys.
        explained: the share of the variance that two dimensions show.
    """

    points: NDArray[np.float64]
    key: list[str]
    matched: NDArray[np.bool_]
    separation: dict[str, float]
    scored: dict[str, float]
    silhouette: float
    explained: float


def differences(run: Run, *, pairs: int = 500, seed: int = 0) -> Differences:
    """Differences of foreign-key pairs, true and mismatched, by the final rows of a run.

    Args:
        run: a trained run whose model is a network, or has one as a member.
        pairs: true pairs to give points of, in all; shared evenly between the foreign keys. Each
            has a mismatched one beside it, where there is another parent.
        seed: of the choice of pairs.

    Raises:
        UsageError: The model of the run has no rows.
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
    """Per foreign key of the database: child, parent and parent's row of some pairs."""
    import torch

    from relfrog.nn.network import dependency_pairs

    # Rows as the losses of the run saw them: unless `fd_final` is set, each after as many layers as
    # the seeds need of it. Seen otherwise, what the scorers have learned is mostly lost.
    prepared = run.prepared
    seeds = _some_seeds(prepared, rng)
    device = torch.device(run.device)
    features = {name: part.to(device) for name, part in prepared.features.items()}
    keys = [key for key in prepared.graph.foreign_keys if key.table != prepared.history]
    parts: dict[str, list[tuple[Any, Any, Any]]] = {str(key): [] for key in keys}
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
    plans = iter(prepared.loader(seeds)) if len(seeds) else iter(())
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
    """Validation seeds, where there are any; others where not."""
    for split in ("val", "test", "train"):
        seeds = prepared.seeds(split)
        if len(seeds):
            chosen = np.sort(rng.permutation(len(seeds))[:SEEDS])
            return Seeds(seeds.rows[chosen], seeds.times.iloc[chosen].reset_index(drop=True))
    return seeds


def _apart(
    child: NDArray[Any], parent: NDArray[Any], row: NDArray[Any], rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """True differences, and those with a parent that is another row. Shapes [n, c], [m, c]."""
    other = rng.integers(len(row), size=len(row))
    for _ in range(8):  # a parent that many rows share is drawn again
        same = row[other] == row
        other[same] = rng.integers(len(row), size=int(same.sum()))
    allowed = row[other] != row
    return parent - child, (parent[other] - child)[allowed]


def _separation(true: NDArray[Any], wrong: NDArray[Any]) -> float:
    """Area under the ROC curve by distance from the mean of pairs that are not scored."""
    from sklearn.metrics import roc_auc_score

    half = len(true) // 2
    if half < 2 or not len(wrong):
        return float("nan")
    center = true[:half].mean(0)
    far = [np.linalg.norm(part - center, axis=1) for part in (true[half:], wrong)]
    truth = np.repeat([1, 0], [len(far[0]), len(far[1])])
    return float(roc_auc_score(truth, -np.concatenate(far)))


def _scored(run: Run, apart: dict[str, tuple[NDArray[Any], NDArray[Any]]]) -> dict[str, float]:
    """Area under the ROC curve by the scorers of the run."""
    from sklearn.metrics import roc_auc_score

    from relfrog.support.files import load_tensors

    tensors = load_tensors(run.folder / "model.safetensors")
    learned = {k[3:]: v.double().numpy() for k, v in tensors.items() if k.startswith("fd.")}
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
    """Principal components of the true pairs, with all pairs in them. Shapes [n, c] -> [n, 2]."""
    points = np.zeros((len(rows), 2))
    true = rows[matched]
    if not len(true):
        return points, float("nan")
    center = true.mean(0)
    _, sizes, axes = np.linalg.svd(true - center, full_matrices=False)
    axes = axes[:2]
    # A component has no sign of its own: its largest part is positive.
    axes = axes * np.sign(np.take_along_axis(axes, abs(axes).argmax(1)[:, None], 1))
    points[:, : len(axes)] = (rows - center) @ axes.T
    total = float((sizes**2).sum())
    return points, float((sizes[:2] ** 2).sum()) / total if total else float("nan")
