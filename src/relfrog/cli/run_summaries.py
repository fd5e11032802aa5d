"""What commands about runs say at their end, as text: train, evaluate, predict, roles, explain."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relfrog.cli.terminal import ROLE_STYLES, table, wrapped
from relfrog.kinds import MODELS
from relfrog.models.blend import mean_score
from relfrog.support.text import number

if TYPE_CHECKING:
    import pandas as pd

    from relfrog.analysis.explanation import Explanation
    from relfrog.runs.population import Population
    from relfrog.runs.run import Run

__all__ = [
    "explanation", "member_note", "population_words", "role_table", "run_summary", "score_table",
]  # fmt: skip


def population_words(found: Population) -> str:
    """Whom predictions are for, and how many others there are."""
    text = f"For {found.words}."
    if found.others:
        text += f" {found.others:,} other{'' if found.others == 1 else 's'} exist: add --all."
    return wrapped(text)


def score_table(metrics: Mapping[str, float]) -> str:
    """Metrics by name."""
    return table(["metric", "value"], [[k, f"{v:.4f}"] for k, v in metrics.items()], right=[1])


def run_summary(run: Run) -> str:
    """A run's scores, with split and regime, what stands beside them, and what to do next."""
    metrics = run.metrics
    names = list(metrics["test"]["rolling"])
    rows = [
        [split, regime, *(f"{metrics[split][regime][name]:.4f}" for name in names)]
        for split in metrics
        for regime in metrics[split]
    ]
    about = run.about
    where = shlex.quote(str(run.folder))
    kind = MODELS[run.config.model]
    epochs = f"{about['epochs']} epochs " if kind.network else ""
    lines = [
        f"{about['task']} on {about['dataset']}, model {run.config.model}, seed "
        f"{run.config.seed}, {epochs}in {about['seconds']:.0f} s",
        "",
        table(["split", "regime", *names], rows, right=list(range(2, 2 + len(names)))),
        "",
    ]
    lines += _decision_words(run)
    if run.refitted:
        text = (
            "Validation scores are those of the model before it learned from validation labels; it "
            f"would have had a test {names[0]} of "
        )
        before = run.metrics_before_refit
        scores = [f"{before[regime][names[0]]:.4f} ({regime})" for regime in before]
        lines += [wrapped(f"{text}{', '.join(scores)}."), ""]
    metric = run.kind.metric
    if kind.ensemble:
        lines += [_member_table(run.blend, metric), ""]
    if run.baselines:
        found = {run.config.model: metrics} | run.baselines
        lines += [f"Beside quick baselines, {metric}:", "", _beside(found, metric), ""]
    from relfrog.analysis.verdict import verdict

    lines += [wrapped(sentence) for sentence in verdict(run)]
    lines.append("")
    lines.append(f"The run is {where}. Try next:")
    if kind.network or run.network_member is not None:
        lines.append(f"  relfrog roles {where}")
    lines.append(f"  relfrog report {where}")
    lines.append(f"  relfrog predict {where} --out predictions.csv")
    return "\n".join(lines)


def _decision_words(run: Run) -> list[str]:
    """From which probability on a decision is yes, and whether that is ever right."""
    thresholds = run.postprocessing.thresholds
    if len(thresholds) != 1:
        return []
    evidence = run.postprocessing.evidence["threshold"]
    why = f"since {evidence['problem']}" if "problem" in evidence else evidence["words"]
    text = f"The decision is yes for probabilities of {thresholds[0]:.3f} or more ({why})."
    if not run.metrics["test"]["rolling"]["f1"]:
        text += (
            " On test none of these decisions is right: F1 is 0. Try another rule: --set "
            "threshold=cost:5, or --set threshold=top:10%."
        )
    return [wrapped(text), ""]


def _beside(models: Mapping[str, Any], metric: str) -> str:
    """One metric of several models, by split and regime."""
    places = [(split, regime) for split in ("val", "test") for regime in ("frozen", "rolling")]
    rows = [
        [name, *(_score(found[split][regime].get(metric)) for split, regime in places)]
        for name, found in models.items()
    ]
    return table(["model", *map(" ".join, places)], rows, right=[1, 2, 3, 4])


def _member_table(blend: Mapping[str, Any], metric: str) -> str:
    """The members of a blend, with scores on validation and in backtests, and weights."""
    regime, tested = blend["regime"], blend.get("backtests") or {}
    times = max(map(len, tested.values()), default=0)
    rows = [
        [
            name,
            _score(found["val"][regime].get(metric)),
            *([_score(mean_score(tested.get(name)))] if times else []),
            f"{blend['weights'][name]:.2f}" if name in blend["weights"] else "",
            f"{found['seconds']:.0f} s",
        ]
        for name, found in blend["members"].items()
    ]
    more = [f"{times} backtests"] if times else []
    rows += [[name, "left out", *("" for _ in more), "", ""] for name in blend["skipped"]]
    names = ["member", f"val {regime} {metric}", *more, "weight", ""]
    return table(names, rows, right=list(range(1, len(names))))


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _effect(value: float) -> str:
    """A difference with its sign; small ones keep a digit that is not 0."""
    return f"{value:+.4f}" if abs(value) >= 5e-4 or not value else f"{value:+.0e}"


def explanation(found: Explanation, most: int = 15) -> str:
    """One prediction: tables with the newest time used, features, the rows that carried most."""
    from relfrog.analysis.explained import MEASURED

    tables = [
        [s.table, number(s.rows), "" if s.newest is None else str(s.newest),
         "" if s.effect is None else _effect(s.effect)]
        for s in found.tables
    ]  # fmt: skip
    rows = [
        [r.table, r.key, "" if r.time is None else str(r.time), _effect(r.effect),
         ", ".join(f"{name} {value}" for name, value in r.cells.items())]
        for r in found.rows[:most]
    ]  # fmt: skip
    said = f"{found.table} {found.key} at {found.time}: {found.answer} {found.prediction:.4f}"
    if found.calibrated is not None:
        said += f", calibrated {found.calibrated:.4f}"
    lines = [said, ""]
    if found.members:
        parts = [f"{m.weight:.2f} x {m.prediction:.4f} ({m.name})" for m in found.members]
        lines += [f"{' + '.join(parts)} = {found.prediction:.4f}", ""]
    lines += [table(["table", "rows seen", "newest time used", "effect"], tables, right=[1, 3]), ""]
    if found.features:
        lines += [_feature_table(found, most), ""]
    if rows:
        lines += [table(["row of", "key", "time", "effect", "values"], rows, right=[3]), ""]
    return "\n".join([*lines, wrapped(f"effect: {MEASURED[found.measured]}")])


def _feature_table(found: Explanation, most: int) -> str:
    """The largest contributions, and the sum of the others."""
    shown, rest = found.features[:most], found.features[most:]
    several = len(found.members) > 1
    rows = [
        [f.feature, "" if f.value is None else number(f.value), number(f.rows), _effect(f.effect),
         f.member]
        for f in shown
    ]  # fmt: skip
    if rest:
        words = f"{len(rest)} other{'' if len(rest) == 1 else 's'}"
        rows.append([words, "", "", _effect(sum(f.effect for f in rest)), ""])
    if found.base is not None:
        rows.append(["base: without any feature", "", "", f"{found.base:.4f}", ""])
    headers = ["feature", "value", "rows", "effect", "member"]
    if not several:
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    return table(headers, rows, right=[1, 2, 3])


def member_note(run: Run) -> str:
    """Whose roles those of a blend are."""
    weight = run.roles_weight
    if weight:
        return f"Roles of the member frog, whose weight in the blend is {weight:.2f}:"
    return "Roles of the member frog. Its weight in the blend is 0: predictions do not use them."


def role_table(frame: pd.DataFrame) -> str:
    """Routes with their gates, the strongest edges first."""
    if not len(frame):
        return "This model has no routes: every table is a node."
    ordered = frame.sort_values("gate", ascending=False, kind="stable")
    rows = [[r.route, r.paradigm, f"{r.gate:.3f}", r.role] for r in ordered.itertuples()]
    return table(["route", "paradigm", "gate", "role"], rows, right=[2], styles={3: ROLE_STYLES})
