"""The rows that a prediction depends on: their number per table, and the newest time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.graph.relational import RelationalGraph
from relfrog.nn.batch_plan import Plan
from relfrog.support.times import MISSING

__all__ = ["rows_behind", "rows_visible"]

#: Seeds processed at once.
TOGETHER = 64


def rows_behind(
    graph: RelationalGraph, plan: Plan, target_table: str | None = None
) -> pd.DataFrame:
    """Count, for each seed of a batch and each table, the rows that its embedding depends on.

    Follows the links of each layer backwards from the seed: a row counts if a change of it could
    reach the seed. A seed that is not visible itself is not read and does not count.

    Args:
        graph: the graph.
        plan: the batch and its links.
        target_table: the target table of a recommendation, whose sampled rows are scored as well.

    Returns:
        seed (its index in the loader's list), table, rows, newest (`times.MISSING` if no row has a
        time); without entries of 0 rows.
    """
    from scipy import sparse

    batch = plan.batch
    links = []
    for layer in reversed(plan.layers):
        found = [(key.parent, key.table, some) for key, some in layer.up.items()]
        found += [(key.table, key.parent, some) for key, some in layer.down.items()]
        for route, both in layer.routes.items():
            u, v, w = route.tables
            found += [(w, u, both.u), (w, v, both.v)]
        matrices: dict[tuple[str, str], Any] = {}
        for target, source, some in found:
            content = (np.ones(len(some), bool), some.source.numpy(), some.begin.numpy())
            shape = (len(batch.tables[target]), len(batch.tables[source]))
            begin = np.full(shape[0] + 1, len(some), np.int64)
            begin[: len(content[2])] = content[2]
            matrix = sparse.csr_matrix((content[0], content[1], begin), shape=shape)
            pair = (target, source)
            matrices[pair] = matrices[pair] + matrix if pair in matrices else matrix
        links.append(matrices)
    hidden, seeds = batch.hidden().numpy(), batch.seeds.numpy()
    groups = batch.tables[batch.seed_table].group.numpy()[seeds]
    parts = []
    for first in range(0, len(seeds), TOGETHER):
        chosen = np.arange(first, min(first + TOGETHER, len(seeds)))
        reached = {
            name: sparse.csr_matrix((len(chosen), len(rows)), dtype=bool)
            for name, rows in batch.tables.items()
        }
        own = (np.ones(len(chosen), bool), (np.arange(len(chosen)), seeds[chosen]))
        start = sparse.csr_matrix(own, shape=reached[batch.seed_table].shape)
        reached[batch.seed_table] = start
        if target_table is not None:
            member = groups[chosen][:, None] == batch.tables[target_table].group.numpy()[None, :]
            reached[target_table] = (reached[target_table] + sparse.csr_matrix(member)).astype(bool)
        for matrices in links:
            sent = dict(reached)
            for (target, source), matrix in matrices.items():
                sent[source] = (sent[source] + reached[target] @ matrix).astype(bool)
            reached = sent
        mine = start.multiply(hidden[chosen][:, None]).astype(bool)
        reached[batch.seed_table] = reached[batch.seed_table] > mine
        parts += [_counted(graph, batch, name, part, chosen) for name, part in reached.items()]
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(seed=batch.seed_ids.numpy()[frame["seed"].to_numpy(np.int64)])


def _counted(
    graph: RelationalGraph, batch: Any, name: str, reached: Any, seeds: NDArray[np.int64]
) -> pd.DataFrame:
    from scipy import sparse

    reached = reached.tocsr()
    reached.eliminate_zeros()
    # A row that was reached at several hops counts once.
    table = batch.tables[name]
    content = (reached.data, table.index.numpy()[reached.indices], reached.indptr)
    reached = sparse.csr_matrix(content, shape=(reached.shape[0], len(table.rows)))
    reached.sum_duplicates()
    rows = np.diff(reached.indptr)
    there = rows > 0
    newest = np.full(len(seeds), MISSING)
    times = graph.time(name)
    if times is not None and reached.nnz:
        moments = times[table.rows.numpy()][reached.indices]
        newest[there] = np.maximum.reduceat(moments, reached.indptr[:-1][there])
    return pd.DataFrame(
        {"seed": seeds[there], "table": name, "rows": rows[there], "newest": newest[there]}
    )


def rows_visible(
    graph: RelationalGraph, tables: list[str], limits: NDArray[np.int64]
) -> pd.DataFrame:
    """Count, for each seed and table, all visible rows, which models without a network may use.

    Args:
        graph: the graph.
        tables: the tables.
        limits: cut-off of each seed. Shape [seeds].

    Returns:
        The same columns as `rows_behind`.
    """
    parts = []
    ticks, moment = np.unique(limits, return_inverse=True)
    for name in tables:
        times = graph.time(name)
        count = np.full(len(ticks), graph.num_rows[name])
        newest = np.full(len(ticks), MISSING)
        if times is not None:
            ordered = np.sort(times)
            count = np.searchsorted(ordered, ticks, "right")
            newest[count > 0] = ordered[count[count > 0] - 1]
        there = count[moment] > 0
        parts.append(
            pd.DataFrame(
                {
                    "seed": np.flatnonzero(there), "table": name,
                    "rows": count[moment][there], "newest": newest[moment][there],
                }
            )
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)
