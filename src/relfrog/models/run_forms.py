"""The forms of the JSON files in a run folder; see `relfrog.support.forms`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

__all__ = [
    "BLEND_FORM", "LABELS", "BacktestsFile", "BaselinesFile", "CompleteRun", "Constant",
    "DatabaseFile", "Epoch", "Gate", "Metrics", "RankerFile", "RoleEntry", "RunFile", "TreesFile",
]  # fmt: skip

Meta = msgspec.Meta
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
#: A score is null where there is none, such as the AUC of labels that are all the same.
Scores = dict[str, float | None]


class ByRegime(msgspec.Struct):
    """Scores in both regimes."""

    frozen: Scores
    rolling: Scores


class Metrics(msgspec.Struct):
    """`metrics.json`."""

    val: ByRegime
    test: ByRegime


class BaselinesFile(msgspec.Struct):
    """`baselines.json`."""

    models: dict[str, Metrics]
    seconds: float = 0.0


class RoleEntry(msgspec.Struct):
    """A route in `roles.json`."""

    route: str
    paradigm: str
    u: str
    v: str
    w: str
    gate: Share
    bound: Share = 0.0  # runs saved before there was one


class Gate(msgspec.Struct):
    """What is needed of a route to fix its role."""

    route: str
    gate: Share


class Epoch(msgspec.Struct):
    """A line of `history.jsonl`: an epoch of a network, or a trial of another model."""

    epoch: Count | None = None
    loss: float | None = None
    seconds: float | None = None
    val: Scores | None = None
    best: bool | None = None
    gates: dict[str, Share] | None = None
    trial: Count | None = None
    settings: dict[str, float | str] | None = None
    rounds: list[int] | None = None
    backtests: list[float | None] | None = None


class _Refit(msgspec.Struct):
    before: ByRegime | None = None
    labels: Count | None = None
    epochs: Count | None = None


class _Splits(msgspec.Struct):
    val_timestamp: str
    test_timestamp: str
    train_from: str | None = None


class RunFile(msgspec.Struct):
    """`run.json` while a run is being trained."""

    format: int
    relfrog: str
    status: Literal["training", "complete"]
    dataset: str
    task: str
    task_type: Literal[
        "binary_classification", "multiclass_classification", "multilabel_classification",
        "regression", "recommendation",
    ]  # fmt: skip
    gates: dict[str, Share] | None = None
    schema: str = ""
    versions: dict[str, str] | None = None
    splits: _Splits | None = None


class CompleteRun(RunFile, kw_only=True):
    """`run.json` of a complete run."""

    labels: dict[str, Any]
    weights: Count
    epochs: Count
    best_epoch: Annotated[int, Meta(ge=-1)]
    seconds: Annotated[float, Meta(ge=0)]
    peak_memory_bytes: Count
    postprocessing: bool = False
    refit: _Refit | None = None
    candidates: dict[str, float | None] | None = None


class _Binary(msgspec.Struct):
    positive: Share
    weight: Positive | None = None


class _Multiclass(msgspec.Struct):
    classes: Annotated[list[str | int | float | bool], Meta(min_length=1)]


class _Multilabel(msgspec.Struct):
    labels: Annotated[int, Meta(ge=1, le=1_000_000)]


class _Regression(msgspec.Struct):
    center: float
    scale: Positive
    low: float
    high: float
    std: Annotated[float, Meta(ge=0)]
    loss: Literal["l1", "quantile", "squared", "poisson", "tweedie", "mean", "auto"] = "l1"
    quantile: Share | None = None


class _Recommendation(msgspec.Struct):
    k: Annotated[int, Meta(ge=1, le=1_000_000)]
    parts: str


#: What `labels` of `run.json` holds, by task type.
LABELS = {
    "binary_classification": _Binary, "multiclass_classification": _Multiclass,
    "multilabel_classification": _Multilabel, "regression": _Regression,
    "recommendation": _Recommendation,
}  # fmt: skip


class Constant(msgspec.Struct):
    """`baseline.json`: the prediction without any label, and the number of labels to look at."""

    constant: list[float]
    last: Annotated[int, Meta(ge=1)] | None


class EncodedForm(msgspec.Struct):
    """An `EncodedColumn`."""

    table: str
    column: str
    kind: Literal["number", "moment", "length", "category", "value", "label"]
    center: float
    levels: list[str]
    part: Count


class FeaturesFile(msgspec.Struct):
    """What the features are: the result of `FeatureMaker.to_json`."""

    keys: list[tuple[str, str, str]]
    sizes: dict[str, Count]
    cells: list[EncodedForm]
    history: str
    timed: dict[str, str] | None = None
    tried: bool = False
    dropped: list[str] = []


class TreesFile(msgspec.Struct):
    """`lightgbm.json`.

    Attributes:
        models: The number of models that are averaged.
        parts: The number of boosters of each: one, or one per label.
        files: The checksum of each booster's file.
        features: What the features are; see `FeatureMaker`.
    """

    models: Annotated[int, Meta(ge=1, le=100)]
    parts: Annotated[int, Meta(ge=1, le=1000)]
    files: dict[str, str]
    features: FeaturesFile


class _Comparison(msgspec.Struct):
    gain: float | None
    sure: Share
    won: Count
    folds: Count


class BacktestsFile(msgspec.Struct):
    """`backtests.json`.

    Attributes:
        metric: The metric.
        cuts: When each fold was trained.
        labels: The number of labels that it was scored on.
        first: The metric with the first settings.
        chosen: The metric with the chosen ones.
        models: The number of models that are averaged.
        against_first: How sure it is that the chosen settings are better.
        families: The same for each family of features, beside doing without it.
        dropped: The families that were left out.
        staleness: In the frozen regime, the same for older data of training seeds.
        newer_labels: The same for labels up to the fold, beside those up to the fold before it.
    """

    metric: str
    cuts: list[str]
    labels: list[Count]
    first: list[float | None]
    chosen: list[float | None]
    models: Annotated[int, Meta(ge=1, le=100)]
    against_first: _Comparison
    families: dict[str, _Comparison] = {}
    dropped: list[str] = []
    staleness: _Comparison | None = None
    newer_labels: _Comparison | None = None


class RankerFile(msgspec.Struct):
    """`lightgbm.json` of a ranker: the checksum of its booster's file."""

    files: dict[str, str]


class _Member(msgspec.Struct):
    val: ByRegime | None = None
    test: ByRegime | None = None
    seconds: float | None = None


class _Blend(msgspec.Struct):
    weights: Annotated[dict[str, Share], Meta(min_length=1)]
    members: dict[str, _Member] = {}
    backtests: dict[str, list[float | None]] = {}


#: `blend.json`.
BLEND_FORM = _Blend


class _Parent(msgspec.Struct):
    column: str
    parent: str


class _Table(msgspec.Struct):
    name: str
    rows: Count
    history: bool = False
    primary_key: str | None = None
    time_column: str | None = None
    time_inherited_from: list[_Parent] = []
    first_time: str | None = None
    last_time: str | None = None
    columns: Count | None = None


class _ForeignKey(msgspec.Struct):
    table: str
    column: str
    parent: str
    filled: Share


class _Task(msgspec.Struct):
    entity_table: str
    label: str
    horizon_seconds: Annotated[float, Meta(ge=0)]
    description: str | None = None
    target_table: str | None = None
    completes: bool = False
    k: Count | None = None


class DatabaseFile(msgspec.Struct):
    """`database.json`."""

    name: str
    val_timestamp: str
    test_timestamp: str
    newest: str | None
    task: _Task
    tables: list[_Table]
    foreign_keys: list[_ForeignKey]
    fingerprint: str
