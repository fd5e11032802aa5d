"""The head of regression: a value in the label's unit, under a loss that fits the label.

The loss decides what is estimated. L1 gives medians, which are zero for counts and amounts that are
mostly zero; squared error, Poisson and Tweedie give means; the pinball loss gives a quantile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from relfrog.errors import TaskError
from relfrog.nn.heads import Head, Targets

__all__ = ["MEAN_LOSSES", "RegressionHead", "default_loss"]

#: Losses whose best prediction is the mean, the simplest first; those after the first are for
#: labels that are never negative.
MEAN_LOSSES = ("squared", "poisson", "tweedie")
#: The variance of a Tweedie label grows with this power of its mean: between Poisson and gamma.
POWER = 1.5
#: Outputs of log-linear losses are clamped here before `exp`.
MOST = 20.0


def _poisson(out: Tensor, target: Tensor) -> Tensor:
    out = out.clamp(-MOST, MOST)
    return (out.exp() - target * out).mean()


def _tweedie(out: Tensor, target: Tensor) -> Tensor:
    out = out.clamp(-MOST, MOST)
    low, high = 1 - POWER, 2 - POWER
    return ((high * out).exp() / high - target * (low * out).exp() / low).mean()


#: By the name of the setting `loss`.
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l1": functional.l1_loss, "squared": functional.mse_loss, "poisson": _poisson,
    "tweedie": _tweedie,
}  # fmt: skip


def default_loss(labels: NDArray[Any]) -> str:
    """The loss for labels that may be counts or amounts: their mean, not their median.

    Those are never negative, and often zero, or skewed.
    """
    values = labels.astype(float)
    if not len(values) or values.min() < 0:
        return "l1"
    skewed = float(values.mean()) > 1.5 * float(np.median(values))
    return "mean" if skewed or float(np.mean(values == 0)) > 0.1 else "l1"


class RegressionHead(Head):
    """A value in the label's unit.

    With a log-linear loss (Poisson, Tweedie) the network predicts log(label / centre), with the
    others (label - centre) / scale. Predictions are clamped to the range of the training labels;
    under L1 to their 2nd and 98th percentiles.
    """

    kind = "regression"
    settings: ClassVar[tuple[str, ...]] = ("loss", "quantile")

    def __init__(self, channels: int, about: dict[str, Any], dropout: float = 0.0) -> None:
        super().__init__(channels, 1, dropout)
        self.center, self.scale = float(about["center"]), float(about["scale"])
        self.low, self.high = float(about["low"]), float(about["high"])
        self.name = str(about.get("loss", "l1"))
        self.quantile = float(about.get("quantile", 0.5))

    @property
    def log_linear(self) -> bool:
        """Whether the network predicts on a logarithmic scale."""
        return self.name in ("poisson", "tweedie")

    @classmethod
    def describe(
        cls, labels: NDArray[Any], loss: str = "l1", quantile: float = 0.5
    ) -> dict[str, Any]:
        """Centre, scale and range of predictions, and the standard deviation for NMAE.

        Raises:
            TaskError: The loss is not for negative labels, and there are some.
        """
        values = labels.astype(float)
        low, center, high = np.percentile(values, [2, 50, 98])
        scale = float(np.std(np.clip(values, low, high))) or float(np.std(values)) or 1.0
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        about: dict[str, Any] = {
            "center": float(center), "scale": scale, "low": float(low), "high": float(high),
            "std": spread,
        }  # fmt: skip
        if loss in ("l1", "auto"):
            return about
        about |= {"low": float(values.min()), "high": float(values.max()), "loss": loss}
        if loss == "quantile":
            return about | {"center": float(np.quantile(values, quantile)), "quantile": quantile}
        negative = int((values < 0).sum())
        if loss in MEAN_LOSSES[1:] and negative:
            raise TaskError(
                f"loss {loss} is for counts and amounts, but {negative:,} of {len(values):,} "
                f"training labels are negative, such as {values.min():g}. Take --set loss=squared"
            )
        return about | {"center": float(values.mean()), "scale": float(np.std(values)) or 1.0}

    @classmethod
    def build(
        cls, about: dict[str, Any], channels: int, dropout: float, targets: Targets | None = None
    ) -> RegressionHead:
        """One output, initialised to the centre of the labels."""
        head = cls(channels, about, dropout)
        nn.init.zeros_(head.last.bias)
        return head

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """Labels on the network's scale; as multiples of their mean under a log-linear loss."""
        values = labels.astype(float)
        if self.log_linear:
            return torch.from_numpy((values / (self.center or 1.0)).astype("f4"))
        return torch.from_numpy(((values - self.center) / self.scale).astype("f4"))

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """The loss that the setting names."""
        if self.name == "quantile":
            missed = target - out.squeeze(1)
            return torch.maximum(self.quantile * missed, (self.quantile - 1) * missed).mean()
        return LOSSES[self.name](out.squeeze(1), target)

    def predict(self, out: Tensor) -> Tensor:
        """Values in the label's unit, in double precision."""
        values = out.squeeze(1).double()
        if self.log_linear:
            values = values.clamp(-MOST, MOST).exp() * (self.center or 1.0)
        else:
            values = values * self.scale + self.center
        return values.clamp(self.low, self.high)
