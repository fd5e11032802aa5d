"""Heads: what each type of task predicts, in its own unit, and what it is trained on."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from oracles.network_cases import assert_close, normal
from relfrog.datasets.metrics import compute_metrics
from relfrog.kinds import TASK_KINDS
from relfrog.nn import BinaryHead, Head, MulticlassHead, MultilabelHead, RegressionHead
from relfrog.nn.task_heads import HEADS

SIZE = 4
LABELS = {
    "binary_classification": [
        np.array([0, 1, 1, 1]),
        np.array([False, True, True, True]),
        np.array([0.0, 1.0, 1.0, 1.0]),
        np.array([0, 1, 1, 1], dtype=object),
    ],
    "regression": [np.array([10.0, 20.0, 70.0, 30.0]), np.array([10, 20, 70, 30])],
    "multiclass_classification": [np.array(["b", "a", "c", "b"], object), np.array([3, 1, 9, 3])],
    "multilabel_classification": [
        np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 1]]),
        np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 1], None], object)[:4],
    ],
}
CASES = [(kind, number) for kind, some in LABELS.items() for number in range(len(some))]


def build(kind: str, labels: np.ndarray) -> Head:
    """A head from labels that have been through JSON, as in a run folder."""
    about = json.loads(json.dumps(HEADS[kind].describe(labels)))
    return HEADS[kind].build(about, SIZE, 0.0)


def test_every_type_of_task_that_has_a_head_is_tested() -> None:
    assert set(HEADS) == set(TASK_KINDS) == {*LABELS, "recommendation"}
    for kind, head in HEADS.items():
        assert head.kind == kind
        assert TASK_KINDS[kind].higher == (TASK_KINDS[kind].metric != "mae")


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_head_from_its_labels(kind: str, number: int) -> None:
    labels = LABELS[kind][number]
    head = build(kind, labels)
    out = head(normal(4, SIZE).float())
    target = head.targets(labels)
    loss = head.loss(out, target)
    assert loss.shape == ()
    assert loss.isfinite()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    predicted = head.predict(out.detach()).numpy()
    assert len(predicted) == 4
    about = head.describe(labels)
    for name, column in head.columns(about, predicted).items():
        assert isinstance(name, str)
        assert column.shape == (4,)
    # The metric that selects is among those that are computed.
    metrics = compute_metrics(kind, head.truth(about, labels), predicted)
    assert next(iter(metrics)) == TASK_KINDS[kind].metric


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_perfect_output_is_the_label(kind: str, number: int) -> None:
    """Outputs made from the targets predict the labels, and have next to no loss."""
    labels = LABELS[kind][number]
    head = build(kind, labels)
    target = head.targets(labels)
    if kind == "regression":
        out = target.unsqueeze(1)
    elif kind == "multiclass_classification":
        out = 50.0 * nn.functional.one_hot(target, 3).float()
    else:
        out = 50.0 * (2 * target.reshape(4, -1) - 1)
    assert head.loss(out, target) < 1e-6
    about = head.describe(labels)
    found = head.columns(about, head.predict(out).numpy())
    if kind == "regression":
        low, high = np.percentile(labels, [2, 98])
        np.testing.assert_allclose(found["prediction"], np.clip(labels, low, high), rtol=1e-6)
    elif kind == "multilabel_classification":
        rows = np.stack([found[f"probability_{i}"] for i in range(3)], 1)
        np.testing.assert_allclose(rows, np.stack(labels.tolist()), atol=1e-6)
    elif kind == "multiclass_classification":
        assert found["prediction"].tolist() == labels.tolist()
    else:
        np.testing.assert_allclose(found["prediction"], labels.astype(float), atol=1e-6)
    metric, higher = TASK_KINDS[kind].metric, TASK_KINDS[kind].higher
    score = compute_metrics(kind, head.truth(about, labels), head.predict(out).numpy())[metric]
    assert score == 1.0 if higher else score < 1.5


# Binary.


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_fresh_binary_head_is_near_the_share_of_positives(share: float) -> None:
    head = build("binary_classification", np.arange(10) < 10 * share)
    assert isinstance(head, BinaryHead)
    with torch.no_grad():
        head.last.weight.zero_()
        predicted = head.predict(head(normal(3, SIZE).float()))
    assert ((predicted > 0) & (predicted < 1)).all()
    assert_close(predicted, torch.full((3,), share), 2e-4)


def test_binary_loss_by_hand() -> None:
    head = build("binary_classification", np.array([0, 1]))
    out = torch.tensor([[0.3], [-1.2]])
    p = [1 / (1 + math.exp(-x)) for x in (0.3, -1.2)]
    expected = -(math.log(p[0]) + math.log(1 - p[1])) / 2
    assert_close(head.loss(out, torch.tensor([1.0, 0.0])), torch.tensor(expected), 1e-6)
    assert_close(head.predict(out), torch.tensor(p), 1e-6)


# Regression.


def test_regression_is_in_the_labels_unit_and_clamped() -> None:
    labels = np.linspace(1000.0, 3000.0, 201)
    head = build("regression", labels)
    assert isinstance(head, RegressionHead)
    low, high = np.percentile(labels, [2, 98])
    predicted = head.predict(torch.tensor([[0.0], [1e6], [-1e6], [0.5]]))
    assert predicted.dtype == torch.float64
    assert predicted[0] == 2000.0
    assert predicted[1] == high
    assert predicted[2] == low
    assert 2000.0 < predicted[3] < high
    # One step of the output is one spread of the labels, and the loss is an error in spreads.
    scale = float((predicted[3] - predicted[0]) / 0.5)
    assert 0.8 * labels.std() < scale <= labels.std()
    error = head.loss(torch.tensor([[0.0]]), head.targets(np.array([2000.0 + 3 * scale])))
    assert_close(error, torch.tensor(3.0), 1e-5)


@pytest.mark.parametrize(
    "labels", [[5.0], [5.0, 5.0, 5.0], [0.0] * 99 + [1e6], [1e12, 1e12 + 1]], ids=str
)
def test_regression_with_hardly_any_spread(labels: list[float]) -> None:
    head = build("regression", np.array(labels))
    target = head.targets(np.array(labels))
    assert target.isfinite().all()
    predicted = head.predict(target.unsqueeze(1))
    low, high = np.percentile(labels, [2, 98])
    np.testing.assert_allclose(predicted, np.clip(labels, low, high), rtol=1e-6)


# Classes.


def test_a_class_that_was_not_seen_is_never_right() -> None:
    head = build("multiclass_classification", np.array(["b", "a", "b"], object))
    assert isinstance(head, MulticlassHead)
    labels = np.array(["a", "zebra", "b"], object)
    target = head.targets(labels)
    out = torch.tensor([[2.0, 0.0], [5.0, -5.0], [0.0, 2.0]], requires_grad=True)
    # It is left out of the loss ...
    loss = head.loss(out, target)
    assert_close(loss, head.loss(out[[0, 2]], target[[0, 2]]))
    (grad,) = torch.autograd.grad(loss, out)
    assert (grad[1] == 0).all()
    # ... and counts as wrong in the metrics.
    scores = compute_metrics(
        head.kind, head.truth({"classes": head.classes}, labels), head.predict(out.detach()).numpy()
    )
    assert scores["accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("classes", [["x", "y", "z"], [10, 20, 30], [0.5, 1.5, 2.5]])
def test_classes_keep_their_type(classes: list) -> None:
    head = build("multiclass_classification", np.array(classes))
    predicted = head.predict(torch.eye(3) * 9).numpy()
    np.testing.assert_allclose(predicted.sum(1), 1, rtol=1e-6)
    found = head.columns({"classes": classes}, predicted)
    assert found["prediction"].tolist() == classes
    assert found["prediction"].dtype.kind == np.array(classes).dtype.kind
    assert list(found)[1:] == [f"probability_{value}" for value in classes]
    for number, value in enumerate(classes):
        np.testing.assert_array_equal(found[f"probability_{value}"], predicted[:, number])


def test_one_label_among_several() -> None:
    head = build("multilabel_classification", np.array([[0, 1], [1, 1]]))
    assert isinstance(head, MultilabelHead)
    out = torch.tensor([[0.0, 2.0]])
    predicted = head.predict(out)
    assert_close(predicted, out.sigmoid())
    target = head.targets(np.array([[1, 0]]))
    expected = -(math.log(0.5) + math.log(1 - float(predicted[0, 1]))) / 2
    assert_close(head.loss(out, target), torch.tensor(expected), 1e-6)


@pytest.mark.parametrize("kind", LABELS)
def test_nothing_to_predict(kind: str) -> None:
    head = build(kind, LABELS[kind][0])
    predicted = head.predict(head(torch.zeros(0, SIZE)))
    assert len(predicted) == 0
    about = head.describe(LABELS[kind][0])
    for column in head.columns(about, predicted.detach().numpy()).values():
        assert len(column) == 0
