"""Encoders: the sum over columns against PyTorch Frame and against loops; laws of time."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from relbench.base import Database
from torch import Tensor, nn

from oracles.every_column import CUT, everything, imported
from oracles.network_cases import assert_close, fill, gradients, in_double, make_network, normal
from oracles.relational_databases import START, table
from oracles.slow_network import slow_encode, slow_resnet_row, slow_row
from relfrog.features.columns import Columns, Features, fit_columns
from relfrog.graph.relational import build_graph
from relfrog.graph.sampler import TemporalSampler
from relfrog.nn.age_pieces import age_pieces
from relfrog.nn.batch_plan import make_plan
from relfrog.nn.encoders import (
    KNOTS,
    Recency,
    RowEncoder,
    SeedEncoder,
    TimeEncoder,
    age_parts,
    time_parts,
)
from relfrog.nn.resnet_encoder import ResNetEncoder

SIZE = 5


def fitted(which: str) -> tuple[Database, Columns, dict[str, Features]]:
    db = everything(60) if which == "everything" else imported(int(which))
    columns = fit_columns(db, before=CUT, text_channels=3)
    return db, columns, columns.encode(db)


# Rows.


@pytest.mark.parametrize("bins", [0, 1, 8])
@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("which", ["everything", "1", "7"])
def test_a_row_is_the_sum_of_its_columns(which: str, depth: int, bins: int) -> None:
    _, columns, features = fitted(which)
    for name, some in columns.tables.items():
        encoder = in_double(fill(RowEncoder(some, SIZE, depth, bins)))
        chosen = np.random.default_rng(0).permutation(len(features[name]))
        rows = torch.from_numpy(chosen[:9])
        found = encoder(features[name], torch.cat([rows, rows[:2]]))
        assert found.shape == (len(rows) + min(2, len(rows)), SIZE)
        if not len(rows):
            continue
        expected = torch.stack([slow_row(encoder, features[name], int(row)) for row in rows])
        assert_close(found[: len(rows)], expected, 1e-6)
        assert_close(found[len(rows) :], expected[:2], 1e-6)
        assert_close(gradients(found[: len(rows)], encoder), gradients(expected, encoder), 1e-5)


@pytest.mark.parametrize("which", ["everything", "1", "7"])
def test_concatenated_columns_are_projected_before_the_rows(which: str) -> None:
    """A column's vector and its part of the first block's map, multiplied once."""
    _, columns, features = fitted(which)
    for name, some in columns.tables.items():
        encoder = in_double(fill(ResNetEncoder(some, SIZE, 2, 0.2))).eval()
        chosen = np.random.default_rng(0).permutation(len(features[name]))[:6]
        found = encoder(features[name], torch.from_numpy(chosen))
        assert found.shape == (len(chosen), SIZE)
        if len(chosen):
            slow = [slow_resnet_row(encoder, features[name], int(row)) for row in chosen]
            assert_close(found, torch.stack(slow), 1e-6)
            assert_close(gradients(found, encoder), gradients(torch.stack(slow), encoder), 1e-5)


def test_residual_blocks_are_those_of_pytorch_frame() -> None:
    resnet = pytest.importorskip("torch_frame.nn.models.resnet")
    _, columns, _ = fitted("everything")
    some = next(iter(columns.tables.values()))
    ours = in_double(fill(ResNetEncoder(some, SIZE, 3, 0.0)))
    theirs = [
        resnet.FCResidualBlock(SIZE * (1 if number else ours.parts), SIZE).double()
        for number in range(3)
    ]
    for mine, other in zip(ours.blocks, theirs, strict=True):
        for part, own in (("lin1", mine.first), ("lin2", mine.last), ("norm1", mine.norms[0]),
                          ("norm2", mine.norms[1]), ("shortcut", mine.shortcut)):  # fmt: skip
            if own is not None:
                getattr(other, part).load_state_dict(own.state_dict())
    x = normal(4, SIZE * ours.parts, seed=1)
    expected = nn.Sequential(*theirs)(x)
    found = nn.Sequential(*ours.blocks)(x)
    assert_close(found, expected)


def frame_encoders(columns: Columns, name: str) -> dict:
    """PyTorch Frame's encoder of each type of column, with weights of its own."""
    import torch_frame.nn as frame
    from torch_frame import stype
    from torch_frame.data.stats import StatType

    made = {
        stype.numerical: lambda **given: frame.LinearEncoder(**given),
        stype.categorical: lambda **given: frame.EmbeddingEncoder(**given),
        stype.multicategorical: lambda **given: frame.MultiCategoricalEmbeddingEncoder(
            mode="sum", **given
        ),
        stype.embedding: lambda **given: frame.LinearEmbeddingEncoder(**given),
    }
    names, stats = columns.frame_stats(name)
    found = {}
    for kind, mine in names.items():
        if kind in made:
            own = [dict(stats[column]) for column in mine]
            for one in own if kind == stype.numerical else ():
                one |= {StatType.MEAN: 0.0, StatType.STD: 1.0 - 1e-6}  # encoded already
            encoder = made[kind](out_channels=SIZE, stats_list=own, stype=kind)
            found[kind] = fill(encoder)
    return found


def copy_weights(encoder: RowEncoder, columns: Columns, name: str, theirs: dict) -> None:
    """Give our encoder the weights of theirs; 0 to what theirs does not encode."""
    from torch_frame import stype

    some = columns.tables[name]
    names = list(some.dense_names)
    with torch.no_grad():
        encoder.dense.weight.zero_()
        encoder.dense.bias.zero_()
        if stype.numerical in theirs and some.numbers:
            encoder.dense.weight[:, : some.num_numerical] = theirs[stype.numerical].weight.T
            encoder.dense.bias += theirs[stype.numerical].bias.sum(0)
        if stype.embedding in theirs:
            for column, weight in zip(some.vectors, theirs[stype.embedding].weight_list):
                at = names.index(f"{column.name} {column.kind} 0")
                encoder.dense.weight[:, at : at + column.channels] = weight.T
            encoder.dense.bias += theirs[stype.embedding].biases.sum(0)
        if encoder.codes is None:
            return
        # Theirs has nothing for missing and unknown; it is 0, and not learned.
        encoder.codes.weight.zero_()
        begins = iter(some.code_offsets)
        at = 1
        for column, begin in zip(some.categories, begins):
            count = len(column.categories)
            own = theirs[stype.categorical].emb.weight
            own[0].zero_()
            encoder.codes.weight[begin + 2 : begin + 2 + count] = own[at : at + count]
            at += count
        starts = some.code_offsets[len(some.categories) :]
        for number, (column, begin) in enumerate(zip(some.bags, starts)):
            count = len(column.categories)
            own = theirs[stype.multicategorical].embs[number].weight
            own[0].zero_()
            encoder.codes.weight[begin + 2 : begin + 2 + count] = own[1:]


@pytest.mark.parametrize("which", ["everything", "1", "7"])
def test_the_sum_over_columns_is_that_of_pytorch_frame(which: str) -> None:
    from torch_frame import stype

    db, columns, features = fitted(which)
    frames = columns.frames(db)
    seen = set()
    for name, some in columns.tables.items():
        if not len(features[name]):
            continue
        theirs = frame_encoders(columns, name)
        ours = RowEncoder(some, SIZE, depth=0, bins=0)
        copy_weights(ours, columns, name, theirs)
        total = torch.zeros(len(features[name]), SIZE)
        for kind, encoder in theirs.items():
            values = frames[name].feat_dict[kind]
            if kind == stype.numerical:
                if not some.numbers:
                    continue
                values = features[name].dense[:, : some.num_numerical]
            total = total + encoder(values).sum(1)
            seen.add(kind.value)
        found = ours(features[name], torch.arange(len(features[name])))
        assert_close(found, total, 1e-5)
    assert {"numerical", "categorical"} <= seen
    if which == "everything":
        assert seen == {"numerical", "categorical", "multicategorical", "embedding"}


def test_the_same_row_is_the_same_vector_whatever_else_is_there() -> None:
    _, columns, features = fitted("everything")
    encoder = fill(RowEncoder(columns.tables["t"], SIZE, 1, 8))
    whole = encoder(features["t"], torch.arange(60))
    for rows in ([3], [3, 3, 3], [59, 3, 0], []):
        assert_close(
            encoder(features["t"], torch.tensor(rows, dtype=torch.int64)), whole[rows], 1e-5
        )


def test_columns_are_dropped_only_in_training() -> None:
    _, columns, features = fitted("everything")
    rows = torch.arange(60)
    plain = fill(RowEncoder(columns.tables["t"], SIZE, 1, 8))
    dropping = fill(RowEncoder(columns.tables["t"], SIZE, 1, 8, column_dropout=0.5))
    torch.manual_seed(0)
    one, two = dropping(features["t"], rows), dropping(features["t"], rows)
    assert not torch.equal(one, two)
    assert one.isfinite().all()
    assert torch.equal(dropping.eval()(features["t"], rows), plain(features["t"], rows))


def test_dropped_categories_are_unknown_ones() -> None:
    frame = {"colour": ["red", "green", "red", "green"], "size": ["s", "s", "l", "l"]}
    columns = fit_columns(Database({"t": table(frame)}), before=CUT)
    some = columns.tables["t"]
    known = columns.encode(Database({"t": table(frame)}))["t"]
    other = {"colour": ["?"] * 4, "size": ["?"] * 4}
    unknown = columns.encode(Database({"t": table(other)}))["t"]
    encoder = fill(RowEncoder(some, SIZE, 0, 0, column_dropout=0.9999999))
    torch.manual_seed(0)
    rows = torch.arange(4)
    assert_close(encoder(known, rows), encoder.eval()(unknown, rows), 1e-6)


# Times.

SPANS = st.one_of(
    st.floats(-1e11, 1e11), st.floats(0, 1e6), st.sampled_from(KNOTS), st.just(float("nan"))
)


def test_pieces_of_time_by_hand() -> None:
    """A piece is empty before its first knot, full after its second, and log in between."""
    count = len(KNOTS) - 1
    for number, knot in enumerate(KNOTS):
        parts = time_parts(torch.tensor(knot, dtype=torch.float64))
        expected = torch.tensor([1.0] * number + [0.0] * (count - number))
        assert_close(parts, expected, 1e-5)
    low, high = KNOTS[3], KNOTS[4]
    middle = np.expm1((np.log1p(low) + np.log1p(high)) / 2)
    assert_close(time_parts(torch.tensor(middle))[3], torch.tensor(0.5), 1e-4)


@given(st.lists(SPANS, min_size=2, max_size=20))
def test_pieces_of_time_never_go_back(spans: list[float]) -> None:
    seconds = torch.tensor(spans, dtype=torch.float64)
    parts = time_parts(seconds)
    assert parts.shape == (len(spans), len(KNOTS) - 1)
    assert ((parts >= 0) & (parts <= 1)).all()
    assert (parts[(seconds <= 0) | seconds.isnan()] == 0).all()
    # A piece only begins when the one before it is full.
    assert ((parts[:, 1:] == 0) | (parts[:, :-1] > 1 - 1e-6)).all()
    known = seconds[~seconds.isnan()].sort().values
    assert (time_parts(known).diff(dim=0) >= 0).all()
    flagged = age_parts(seconds)
    assert torch.equal(flagged[:, :-1], parts)
    assert torch.equal(flagged[:, -1], seconds.isnan().float())


def test_spans_of_very_different_length_differ() -> None:
    spans = torch.tensor([0.0, 5, 60, 3600, 86400, 7 * 86400, 3e7, 3e8], dtype=torch.float64)
    assert (time_parts(spans).sum(1).diff() > 0.5).all()


@given(st.lists(SPANS, min_size=1, max_size=8), st.booleans(), st.integers(0, 2))
def test_time_encoder_gives_numbers_whatever_the_age(
    ages: list[float], timed: bool, moments: int
) -> None:
    age = torch.tensor(ages, dtype=torch.float64)
    encoder = fill(TimeEncoder(SIZE, timed, moments))
    x = normal(len(ages), SIZE).float().requires_grad_()
    spans = age.unsqueeze(1).expand(-1, moments)
    found = encoder(x, age_parts(age) if timed else None, spans if moments else None)
    assert found.shape == x.shape
    assert found.isfinite().all()
    for grad in gradients(found, {"x": x, **dict(encoder.named_parameters())}).values():
        assert grad.isfinite().all()
    if not timed and not moments:
        assert torch.equal(found, x)


def test_past_and_future_moments_are_told_apart() -> None:
    encoder = fill(TimeEncoder(SIZE, False, 1))
    x = torch.zeros(4, SIZE)
    spans = torch.tensor([[100.0], [-100.0], [float("nan")], [0.0]], dtype=torch.float64)
    past, future, missing, now = encoder(x, None, spans)
    assert not torch.allclose(past, future)
    assert torch.equal(missing, torch.zeros(SIZE))
    assert torch.equal(now, torch.zeros(SIZE))


@given(st.lists(SPANS, min_size=2, max_size=10))
def test_recent_rows_count_more_at_first(ages: list[float]) -> None:
    seconds = torch.tensor(ages, dtype=torch.float64)
    recency = Recency(8)
    weights = recency(age_parts(seconds))
    assert weights.isfinite().all()
    assert (weights > 0).all()
    known = seconds[~seconds.isnan()].sort().values
    assert (recency(age_parts(known)).diff(dim=0) <= 1e-6).all()
    # A quarter of the channels does not fade.
    assert_close(weights[:, 6:], torch.ones(len(ages), 2), 1e-6)
    assert fill(recency, size=9.0)(age_parts(seconds)).isfinite().all()


@given(
    st.lists(SPANS, min_size=1, max_size=10), st.sampled_from([1, 5]),
    st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_a_map_of_ages_is_read_off_a_broken_line(
    ages: list[float], often: int, dtype: torch.dtype
) -> None:
    """What predictions take in the place of products with `age_parts`, however often ages occur."""
    ages = [age for _ in range(often) for age in ages]
    seconds = torch.tensor(ages, dtype=torch.float64)
    parts, pieces = age_parts(seconds).to(dtype), age_pieces(seconds.numpy(), KNOTS)
    assert len(pieces) == len(ages)
    if often > 4:  # each is there once
        assert len(pieces.piece) == len(seconds.view(torch.int64).unique())
    with torch.no_grad():
        recency = fill(Recency(SIZE), size=2.0).to(dtype)
        assert_close(recency(pieces), recency(parts), 1e-4)
        encoder = fill(TimeEncoder(SIZE, True, 0)).to(dtype)
        x = normal(len(ages), SIZE).to(dtype)
        assert_close(encoder(x.clone(), pieces, None), encoder(x, parts, None), 1e-4)
        assert_close(recency(pieces[1:]), recency(parts[1:]), 1e-4)


# Seeds.


def test_seed_encoder() -> None:
    encoder = fill(SeedEncoder(SIZE))
    x = normal(4, SIZE).float().requires_grad_()
    seconds = torch.tensor([0.0, 1.6e9, 1.6e9], dtype=torch.float64)
    lags = torch.tensor([0.0, 0.0, 1e6], dtype=torch.float64)
    group, hidden = torch.tensor([0, 2, 1, 1]), torch.tensor([False, True, False, False])
    found = encoder(x, group, hidden, seconds, lags)
    assert found.isfinite().all()
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert (grad[hidden] == 0).all()
    assert (grad[~hidden] == 1).all()
    other = torch.where(hidden.unsqueeze(1), torch.full_like(x, float("nan")), x)
    assert torch.equal(encoder(other, group, hidden, seconds, lags), found)
    # Season and staleness count: the same row at other times is another seed.
    same, shown = x[:1].expand(3, -1), torch.zeros(3, dtype=torch.bool)
    early, late, stale = encoder(same, torch.arange(3), shown, seconds, lags)
    assert not torch.allclose(early, late)
    assert not torch.allclose(late, stale)


def test_a_fresh_seed_encoder_changes_nothing() -> None:
    x, shown = normal(2, SIZE).float(), torch.zeros(2, dtype=torch.bool)
    times = torch.tensor([1e9, 2e9], dtype=torch.float64)
    assert torch.equal(SeedEncoder(SIZE)(x, torch.arange(2), shown, times, times), x)


# The encoders of a network.


def moments_db(moments: list[str | None]) -> Database:
    stamps = pd.Series(pd.to_datetime(moments))
    return Database({"t": table({"when": [START] * len(moments), "due": stamps}, time="when")})


def encode(network: nn.Module, batch, features) -> dict[str, Tensor]:
    """The states before the first layer."""
    return network(make_plan(batch, len(network.layers), trim=False), features).states[0]


def test_times_are_known_to_the_second() -> None:
    """Seconds since 1970 do not fit into 32 bits."""
    now = pd.Timestamp("2021-03-04 05:06:07")
    due = [now + pd.Timedelta(seconds=s) for s in (-100, -30, -1, 0, 1, 30, 100)]
    db = moments_db([*map(str, due), None])
    columns = fit_columns(db, before=pd.Timestamp("2100-01-01"))
    graph = build_graph(db)
    network = make_network(graph, columns.tables, "t", double=False, layers=1)
    batch = TemporalSampler(graph, "t", [0]).sample(np.arange(8), [now] * 8)
    given = []
    network.times[0].register_forward_pre_hook(lambda _, inputs: given.append(inputs[2]))
    encode(network, batch, columns.encode(db))
    spans = given[0][batch.seeds].squeeze(1)
    assert spans[:7].tolist() == [100, 30, 1, 0, -1, -30, -100]
    assert spans[7].isnan()


@pytest.mark.parametrize("which", ["everything", "1", "7"])
@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_distinct_rows_once_is_each_occurrence_by_itself(which: str, mode: str) -> None:
    db, columns, features = fitted(which)
    graph = build_graph(db)
    name = "t" if which == "everything" else "customers"
    network = make_network(graph, columns.tables, name, layers=1)
    rows = np.array([0, 1, 2, 0, 1, 1]) % graph.num_rows[name]
    times = pd.Series([CUT, CUT, CUT, CUT, CUT, START + pd.Timedelta(days=30)])
    sampler = TemporalSampler(graph, name, [2, 2], mode)
    # The database stops before the last seeds; one is asked about twice.
    batch = sampler.sample(rows, times, cutoffs=[CUT - pd.Timedelta(days=10)] * 6)
    found = encode(network, batch, features)
    slow = slow_encode(network, batch, features)
    for table_name, x in found.items():
        assert len(x) == len(slow[table_name])
        if not len(x):
            continue
        looped = torch.stack(list(slow[table_name]))
        assert_close(x, looped, 1e-6)
        assert_close(gradients(x, network), gradients(looped, network), 1e-5)
