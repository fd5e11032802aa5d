"""The network: encode each distinct row once, apply role-gated layers, apply the head to seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from relfrog.features.columns import Features, TableColumns
from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Route
from relfrog.nn.age_pieces import AgePieces
from relfrog.nn.aggregation import Aggregation
from relfrog.nn.atomic_layer import AtomicLayer
from relfrog.nn.batch_plan import Plan
from relfrog.nn.dependency import Dependencies, Pairs
from relfrog.nn.encoders import RowEncoder, SeedEncoder, TimeEncoder, age_parts
from relfrog.nn.heads import Head
from relfrog.nn.resnet_encoder import ResNetEncoder
from relfrog.nn.role_layer import LayerOptions, RoleLayer
from relfrog.nn.roles import GateOptions, GateSums, RoleMode, Roles
from relfrog.support.times import PER_SECOND

__all__ = ["Network", "Output"]


class Output(NamedTuple):
    """The result of a forward pass.

    Attributes:
        seeds: output of the head for the seeds; for most heads of shape [seeds, outputs].
        states: embeddings per table, before the first layer and after each layer; each layer
            computes a prefix of the occurrences.
    """

    seeds: Any
    states: list[dict[str, Tensor]]


class Network(nn.Module):
    """Encoders, layers, roles and a head for one database and one task.

    Args:
        columns: the columns of every table.
        timed: tables with a time column.
        keys: all foreign keys.
        routes: routes along which tables can act as edges; none for a plain relational GNN.
        seed_table: the table of the entities.
        head: the head of the task.
        channels: size of all embeddings.
        layers: number of message-passing layers.
        aggregation: how messages are combined.
        dropout: dropout probability in layers and head.
        encoder: row encoders that sum columns ("sum") or concatenate them ("resnet").
        encoder_depth: residual blocks in the row encoders.
        encoder_dropout: dropout probability in row encoders that concatenate.
        bins: bins of the piecewise linear encoding of numbers.
        column_dropout: probability of hiding a column from the row encoders in training.
        mode: where roles come from.
        alpha: decay of the moving average of the gates.
        roles: the gates by route, if they are fixed.
        gates: how gates are computed.
        layer: how layers are computed.
        ages_from: whether ages are measured from the "cutoff" of the database, or from the time of
            the "seed", where it is later.
        seed_context: whether rows of the seed table hold the season and how stale the data are.
        unit: unit of the graph's times.
        marked: whether to mark the seed by a learned vector (identity-aware); needs separate
            subgraphs.
        atomic: whether to use RelGNN's messages: along atomic routes, without roles.
    """

    def __init__(
        self,
        columns: Mapping[str, TableColumns],
        timed: Sequence[str],
        keys: Sequence[ForeignKey],
        routes: Sequence[Route],
        seed_table: str,
        head: Head,
        *,
        channels: int = 128,
        layers: int = 2,
        aggregation: Aggregation | str = Aggregation.SUM,
        dropout: float = 0.0,
        encoder: str = "sum",
        encoder_depth: int = 1,
        encoder_dropout: float = 0.0,
        bins: int = 8,
        column_dropout: float = 0.0,
        mode: RoleMode | str = RoleMode.LEARNED,
        alpha: float = 0.99,
        roles: Mapping[str, float] | None = None,
        gates: GateOptions | None = None,
        layer: LayerOptions | None = None,
        ages_from: str = "cutoff",
        seed_context: bool = True,
        unit: str = "us",
        marked: bool = False,
        atomic: bool = False,
    ) -> None:
        super().__init__()
        self.tables = tuple(sorted(columns))
        self.seed_table, self.unit, self.ages_from = seed_table, unit, ages_from
        how = Aggregation(aggregation)
        self.encoders = nn.ModuleList(
            ResNetEncoder(columns[name], channels, encoder_depth, encoder_dropout)
            if encoder == "resnet"
            else RowEncoder(columns[name], channels, encoder_depth, bins, column_dropout)
            for name in self.tables
        )
        self.times = nn.ModuleList(
            TimeEncoder(channels, name in timed, len(columns[name].moment_names))
            for name in self.tables
        )
        self.seed_encoder = SeedEncoder(channels, marked, seed_context)
        self.roles = None
        if len(routes) and not atomic:
            self.roles = Roles(routes, channels, RoleMode(mode), alpha, roles, options=gates)
        self.layers = nn.ModuleList(
            AtomicLayer(self.tables, keys, routes, channels, dropout)
            if atomic
            else RoleLayer(self.tables, keys, routes, channels, how, dropout, timed, layer)
            for _ in range(layers)
        )
        self.head = head

    def forward(self, plan: Plan, features: Mapping[str, Features]) -> Output:
        """Compute the rows in the plan, and the head's output for the seeds."""
        if self.roles is not None and self.roles.held is not None:
            self.roles.held.begin()
        ages = {
            name: age_parts(self._age(rows.age, plan, name))
            for name, rows in plan.batch.tables.items()
            if rows.age is not None
        }
        h = self.encode(plan, features, ages)
        states = [h]
        for layer, layer_plan in zip(self.layers, plan.layers, strict=True):
            h = layer(h, layer_plan, self.roles, ages)
            states.append(h)
        return Output(self.head.read(h, plan), states)

    @contextmanager
    def gates_at_rest(self, rest: bool = True) -> Iterator[None]:
        """Keep the average gates as they are, whatever is computed in the meantime."""
        if self.roles is not None:
            self.roles.moving = not rest
        try:
            yield
        finally:
            if self.roles is not None:
                self.roles.moving = True

    @contextmanager
    def gates_held(self) -> Iterator[GateSums | None]:
        """Add gates up instead of moving their averages; None without roles."""
        if self.roles is None:
            yield None
            return
        held = self.roles.held = GateSums(len(self.layers), self.roles)
        try:
            yield held
        finally:
            self.roles.held = None

    def average_gates(self) -> dict[str, float]:
        """The average gate of each route."""
        if self.roles is None:
            return {}
        values = self.roles.average.tolist()
        return {str(route): round(values[i], 6) for route, i in self.roles.number.items()}

    def _age(self, age: Tensor, plan: Plan, name: str) -> Tensor:
        """Ages of the rows that are needed, in seconds. Shape [rows]."""
        age = age[: plan.sizes[name]]
        if self.ages_from == "cutoff":
            return age
        group = plan.batch.tables[name].group[: len(age)].long()
        return age + plan.batch.group_lags[group].to(age.dtype)

    def encode(
        self, plan: Plan, features: Mapping[str, Features], ages: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Embeddings before the first layer: each distinct row once, then its occurrences."""
        batch = plan.batch
        per_second = float(PER_SECOND[self.unit])
        # In double precision: float32 resolves times of this century only to 128 s.
        seconds = batch.group_times.double() / per_second
        # If the database ends before the seed's time, spans are relative to its end, unless asked
        # otherwise: a network trained on fresh data cannot interpret rows that are all years old.
        ends = seconds - batch.group_lags if self.ages_from == "cutoff" else seconds
        h = {}
        for name in self.tables:
            rows, count = batch.tables[name], plan.sizes[name]
            chosen, index = rows.rows, rows.index[:count]
            if count < len(rows):
                used, index = index.unique(return_inverse=True)
                chosen = chosen[used]
            group = rows.group[:count].long()
            h[name] = self.encode_rows(
                name, features[name], chosen, index, ages.get(name), ends[group]
            )
        x, rows = h[self.seed_table], batch.tables[self.seed_table]
        hidden = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        hidden[batch.seeds] = batch.hidden()
        h[self.seed_table] = self.seed_encoder(
            x, rows.group[: len(x)].long(), hidden, seconds, batch.group_lags, batch.seeds
        )
        return h

    def encode_rows(
        self,
        name: str,
        features: Features,
        rows: Tensor,
        index: Tensor | None,
        ages: Tensor | AgePieces | None,
        ends: Tensor,
    ) -> Tensor:
        """Embeddings of occurrences of rows, without the context of the seed.

        Args:
            name: the table.
            features: its columns.
            rows: distinct rows. Shape [distinct].
            index: which of them each occurrence is; None if each occurs once, in order. Shape
                [occurrences].
            ages: `age_parts` of the occurrences, or their `AgePieces`, if the table has times.
            ends: cut-off that each occurrence is seen at, in seconds. Shape [occurrences].
        """
        number = self.tables.index(name)
        times = self.times[number]
        assert isinstance(times, TimeEncoder)
        own = self.encoders[number](features, rows)
        moments = None if times.moments is None else features.moments.index_select(0, rows)
        if index is not None:
            own = own.index_select(0, index)
            moments = None if moments is None else moments[index]
        spans = None if moments is None else ends.unsqueeze(1) - moments
        return times(own, ages, spans)


def dependency_pairs(
    output: Output, plan: Plan, keys: Sequence[ForeignKey], most: int,
    generator: torch.Generator | None = None,
) -> dict[ForeignKey, Pairs]:  # fmt: skip
    """Embeddings of foreign-key pairs of a batch, at most `most` per key, sampled at random.

    Both ends are taken from the last layer that computed both of them.
    """
    # One gather per table: the gradient of each gather has the size of the whole table.
    wanted: dict[str, list[tuple[Tensor, Tensor]]] = {}
    found: dict[ForeignKey, Tensor] = {}
    for key in keys:
        pointers, usable = _pointers(plan, key)
        children = torch.nonzero(usable).squeeze(1)
        if not len(children):
            continue
        if most and len(children) > most:
            drawn = torch.randint(len(children), (most,), generator=generator)
            children = children[drawn.to(children.device)]
        parents = pointers[children]
        depth = torch.zeros_like(children)
        for number, state in enumerate(output.states):
            depth[(children < len(state[key.table])) & (parents < len(state[key.parent]))] = number
        wanted.setdefault(key.table, []).append((children, depth))
        wanted.setdefault(key.parent, []).append((parents, depth))
        found[key] = parents
    gathered = {
        name: iter(_gather([state[name] for state in output.states], some))
        for name, some in wanted.items()
    }
    return {
        key: Pairs(
            _precise(next(gathered[key.table])),
            _precise(next(gathered[key.parent])),
            plan.batch.tables[key.parent].index[parents],
        )
        for key, parents in found.items()
    }


def count_pairs(plan: Plan, keys: Sequence[ForeignKey], most: int) -> list[int]:
    """How many pairs of each foreign key `dependency_pairs` takes from a batch."""
    found = [int(_pointers(plan, key)[1].sum()) for key in keys]
    return [min(count, most) if most else count for count in found]


def _pointers(plan: Plan, key: ForeignKey) -> tuple[Tensor, Tensor]:
    """Pointers of the rows in the plan, and which lead to rows that are in it. Shapes [n]."""
    pointers = plan.batch.parents[key][: plan.sizes[key.table]]
    return pointers, (pointers >= 0) & (pointers < plan.sizes[key.parent])


def _precise(x: Tensor) -> Tensor:
    """Cast half precision to float32, for the dependency losses. Shape [...]."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _gather(states: Sequence[Tensor], wanted: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Gather rows of a table, each from the given layer. Shapes: [n] each -> [n, c] each."""
    rows, depth = (torch.cat(parts) for parts in zip(*wanted, strict=True))
    order = [(depth == number).nonzero().squeeze(1) for number in range(len(states))]
    parts = [
        state.index_select(0, rows[at]) for state, at in zip(states, order, strict=True) if len(at)
    ]
    back = torch.empty_like(rows)
    back[torch.cat(order)] = torch.arange(len(rows), device=rows.device)
    sizes = [len(some) for some, _ in wanted]
    return list(torch.cat(parts).index_select(0, back).split(sizes))


__all__ += ["Dependencies", "count_pairs", "dependency_pairs"]
