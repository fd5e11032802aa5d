"""Who won: a run's test score with its range, beside the quick baseline that validation prefers.

Baselines are chosen by validation scores, never by test scores: the best of many on test is partly
the luckiest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relfrog.analysis.bootstrap import Scorer, resample

if TYPE_CHECKING:
    from relfrog.runs.run import Run

__all__ = ["verdict"]


def verdict(run: Run) -> list[str]:
    """Sentences for a person: the score with its range, the comparison, and what to do."""
    kind, regime = run.kind, run.config.regime
    metric = kind.metric
    seeds, truth, predicted = run.answers("test")
    scorer = Scorer(kind.name, metric, truth, predicted, run.quantile)
    own = resample(np.asarray(seeds.rows), scorer)
    said = [f"Test {metric} of {run.config.model}, rolling: {own.value:.4f}"]
    if not np.isnan(own.low):
        said[0] += f", 95 % range {own.low:.4f} to {own.high:.4f}"
    said[0] += "."
    scores = run.quick_scores()
    best: str | None = None
    for name, found in scores.items():
        value = found["val"][regime].get(metric)
        leader = None if best is None else scores[best]["val"][regime][metric]
        if value is not None and kind.better(value, leader):
            best = name
    if best is None:
        return said
    theirs = scores[best]["test"]["rolling"].get(metric)
    chosen = float(scores[best]["val"][regime][metric] or 0.0)
    ours = run.metrics["val"][regime][metric]
    members = run.model.members
    if best in members and len(members) == 1:
        by = "by backtests" if best in run.blend.get("backtests", {}) else "on validation"
        said.append(f"The answers are those of {best}, which is best {by}.")
    elif theirs is not None:
        gain = own.value - theirs if kind.higher else theirs - own.value
        noise = np.isnan(own.low) or own.low <= theirs <= own.high
        word = "the same as" if not gain else "better than" if gain > 0 else "worse than"
        doubt = "but the difference may be noise" if noise else "and by more than noise"
        said.append(
            f"That is {word} {best}, the best quick baseline on validation ({theirs:.4f} on test)"
            + (f", {doubt}." if gain else ".")
        )
    # An ensemble is held to the best quick model; calibration can make the last digits differ.
    if kind.better(chosen, ours) and not members:
        said.append(
            f"On validation {best} is better ({chosen:.4f}, against {ours:.4f}): train without "
            "--model, which takes the best by validation."
        )
    return said
