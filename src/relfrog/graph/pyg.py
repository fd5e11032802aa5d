"""Convert the graph to PyTorch Geometric's `HeteroData`, as RelBench makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from relfrog.errors import UsageError
from relfrog.support.times import MISSING, PER_SECOND

if TYPE_CHECKING:
    from relbench.base import Database

    from relfrog.graph.relational import RelationalGraph


def to_pyg(
    graph: RelationalGraph,
    db: Database | None,
    col_to_stype: Mapping[str, Mapping[str, Any]] | None,
    text_embedder_cfg: Any,
) -> Any:
    """See `RelationalGraph.to_pyg`."""
    try:
        import torch
        from torch_geometric.data import HeteroData
    except ImportError as error:
        raise UsageError("to_pyg needs PyTorch Geometric: pip install 'relfrog[pyg]'") from error
    if col_to_stype is not None and db is None:
        raise UsageError("to_pyg: features come from the tables. Pass db with col_to_stype.")

    data = HeteroData()
    for table, count in graph.num_rows.items():
        if col_to_stype is None or db is None:
            data[table].num_nodes = count
        else:
            data[table].tf = _tensor_frame(
                db.table_dict[table], col_to_stype, table, text_embedder_cfg
            )
        times = graph.time(table)
        if times is not None:
            # RelBench has the smallest number of nanoseconds, in seconds, for a missing time.
            seconds = np.where(
                times == MISSING,
                MISSING // 1_000_000_000,
                times // PER_SECOND[graph.unit],
            )
            data[table].time = torch.from_numpy(seconds)
    for key in graph.foreign_keys:
        pointers = graph.parent(key)
        child = np.flatnonzero(pointers >= 0)
        parent = pointers[child].astype(np.int64)
        forward = torch.from_numpy(np.stack([child, parent]))
        by_parent = np.argsort(parent, kind="stable")
        backward = torch.from_numpy(np.stack([parent[by_parent], child[by_parent]]))
        data[key.table, f"f2p_{key.column}", key.parent].edge_index = forward
        data[key.parent, f"rev_f2p_{key.column}", key.table].edge_index = backward
    data.validate()
    return data


def _tensor_frame(
    table: Any, col_to_stype: Mapping[str, Mapping[str, Any]], name: str, text_embedder_cfg: Any
) -> Any:
    from torch_frame import stype
    from torch_frame.data import Dataset

    keys = {table.pkey_col, *table.fkey_col_to_pkey_table}
    types = {column: kind for column, kind in col_to_stype[name].items() if column not in keys}
    frame = table.df
    if not types:
        types = {"__const__": stype.numerical}
        frame = pd.DataFrame({"__const__": np.ones(len(frame))})
    dataset = Dataset(frame, types, col_to_text_embedder_cfg=text_embedder_cfg)
    return dataset.materialize().tensor_frame
