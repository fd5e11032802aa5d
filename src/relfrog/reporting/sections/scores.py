"""The test score with its confidence interval, compared with baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relfrog.analysis.bootstrap import Interval, Scorer, resample
from relfrog.datasets.metrics import REGIMES
from relfrog.models.blend import mean_score
from relfrog.reporting.charts import chart, colour, intervals
from relfrog.reporting.html import (
    BLUE,
    GREY,
    Markup,
    amount,
    figure,
    join,
    metric_name,
    missing,
    model_name,
    note,
    regime_words,
    sheet,
    signed,
    tag,
)
from relfrog.reporting.kind_parts import KIND_PARTS
from relfrog.reporting.material import Material
from relfrog.reporting.sections.constant_baselines import BOOTSTRAP_SAMPLES
from relfrog.support.text import duration

__all__ = ["scores", "verdicts"]


@dataclass(frozen=True)
class Verdict:
    """The model compared with a baseline.

    Attributes:
        name: the name of the baseline.
        value: its score.
        gain: how much better the model is; negative if it is worse.
        real: whether the difference is more than noise; None if unknown.
    """

    name: str
    value: float
    gain: float
    real: bool | None


def own_interval(m: Material) -> Interval | None:
    """The model's test score with its confidence interval over entities."""
    answers = m.answers
    if answers is None:
        return None
    score = Scorer(m.kind, m.metric[0], answers.truth, answers.predicted, m.quantile)
    return resample(np.asarray(answers.seeds.rows), score, times=BOOTSTRAP_SAMPLES)


def verdicts(m: Material, own: Interval | None) -> list[Verdict]:
    """Compare the model with each baseline on test, rolling."""
    metric, higher = m.metric
    ours = own.value if own else m.score("test", "rolling")
    if ours is None:
        return []
    others: list[tuple[str, float, bool | None]] = []
    constant = KIND_PARTS[m.kind].constant(m)
    if constant is not None and not m.blend and not (
        m.baselines and constant.real is None and "global-mean" in m.baselines
    ):  # fmt: skip
        others.append(constant)
    for name, values in (m.baselines or {}).items():
        value = values.get("test", {}).get("rolling", {}).get(metric)
        if value is not None:
            others.append((model_name(name), float(value), None))
    found = []
    for name, value, real in others:
        gain = (ours - value) if higher else (value - ours)
        if real is None and own and not np.isnan(own.low):
            real = not own.low <= value <= own.high
        found.append(Verdict(name, value, gain, real))
    return found


def _statement(m: Material, own: Interval | None, found: list[Verdict]) -> Markup:
    if not found:
        return note("There is nothing to compare the score with.")
    name = metric_name(m.metric[0])
    best = min(found, key=lambda v: v.gain)
    model = model_name(m.run.config.model)
    size = amount(abs(best.gain))
    if best.real is None:
        word = "better" if best.gain > 0 else "worse"
        text = f"{model} is {size} {name} {word} than the best {m.other} ({best.name}); " \
               "without predictions it is unknown whether that is more than noise."  # fmt: skip
        return tag("p", text, class_="verdict")
    score = f"{best.name}, {amount(best.value)}"
    who = f"every {m.other}, the best of them ({score})" if found[1:] else f"{score},"
    if best.gain > 0 and all(v.real for v in found if v.gain > 0):
        kind = "good"
        text = f"{model} beats {who} by {size} {name}. That is more than noise."
    elif best.gain > 0:
        kind = "even"
        text = (
            f"{model} is ahead of {best.name} ({amount(best.value)}) by {size} {name}, but that "
            "may be noise: another sample of entities could reverse it."
        )
    elif best.real:
        kind, first = "bad", best.name[0].upper() + best.name[1:]
        text = (
            f"{first} ({amount(best.value)}) beats {model} by {size} {name}, and that is more than "
            "noise. Test scores are no ground to choose by: train with --model auto, which chooses "
            "by validation, or look below for what went wrong."
        )
    else:
        kind = "even"
        text = (
            f"{model} is no better than {best.name} ({amount(best.value)}): {size} {name} behind, "
            "which may be noise."
        )
    return tag("p", text, class_=f"verdict {kind}")


def _blend_statement(m: Material, found: list[Verdict]) -> Markup:
    """Who answers for `auto`, and the model that validation would have taken otherwise.

    Never the member that happens to be best on test: nobody could have chosen it.
    """
    blend, (metric, higher) = m.blend or {}, m.metric
    regime, shares = str(blend.get("regime", "rolling")), blend.get("weights") or {}
    weights = list(shares)
    by = "by backtests and validation" if blend.get("backtests") else "on validation"
    if len(weights) == 1:
        parts = [f"auto answers with {model_name(weights[0])} alone: it is the best {by}."]
    else:
        names = [f"{model_name(name)} ({shares[name]:.0%})" for name in weights]
        parts = [f"auto averages {', '.join(names)}, the best {by}."]
    on_val = {
        name: known["val"][regime][metric]
        for name, known in (blend.get("members") or {}).items()
        if (known.get("val") or {}).get(regime, {}).get(metric) is not None and weights != [name]
    }
    kind = "even"
    if on_val:
        best = (max if higher else min)(on_val, key=lambda name: float(on_val[name]))
        for one in found:
            if one.name != model_name(best):
                continue
            word = "ahead of" if one.gain > 0 else "behind"
            which = "The next on validation" if len(weights) == 1 else "The best of them"
            text = f"{which}, {one.name}, has {amount(one.value)} on test: auto is "
            text += f"{amount(abs(one.gain))} {metric_name(metric)} {word} it"
            parts.append(text + (", which may be noise." if not one.real else "."))
            kind = "good" if one.real and one.gain > 0 else "bad" if one.real else "even"
    return tag("p", " ".join(parts), class_=f"verdict {kind}")


def scores(m: Material) -> Markup:
    """The section."""
    metric, higher = m.metric
    k = ((m.database or {}).get("task") or {}).get("k")
    name = metric_name(metric, k)
    own = own_interval(m)
    ours = own.value if own else m.score("test", "rolling")
    parts: list[Any] = []
    if ours is None or np.isnan(ours):
        parts.append(missing("There is no test score in the run folder."))
    else:
        span = ""
        if own and not np.isnan(own.low):
            span = f"95 % range {amount(own.low)} to {amount(own.high)}"
        parts.append(
            tag("div",
                tag("div", tag("span", amount(ours), class_="big"),
                    tag("span", name, class_="unit"), class_="score"),
                tag("p", f"on test, rolling: {regime_words('rolling')}. "
                    f"{'More' if higher else 'Less'} is better. {span}", class_="faint"),
                class_="hero")
        )  # fmt: skip
    found = verdicts(m, own)
    if ours is not None and not np.isnan(ours):
        said = _blend_statement(m, found) if m.blend else _statement(m, own, found)
        parts.append(said)
    if m.answers is not None:
        parts.append(KIND_PARTS[m.kind].in_short(m, m.answers))
    if m.blend:
        parts.append(_members(m, name))
    elif m.baselines is None:
        parts.append(missing("No baselines were computed for this run."))
    if found and ours is not None:
        parts.append(_picture(m, own, ours, found, name))
    parts.append(_sheet(m, k))
    if m.run.refitted:
        parts.append(note(
            "Validation scores are those of the selected model. It was then refitted on training "
            "and validation labels; test scores and predictions are those of the refitted model."
        ))  # fmt: skip
    if own and not np.isnan(own.low):
        parts.append(note(
            f"Ranges come from resampling entities {BOOTSTRAP_SAMPLES} times, each with all of its "
            f"labels (a bootstrap). A {m.other} outside the model's range differs by more than "
            "noise. Runs also differ by their random seed, which the range does not show."
        ))  # fmt: skip
    return join(parts)


def _picture(
    m: Material, own: Interval | None, ours: float, found: list[Verdict], name: str
) -> Markup:
    model = model_name(m.run.config.model)
    low, high = (own.low, own.high) if own and not np.isnan(own.low) else (None, None)
    rows = [{"name": model, "value": ours, "low": low, "high": high, "kind": "this run"}]
    rows += [{"name": v.name, "value": v.value, "low": None, "high": None, "kind": m.other}
             for v in found]  # fmt: skip
    rows.sort(key=lambda row: row["value"], reverse=m.metric[1])  # type: ignore[arg-type,return-value]
    words = "; ".join(f"{row['name']} {amount(float(str(row['value'])))}" for row in rows)
    spec = intervals(rows, "value", f"{name} on test, rolling", reference=None)
    spec |= {"width": 440, "height": spec["height"] + 25}  # letters stay legible on a phone
    hue = colour("kind", ["this run", m.other], [BLUE, GREY])
    for layer in spec["layer"]:
        layer["encoding"] = layer["encoding"] | {"color": hue}
        layer["mark"].pop("color", None)
    return figure(
        chart(spec, f"{name} on test. {words}"),
        f"{name} on test beside {m.other}s"
        + (", with the 95 % range over entities." if low is not None else "."),
    )  # fmt: skip


def _members(m: Material, name: str) -> Markup:
    """The members of `auto`: scores on validation and in backtests, weights and times."""
    blend = m.blend or {}
    tested = blend.get("backtests") or {}
    times = max(map(len, tested.values()), default=0)
    weights, regime = blend.get("weights") or {}, str(blend.get("regime", "rolling"))
    rows: list[list[Any]] = []
    for member, known in (blend.get("members") or {}).items():
        value = (known.get("val") or {}).get(regime, {}).get(m.metric[0])
        share = float(weights.get(member, 0.0))
        took = float(known.get("seconds") or 0.0)
        mean = mean_score(tested.get(member))
        cells = [(amount(mean) if mean is not None else "", mean)] if times else []
        rows.append([model_name(member), (amount(value), value), *cells, (f"{share:.0%}", share),
                     (duration(took), took)])  # fmt: skip
    more = [f"mean of {times} backtests"] if times else []
    names = ["member", f"{name} on validation, {regime}", *more, "weight", "time"]
    table = sheet(names, rows, numbers=range(1, len(names)), label="Members", sorts=True)
    left = [f"{model_name(name)} ({reason})" for name, reason in
            (blend.get("skipped") or {}).items()]  # fmt: skip
    parts: list[Any] = [table]
    if left:
        parts.append(note(f"Left out: {'; '.join(left)}"))
    return join(parts)


def _sheet(m: Material, k: int | None) -> Markup | None:
    rows = []
    models: list[tuple[str, dict[str, Any]]] = [(m.run.config.model, m.metrics)]
    models += list((m.baselines or {}).items())
    names: list[str] = []
    for _, scores in models:
        for split in ("test", "val"):
            for regime in REGIMES:
                names += [n for n in scores.get(split, {}).get(regime, {}) if n not in names]
    for number, (model, scores) in enumerate(models):
        for split in ("test", "val"):
            for regime in ("rolling", "frozen"):
                values = scores.get(split, {}).get(regime)
                if values:
                    shown = model_name(model) + ("" if number else " (this run)")
                    cells = [(amount(values.get(n)), values.get(n)) for n in names]
                    rows.append([shown, split, regime, *cells])
    if not rows:
        return None
    table = sheet(["model", "split", "regime", *(metric_name(n, k) for n in names)], rows,
                  numbers=range(3, 3 + len(names)), label="All scores", sorts=True)  # fmt: skip
    return tag("details", tag("summary", "All scores, by split and regime"), table)


def headline(m: Material) -> str:
    """The score in one line, for the terminal."""
    value = m.score("test", "rolling")
    return "" if value is None else f"{metric_name(m.metric[0])} {signed(value).lstrip('+')}"
