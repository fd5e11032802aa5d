"""Lists of recommendations: requests in terms of rows, and results as a table with keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from relfrog.datasets.entities import Keys, key_frame, read_entities
from relfrog.graph.popularity import ListRequest, joined_before
from relfrog.support.text import free_name
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["list_table", "requested_lists"]


def requested_lists(
    prepared: Prepared, seeds: Seeds, k: int | None, targets: Keys | None, exclude: bool
) -> ListRequest:
    """Convert the options of `predict` to a `ListRequest`.

    Args:
        prepared: the task and the database.
        seeds: entities and times.
        k: length of the lists; None for that of the task.
        targets: keys of the targets allowed in the lists; None for all.
        exclude: whether to leave out targets that the entity was joined to before.
    """
    task, graph = prepared.task, prepared.graph
    table = task.dst_entity_table
    count = graph.num_rows[table]
    allowed = None
    if targets is not None:
        dataset = prepared.dataset
        primary = dataset.manifest.tables[table].pkey
        chosen = read_entities(dataset.dataset_dir, table, primary, count, targets)
        allowed = np.zeros(count, bool)
        allowed[chosen.rows] = True
    known = None
    if exclude:
        known = joined_before(graph, task.entity_table, table, seeds.rows, seeds.times)
    return ListRequest(min(k or int(task.eval_k), count), allowed, known)


def list_table(
    prepared: Prepared, keys: pd.DataFrame, seeds: Seeds, predicted: Any
) -> pd.DataFrame:
    """Lists as a table: one row per entity and rank.

    Args:
        prepared: the task and the database.
        keys: keys of the entities, one row per seed.
        seeds: entities and times.
        predicted: target rows and scores; a negative row ends a list. Shape [seeds, k, 2].
    """
    table, dataset = prepared.task.dst_entity_table, prepared.dataset
    primary = dataset.manifest.tables[table].pkey
    # Where nobody is asked about there is no list to tell the length of one.
    lists = predicted.reshape(len(seeds), -1 if len(seeds) else 1, 2)
    who, rank = np.nonzero(lists[:, :, 0] >= 0)
    frame = keys.iloc[who].reset_index(drop=True)
    taken = {str(column).lower() for column in frame}
    frame[free_name("time", taken)] = seeds.times[who]
    frame[free_name("rank", taken)] = rank + 1
    found = key_frame(dataset.dataset_dir, table, primary, lists[who, rank, 0].astype(np.int64))
    for column in found:
        # If both keys have the same name, that of the target gets the table as a prefix.
        name = str(column) if str(column).lower() not in taken else f"{table}.{column}"
        frame[free_name(name, taken)] = found[column]
    frame[free_name("score", taken)] = lists[who, rank, 1]
    return frame
