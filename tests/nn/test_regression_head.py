"""The losses of regression, and the weight of rare positives."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from relfrog.errors import TaskError
from relfrog.kinds import LOSSES, TASK_KINDS, task_kind
from relfrog.nn import BinaryHead, RegressionHead
from relfrog.nn.regression_head import MEAN_LOSSES, default_loss

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(0.4, 600) * RNG.integers(1, 9, 600)


def constant_fit(head: RegressionHead, labels: np.ndarray) -> float:
    """The constant that minimises the loss, found by gradient descent on a single output."""
    out = torch.zeros(1, 1, requires_grad=True)
    target = head.targets(labels)
    optimizer = torch.optim.Adam([out], lr=0.03)
    for _ in range(1500):
        optimizer.zero_grad()
        head.loss(out.expand(len(target), 1), target).backward()
        optimizer.step()
    return float(head.predict(out.detach())[0])


@pytest.mark.parametrize("loss", MEAN_LOSSES)
def test_these_losses_give_the_mean(loss: str) -> None:
    about = json.loads(json.dumps(RegressionHead.describe(COUNTS, loss=loss)))
    head = RegressionHead.build(about, 8, 0.0)
    assert constant_fit(head, COUNTS) == pytest.approx(COUNTS.mean(), rel=0.02)


def test_l1_gives_the_median_and_pinball_the_quantile() -> None:
    labels = RNG.gamma(2.0, 3.0, 800)
    head = RegressionHead.build(RegressionHead.describe(labels), 8, 0.0)
    assert constant_fit(head, labels) == pytest.approx(np.median(labels), rel=0.03)
    about = RegressionHead.describe(labels, loss="quantile", quantile=0.9)
    found = constant_fit(RegressionHead.build(about, 8, 0.0), labels)
    assert found == pytest.approx(np.quantile(labels, 0.9), rel=0.03)


@pytest.mark.parametrize("loss", ["l1", "quantile", *MEAN_LOSSES])
def test_predictions_stay_within_the_labels(loss: str) -> None:
    head = RegressionHead.build(RegressionHead.describe(COUNTS, loss=loss), 8, 0.0)
    wild = head.predict(torch.tensor([[-1e9], [0.0], [1e9]]))
    assert torch.isfinite(wild).all()
    assert float(wild.min()) >= COUNTS.min()
    assert float(wild.max()) <= COUNTS.max()
    assert torch.isfinite(head.loss(torch.tensor([[-1e9], [1e9]]), torch.tensor([0.0, 3.0])))


@pytest.mark.parametrize("loss", MEAN_LOSSES[1:])
def test_negative_labels_are_refused(loss: str) -> None:
    with pytest.raises(TaskError, match=r"1 of 3 training labels are negative.*loss=squared"):
        RegressionHead.describe(np.array([1.0, -2.0, 3.0]), loss=loss)


def test_counts_and_amounts_are_means_and_other_labels_medians() -> None:
    assert default_loss(COUNTS) == "mean"
    assert default_loss(RNG.lognormal(3, 1.5, 500)) == "mean"
    assert default_loss(RNG.integers(1, 21, 500)) == "l1"  # places in a race
    assert default_loss(RNG.normal(0, 5, 500)) == "l1"
    assert default_loss(np.zeros(0)) == "l1"


def test_each_loss_has_the_metric_that_selects_for_it() -> None:
    for loss, (_, metric) in LOSSES.items():
        assert task_kind("regression", loss).metric == metric
        assert task_kind("binary_classification", loss) is TASK_KINDS["binary_classification"]


def test_a_weight_of_positives_leaves_probabilities_as_they_were() -> None:
    labels = (RNG.random(4000) < 0.01).astype(int)
    about = BinaryHead.describe(labels, class_weight="auto")
    assert about["weight"] == pytest.approx((99) ** 0.5, rel=0.2)
    assert "weight" not in BinaryHead.describe(np.array([0, 1, 1]), class_weight="balanced")
    assert "weight" not in BinaryHead.describe(RNG.integers(0, 2, 99), class_weight="auto")
    head = BinaryHead.build(about, 8, 0.0)
    out = head.last.bias.detach().clone()[None].requires_grad_(True)
    assert float(head.predict(out.detach())[0]) == pytest.approx(labels.mean(), rel=1e-3)
    optimizer = torch.optim.Adam([out], lr=0.03)
    target = head.targets(labels)
    for _ in range(500):
        optimizer.zero_grad()
        head.loss(out.expand(len(target), 1), target).backward()
        optimizer.step()
    assert float(head.predict(out.detach())[0]) == pytest.approx(labels.mean(), rel=0.05)
