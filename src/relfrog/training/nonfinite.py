"""Diagnose a loss that is NaN or infinite: a label, a column, or the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from relfrog.features.table import Features, TableColumns
from relfrog.nn.batch_plan import Plan

__all__ = ["blame"]


def blame(
    network: nn.Module,
    plan: Plan,
    features: Mapping[str, Features],
    columns: Mapping[str, TableColumns],
    targets: Any,
) -> str:
    """The likely cause of a non-finite loss, as text.

    Non-finite labels and columns of the batch come first, then non-finite weights. If all are
    finite, it is the encoded value with the largest magnitude.
    """
    if isinstance(targets, torch.Tensor) and targets.is_floating_point():
        wrong = ~torch.isfinite(targets[plan.batch.seed_ids.to(targets.device)])
        if wrong.any():
            count = int(wrong.reshape(len(wrong), -1).any(1).sum())
            return f"{count:,} of {len(wrong):,} labels of the batch are not finite"
    furthest = (0.0, "")
    for name, rows in plan.batch.tables.items():
        dense = features[name].dense
        if not len(rows.rows) or not dense.shape[1]:
            continue
        values = dense[rows.rows.to(dense.device)]
        names = columns[name].dense_columns
        wrong = ~torch.isfinite(values)
        if wrong.any():
            column = int(wrong.any(0).nonzero()[0])
            count = int(wrong[:, column].sum())
            return f"{name}.{names[column]} is not finite in {count:,} of {len(values):,} rows"
        size = values.abs().amax(0)
        column = int(size.argmax())
        if float(size[column]) > furthest[0]:
            furthest = (float(size[column]), f"{name}.{names[column]}")
    spoiled = [name for name, value in network.named_parameters() if not value.isfinite().all()]
    if spoiled:
        return f"weights had grown beyond all bounds before, first {spoiled[0]}"
    return f"the largest value of the batch is in {furthest[1]}, {furthest[0]:.3g} as encoded"
