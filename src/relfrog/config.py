"""Settings of a run: default < preset < file < flag; what came out is saved with the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import resources
from typing import Any

import msgspec
import yaml

from relfrog.errors import UsageError, unknown
from relfrog.kinds import MODELS, TASK_KINDS, models_for, parse_threshold
from relfrog.setting_values import CHOICES, RANGES
from relfrog.support.files import user_path
from relfrog.support.forms import read_yaml

__all__ = ["SIZES", "Config", "default_settings", "parse_settings", "presets",
           "read_preset", "resolve"]  # fmt: skip

#: Training steps at least, and those without a better validation metric before training stops.
FEWEST_STEPS, PATIENT_STEPS = 800, 200
#: The one dial: channels.
SIZES = {"small": 32, "medium": 64, "large": 128}
#: Types in words.
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True, repr=False)
class Config:
    """All settings that determine what a run learns.

    Attributes:
        model: "frog", or "sage" for the plain relational GNN: all tables are nodes, no gates, no
            functional dependencies. "relgnn" is "sage" with attention along atomic routes, which
            cross a table with several foreign keys in one step. "id-gnn" is "sage" with
            `ranking` "sampled", for recommendations. Without a network: "mean", "median",
            "global-mean", "global-median", "recent" and "lightgbm"; for recommendations
            "popularity", "past-visit" and "lightgbm". "auto" trains several and uses the best or
            a blend.
        roles: "learned", "node", "edge", "random", or "fixed" with gates from a file.
        completion: direction in which completion routes send: "along", "against", "both" or
            "none".
        message: messages of co-occurrence routes: "linear", Eq. (10), or "pair", which is not
            linear in the pair (u, v): one layer of it hears what both have to do with each other.
        gate_norm: whether both messages are normalised before the gate.
        gate_mean: rows over which gates are averaged: "matched" (those with a match) or "all".
        gate_at: gates of predictions: the "average" of a route, or those of each "row", as in
            training; with `alpha` 0 these are not mixed with the average.
        random_gates: gates of `roles` "random": "binary" (0 or 1) or "uniform" (between them).
        edge_bias: whether messages along routes have a bias, which rows without a match have, too.
        channels: size of all embeddings.
        layers: number of message-passing layers.
        neighbors: children per row and foreign key at the first hop; halved at each further hop.
        hops: hops to sample; 0 for one per layer, plus one if there are routes, which span two.
        strategy: which children to sample where there are more: "uniform", "last" (the latest
            rows) or "events" (the latest rows of the latest events; rows with the same parent and
            time, such as those of a basket, are one event).
        sharing: whether seeds with the same time share a subgraph in training and scores: "shared"
            or "separate"; "unrolled" to train on the past that predictions are made from, in
            which a row occurs at every hop at which it is reached, so that sharing changes nothing.
        aggregation: "sum", "mean", "max" or "recent", a mean that weights recent rows more. Not
            used by "relgnn", which has attention.
        activation: after the LayerNorm of a layer: "relu" or "none".
        head: "mlp", two layers, or "linear", one.
        encoder: row encoders: "sum" (the vectors of columns are summed) or "resnet" (they are
            concatenated, as in RelBench's models; without `bins` and `column_dropout`).
        encoder_depth: residual blocks in the row encoders.
        encoder_dropout: dropout in "resnet" row encoders.
        bins: bins per number in "sum" row encoders.
        column_dropout: share of columns hidden during training from "sum" row encoders.
        dropout: dropout in layers and head.
        ages_from: where ages of rows are measured from, if the database ends before the seed's
            time: its end ("cutoff") or the time of the "seed".
        seed_context: whether rows of the entity table hold the season and how old the data are.
        alpha: momentum of the average gate: the higher, the slower it moves.
        beta: weight of L_emb.
        gamma: weight of L_pair.
        fd_every: "step" or "epoch": how often the regulariser's own weights are trained.
        fd_training: with `fd_every` "epoch", whether the network is in training mode meanwhile:
            dropout is on, and gates move.
        fd_pairs: pairs per foreign key and batch used by the losses; 0 for all.
        fd_negatives: mismatched parents per pair.
        fd_false_negatives: whether a mismatched parent may be the true one by chance.
        fd_directions: "up" (from child to parent), or "both", each with weights of its own.
        fd_start: initial subspaces and shifts of L_emb: "orthogonal" and zero, or "normal": drawn
            from a normal distribution of scale 1, which makes L_emb a thousand times larger.
        fd_tau: temperature of L_pair.
        fd_orthonormal: whether the subspaces of L_emb have orthonormal bases.
        fd_final: whether every row passes through all layers before the losses use it.
        fd_seeds: with `fd_final`, seeds of a batch whose rows the losses use; 0 for all. The losses
            are means, so that fewer rows make them cheap and noisy, not different.
        history: whether the label history joins the database: "on", "off" or "auto" (by
            validation).
        density: training seeds per window of the task; above 1, seed times are added between
            those of the task, with labels from its SQL.
        staleness: how long before a training seed the database may stop, at most, in windows of
            the task; 0 for never.
        regime: regime of the validation scores used for selection: "rolling" or "frozen".
        text: the text model: "ngrams", "glove" (needs `relfrog[glove]`), or
            "sentence-transformers:" and a name.
        text_channels: size of text embeddings.
        batch_size: seeds per step.
        shards: pieces that a batch is computed in, each on its own, so that workers can share them.
            The number of workers changes nothing, but the number of shards does: seeds share a
            subgraph, and mismatched parents and targets are drawn, within a piece; all gates of a
            step see the same average. 1, a whole batch, unless workers are asked for: then one for
            every 256 seeds of `batch_size`, and 2 at least.
        times_per_batch: approximate number of different times in a batch.
        epochs: maximum number of epochs.
        patience: epochs without a better validation metric before training stops.
        steps_per_epoch: maximum number of steps before validation; 0 for all seeds.
        val_seeds: the most seeds that validation after an epoch looks at, drawn at random, the
            same every time; 0 for all. Scores of the finished run are of all seeds.
        lr: learning rate.
        optimizer: "adamw", or "adam", in which weight decay is part of the gradient (L2).
        schedule: learning-rate schedule: "constant" or "cosine".
        weight_decay: weight decay.
        clip: maximum norm of the gradient; 0 for no limit.
        average: decay of the moving average of the weights, which is evaluated and saved; 0 for
            the weights themselves.
        refit: whether to retrain the chosen model on training and validation labels together, for
            as many epochs as were best: "on", "off", or "auto", if LightGBM's backtests say that
            newer labels help; a network alone has no backtests, and "auto" is "off". Validation
            scores stay those of the chosen model; test scores and predictions are those of the
            refit one.
        loss: of regression. "l1" predicts medians and "quantile" the `quantile`; "squared",
            "poisson" and "tweedie" predict means, and "mean" takes the one of these three with the
            best validation score. "auto" is "mean" for counts and amounts (never negative, often
            zero, skewed) in tasks added with RelFrog, and "l1", as in RelBench, for all others.
            Models are selected by the metric of the loss: MAE, pinball loss or RMSE.
        quantile: the quantile to predict with `loss` "quantile".
        class_weight: weight of positives in binary classification: "none", "balanced" (as much as
            all negatives together), or "auto" (in between, where positives are rare). What it adds
            to probabilities is taken off again.
        ranking: how targets of a recommendation are scored: "sampled" (those in the seed's
            subgraph, as in the paper), "towers" (all, by the dot product of two vectors), or
            "both".
        features: features for LightGBM: "all" (the entity's columns, its parents, aggregates of
            its and their children, earlier labels), or "own" (the entity's columns only).
        trials: LightGBM settings tried by backtests.
        distributed: whether LightGBM learns on all nodes of a cluster, each from its share of the
            rows, instead of on one machine. For data that one machine cannot hold: trees differ a
            little, as each node finds the bins of some features in its own rows.
        networks: networks of "auto", which answer with their mean: after the first, others from
            other seeds are trained while there is time for one more that takes as long. None,
            if the first has no weight in the blend.
        minutes: time budget of "auto", from the reading of the data to the report. A tenth, on a
            busy machine up to a quarter, is kept for scores and the report: no member starts after
            that; LightGBM uses half of the time left when it starts; the network stops early
            enough to be scored in time, and is refit only if there is time for that as well.
        calibration: whether probabilities are calibrated on validation: "auto" (where that helps
            on labels it was not fitted to) or "none".
        threshold: from which probability on a decision is yes: "f1" (the highest F1 on
            validation), "cost:5" (the lowest cost, if a false negative costs 5 false positives),
            "top:10%" (as many as the highest 10 % of validation), or a number such as 0.5.
        interval: share of labels that the interval around a predicted number is to contain; 0 for
            no interval.
        precision: "float32", or "mixed" for bfloat16 where the device supports it.
        threads: threads that a network computes on. The same number gives the same weights on any
            number of cores; another changes the last digits. More than 1 may be faster for large
            networks, and is no faster for small ones: batches are sampled in other threads.
        seed: random seed.
    """

    model: str = "frog"
    roles: str = "learned"
    completion: str = "along"
    message: str = "linear"
    gate_norm: bool = False
    gate_mean: str = "matched"
    gate_at: str = "average"
    random_gates: str = "binary"
    edge_bias: bool = False
    channels: int = 64
    layers: int = 2
    neighbors: int = 16
    hops: int = 0
    strategy: str = "events"
    sharing: str = "shared"
    aggregation: str = "recent"
    activation: str = "relu"
    head: str = "mlp"
    encoder: str = "sum"
    encoder_depth: int = 1
    encoder_dropout: float = 0.0
    bins: int = 8
    column_dropout: float = 0.3
    dropout: float = 0.2
    ages_from: str = "cutoff"
    seed_context: bool = True
    alpha: float = 0.99
    beta: float = 1e-6
    gamma: float = 0.01
    fd_every: str = "step"
    fd_training: bool = False
    fd_pairs: int = 256
    fd_negatives: int = 8
    fd_false_negatives: bool = False
    fd_directions: str = "up"
    fd_start: str = "orthogonal"
    fd_tau: float = 0.1
    fd_orthonormal: bool = False
    fd_final: bool = False
    fd_seeds: int = 0
    history: str = "on"
    density: int = 1
    staleness: float = 0.0
    regime: str = "rolling"
    text: str = "ngrams"
    text_channels: int = 32
    batch_size: int = 512
    shards: int = 1
    times_per_batch: int = 8
    epochs: int = 12
    patience: int = 5
    steps_per_epoch: int = 0
    val_seeds: int = 0
    lr: float = 0.001
    optimizer: str = "adamw"
    schedule: str = "constant"
    weight_decay: float = 0.1
    clip: float = 1.0
    average: float = 0.99
    refit: str = "auto"
    loss: str = "auto"
    quantile: float = 0.5
    class_weight: str = "auto"
    ranking: str = "both"
    features: str = "all"
    trials: int = 12
    distributed: bool = False
    networks: int = 3
    minutes: float = 30.0
    calibration: str = "auto"
    threshold: str = "f1"
    interval: float = 0.8
    precision: str = "float32"
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            _convert(entry.name, value, strict=True)
            if entry.name in CHOICES and value not in CHOICES[entry.name]:
                raise UsageError(
                    f"{entry.name} must be {', '.join(CHOICES[entry.name])} (got {value!r})."
                )
            if entry.name in RANGES:
                low, high = RANGES[entry.name]
                if not low <= value <= high:
                    raise UsageError(f"{entry.name} must be from {low} to {high} (got {value}).")
        parse_threshold(self.threshold)

    def __repr__(self) -> str:
        """Only what differs from the defaults: that is what one looks for."""
        given = [
            f"{entry.name}={getattr(self, entry.name)!r}"
            for entry in fields(self)
            if getattr(self, entry.name) != entry.default
        ]
        return f"Config({', '.join(given)})"

    def to_yaml(self) -> str:
        """All settings, as they are saved with a run."""
        return yaml.safe_dump(asdict(self), sort_keys=False)


#: The type of each setting.
KINDS = {entry.name: type(entry.default) for entry in fields(Config)}


def parse_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in the types that they have, from text or from YAML.

    Raises:
        UsageError: There is no such setting, or the value is not of its type.
    """
    for name in given:
        if name not in KINDS:
            raise UsageError(str(unknown("setting", str(name), list(KINDS))))
    return {name: _convert(name, value) for name, value in given.items()}


def _convert(name: str, value: Any, *, strict: bool = False) -> Any:
    """A value in the type of its setting; unless strict, from text too, and from YAML's words."""
    kind = KINDS[name]
    plain = value.item() if hasattr(value, "item") else value  # a number of NumPy's
    if not strict and kind is bool:
        plain = {"yes": True, "on": True, "no": False, "off": False}.get(str(plain).lower(), plain)
    elif not strict and kind is str and isinstance(plain, bool):  # a bare on or off in YAML
        plain = "on" if plain else "off"
    elif not strict and "on" in CHOICES.get(name, ()):
        words = {"yes": "on", "true": "on", "1": "on", "no": "off", "false": "off", "0": "off"}
        plain = words.get(str(plain).lower(), str(plain).lower())
    elif not strict and kind is str and isinstance(plain, int | float):  # a bare number in YAML
        plain = str(plain)
    try:
        return msgspec.convert(plain, kind, strict=strict)
    except msgspec.ValidationError:
        raise UsageError(f"{name} must be {WORDS[kind]} (got {value!r}).") from None


def presets() -> list[str]:
    """The names of the presets."""
    folder = resources.files("relfrog") / "presets"
    return sorted(
        f"{group.name}/{entry.name.removesuffix('.yaml')}"
        for group in folder.iterdir()
        if group.is_dir()
        for entry in group.iterdir()
        if entry.name.endswith(".yaml")
    )


def read_preset(name: str) -> dict[str, Any]:
    """The settings of a preset, by its name, or of a YAML file.

    Raises:
        UsageError: There is neither, or it holds something else than settings.
    """
    if name in presets():
        path = resources.files("relfrog") / "presets" / f"{name}.yaml"
    elif name.endswith((".yaml", ".yml")):
        path = user_path(name)
    else:
        raise UsageError(str(unknown("preset", name, presets())))
    settings = read_yaml(path, name, UsageError) or {}
    if not isinstance(settings, dict):
        raise UsageError(f"{name} must hold settings, one per line: lr: 0.001")
    return parse_settings(settings)


def _listed(kinds: Sequence[str]) -> str:
    """Types of task in words."""
    words = {"recommendation": "recommendations"}
    return ", ".join(words.get(kind, kind.replace("_", " ")) for kind in kinds)


def default_settings(seeds: int, size: str = "medium", kind: str = "") -> dict[str, Any]:
    """Settings that follow from the data: how many training seeds there are, of what task."""
    if size not in SIZES:
        raise UsageError(str(unknown("size", size, list(SIZES))))
    batch = 64
    while batch < 512 and batch * 40 < seeds:
        batch *= 2
    # Validation after so many steps at the latest: large data are never run through in vain.
    longest = 100
    # A thousand labels are a few steps: an epoch of them teaches little, and shows little.
    steps = min(-(-seeds // batch) or 1, longest)
    chosen = {
        "model": "auto", "channels": SIZES[size], "batch_size": batch, "steps_per_epoch": longest,
        # Choosing an epoch must not cost more than training it.
        "val_seeds": 20_000,
        "epochs": min(max(Config.epochs, -(-FEWEST_STEPS // steps)), 100),
        "patience": min(max(Config.patience, -(-PATIENT_STEPS // steps)), 25),
    }  # fmt: skip
    if kind and TASK_KINDS[kind].ranks:
        # A seed has a subgraph of its own, which should hold many targets: two hops, but wide.
        own = {"batch_size": min(batch, 256), "sharing": "separate", "neighbors": 64, "hops": 2,
               "val_seeds": 10_000}  # fmt: skip
        # The smaller weight of L_pair was chosen on tasks with one label per entity.
        return chosen | own | {"gamma": 0.1}
    return chosen


def resolve(
    seeds: int,
    *,
    size: str = "medium",
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    kind: str = "",
) -> Config:
    """The settings of a run: those that follow from the data < preset < given one by one."""
    chosen = default_settings(seeds, size, kind)
    if preset is not None:
        chosen |= read_preset(preset)
    chosen |= parse_settings(settings or {})
    entry = MODELS.get(str(chosen.get("model", Config.model)))
    if kind and entry is not None and kind not in entry.task_kinds:
        suited = [model.name for model in models_for(kind) if not model.ensemble]
        raise UsageError(
            f"model {entry.name} is for {_listed(entry.task_kinds)}; this is {_listed([kind])}. "
            f"Take {', '.join(suited)} or auto."
        )
    roles, model = chosen.get("roles", Config.roles), chosen.get("model", Config.model)
    nodes = roles == "node" and model in ("sage", "id-gnn")  # which they are
    if roles != Config.roles and not (entry and entry.roles) and not nodes:
        raise UsageError(f"model {model} has no roles: leave roles={roles} out, or take frog.")
    if chosen.get("model") == "id-gnn":
        if settings and "ranking" in settings and chosen["ranking"] != "sampled":
            raise UsageError("id-gnn scores what is sampled: ranking must be sampled. Take sage.")
        chosen["ranking"] = "sampled"
    if chosen.get("refit") == "on" and entry is not None and not entry.learns:
        raise UsageError(
            f"model {model} knows all earlier labels as it is: leave refit out, or take one of "
            f"{', '.join(one.name for one in MODELS.values() if one.learns)}."
        )
    ranks = bool(kind) and TASK_KINDS[kind].ranks
    if ranks and chosen.get("features") == "own":
        raise UsageError(
            "features=own is for one label per entity; for a recommendation leave it out."
        )
    if ranks and chosen.get("sharing") != "separate":
        raise UsageError("a recommendation marks its seed: sharing must be separate. Leave it out.")
    return Config(**chosen)
