"""What settings may be: words to choose from, and ranges of numbers."""

from __future__ import annotations

from collections.abc import Collection

from relfrog.kinds import LOSSES, MODELS

__all__ = ["CHOICES", "RANGES"]

#: Words to choose from.
CHOICES: dict[str, Collection[str]] = {
    "model": MODELS,  # not a copy: more can be registered
    "roles": ("learned", "node", "edge", "random", "fixed"),
    "completion": ("along", "against", "both", "none"),
    "message": ("linear", "pair"),
    "gate_mean": ("matched", "all"),
    "gate_at": ("average", "row"),
    "random_gates": ("binary", "uniform"),
    "activation": ("relu", "none"),
    "head": ("mlp", "linear"),
    "encoder": ("sum", "resnet"),
    "ages_from": ("cutoff", "seed"),
    "strategy": ("uniform", "last", "events"),
    "sharing": ("shared", "separate", "unrolled"),
    "aggregation": ("sum", "mean", "max", "recent"),
    "fd_every": ("step", "epoch"),
    "fd_directions": ("up", "both"),
    "fd_start": ("orthogonal", "normal"),
    "history": ("on", "off", "auto"),
    "refit": ("on", "off", "auto"),
    "regime": ("rolling", "frozen"),
    "optimizer": ("adamw", "adam"),
    "schedule": ("constant", "cosine"),
    "precision": ("float32", "mixed"),
    "ranking": ("both", "sampled", "towers"),
    "features": ("all", "own"),
    "loss": ("auto", *LOSSES),
    "class_weight": ("auto", "none", "balanced"),
    "calibration": ("auto", "none"),
}
#: Smallest and largest value, where there is one.
RANGES: dict[str, tuple[float, float]] = {
    "channels": (4, 4096), "layers": (1, 16), "neighbors": (-1, 1 << 20), "hops": (0, 32),
    "encoder_depth": (0, 16), "bins": (0, 16), "dropout": (0, 0.95), "alpha": (0, 1),
    "column_dropout": (0, 0.95), "encoder_dropout": (0, 0.95),
    "beta": (0, 1e6), "gamma": (0, 1e6), "fd_pairs": (0, 1 << 30), "fd_negatives": (1, 1 << 16),
    "fd_seeds": (0, 1 << 20),
    "fd_tau": (1e-6, 1e6), "staleness": (0, 1e6), "density": (1, 100), "text_channels": (1, 4096),
    "batch_size": (1, 1 << 20), "times_per_batch": (1, 1 << 20), "epochs": (1, 1 << 20),
    "shards": (1, 1 << 16),
    "patience": (1, 1 << 20), "steps_per_epoch": (0, 1 << 30), "lr": (0, 10),
    "val_seeds": (0, 1 << 30),
    "weight_decay": (0, 10), "clip": (0, 1e9), "average": (0, 0.9999), "seed": (0, 1 << 62),
    "interval": (0, 0.99), "networks": (1, 100), "trials": (1, 1000), "minutes": (0.01, 1e6),
    "threads": (1, 1024),
    "quantile": (0.01, 0.99),
}  # fmt: skip
