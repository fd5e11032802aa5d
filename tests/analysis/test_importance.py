"""Which tables matter: what is hidden is gone, what is shuffled is still there, ranges are fair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relfrog import Run
from relfrog.analysis.bootstrap import Interval, Scorer, resample
from relfrog.analysis.changed_tables import ChangedTask, run_on, shuffle_features, without_rows
from relfrog.analysis.importance import importance
from relfrog.datasets.metrics import compute_metrics
from relfrog.features.blocks import Blocks
from relfrog.features.table import Features
from relfrog.graph.sampler import TemporalSampler
from relfrog.reporting.material import Material
from relfrog.reporting.sections.table_importance import table_importance
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from small_store import fit


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(store, tmp_path_factory.mktemp("importance") / "run", epochs=6, lr=0.02)


@pytest.mark.parametrize("table", ["orders", "things", "reviews", "labels of the task"])
def test_hidden_rows_are_gone_and_others_are_not(run: Run, table: str) -> None:
    graph = run.prepared.graph
    hidden = without_rows(graph, table)
    for key in graph.foreign_keys:
        if table in (key.table, key.parent):
            assert (hidden.parent(key) == -1).all()
        else:
            np.testing.assert_array_equal(hidden.parent(key), graph.parent(key))
    seeds = run.prepared.seeds("test")
    for given in (graph, hidden):
        batch = TemporalSampler(given, "people", (8, 4)).sample(seeds.rows[:8], seeds.times[:8])
        assert (len(batch.tables[table]) == 0) == (given is hidden)
    assert graph.parents.sum() != hidden.parents.sum()  # the run's own graph is as it was


def whole(features: Features) -> dict[str, torch.Tensor]:
    """Everything, in the types that frames give."""
    dense = features.dense.whole() if isinstance(features.dense, Blocks) else features.dense
    return {"dense": dense, "codes": features.codes.int(), "moments": features.moments}


@pytest.mark.parametrize("column", [None, "age", "city"])
@pytest.mark.parametrize("table", ["people", "orders", "labels of the task"])
def test_shuffled_features_are_those_of_the_shuffled_table(
    run: Run, table: str, column: str | None
) -> None:  # fmt: skip
    prepared = run.prepared
    if column not in (None, *prepared.db.table_dict[table].df):
        pytest.skip("no such column")
    order = np.random.default_rng(1).permutation(prepared.graph.num_rows[table])
    changed = ChangedTask(prepared.opened, table, order, column)
    slow = prepared.columns.encode(changed.shown(True), [table])[table]
    quick = shuffle_features(
        prepared.features[table], prepared.columns.tables[table], order, column
    )
    ours, before = whole(quick), whole(prepared.features[table])
    for name, tensor in whole(slow).items():
        torch.testing.assert_close(ours[name], tensor, equal_nan=True)
    assert not all(ours[name].equal(before[name]) for name in ("dense", "codes"))


@pytest.mark.slow
@pytest.mark.parametrize("table", ["orders", "labels of the task"])
@pytest.mark.parametrize("model", ["frog", "lightgbm", "recent", "global-mean"])
def test_what_is_hidden_cannot_matter(store: Path, tmp_path: Path, model: str, table: str) -> None:
    """Without a table's rows a prediction does not depend on what is in them."""
    made = fit(store, tmp_path / "run", model=model, epochs=1, trials=1)
    seeds = made.prepared.seeds("test")
    rng = np.random.default_rng(0)
    hidden = ChangedTask(made.prepared.opened, table)
    before = run_on(made, hidden).predict_seeds(seeds, None)
    order = rng.permutation(made.prepared.graph.num_rows[table])
    mixed = ChangedTask(made.prepared.opened, table, order)
    plain, shuffled = (
        made.predict_seeds(seeds, None),
        run_on(made, mixed).predict_seeds(seeds, None),
    )
    both = ChangedTask(mixed, table)
    np.testing.assert_array_equal(run_on(made, both).predict_seeds(seeds, None), before)
    if table == "labels of the task":  # which all of these look at
        assert not np.array_equal(plain, before)
        if model != "global-mean":  # to which the order of all labels makes a difference, in time
            assert not np.array_equal(plain, shuffled)
    elif model in ("recent", "global-mean"):
        np.testing.assert_array_equal(plain, before)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["buys", "sorts"])
def test_what_is_kept_of_a_model_is_what_loading_it_gives(
    task: str, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    """On a changed table only what depends on it is computed again, with the same outcome."""
    made = fit(store, tmp_path / "run", task, model="auto", epochs=1, trials=1)
    names = ("lightgbm", "frog", "recent")
    made.model._weights = dict.fromkeys(names, 1 / 3)  # type: ignore[attr-defined]
    blend = read_json(made.folder / "blend.json")
    write_json(made.folder / "blend.json", blend | {"weights": dict.fromkeys(names, 1 / 3)})
    seeds = made.prepared.seeds("test")
    plain = made.predict_seeds(seeds, None)
    moved = 0
    for table, count in made.prepared.graph.num_rows.items():
        orders = [np.random.default_rng(0).permutation(count)]
        for order in orders + [None] * (table != "people"):
            changed = ChangedTask(made.prepared.opened, table, order)
            quick = run_on(made, changed).predict_seeds(seeds, None)
            slow = made.on(changed).predict_seeds(seeds, None)
            np.testing.assert_allclose(quick, slow, rtol=1e-6, atol=1e-7)
            moved += not np.allclose(quick, plain)
    assert moved >= 5


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "recent", "auto"])
def test_every_model_has_importance(store: Path, tmp_path: Path, model: str) -> None:
    made = fit(store, tmp_path / "run", model=model, epochs=1, trials=1)
    found = importance(made)
    assert {entry.table for entry in found.tables} == set(made.prepared.graph.num_rows)
    by_table = {entry.table: entry for entry in found.tables}
    assert by_table["people"].hidden is None
    assert _value(by_table["labels of the task"].hidden) > 0
    if model == "recent":  # which looks at nothing else
        assert all(_value(by_table[t].hidden) == 0 for t in ("orders", "reviews", "things"))
    assert found == importance(made)


def test_every_table_is_weighed_and_the_same_each_time(run: Run) -> None:
    found = importance(run)
    assert {entry.table for entry in found.tables} == set(run.prepared.graph.num_rows)
    assert found.seeds == found.of == run.count("test")
    assert found.score == pytest.approx(run.evaluate("test")["roc_auc"])
    by_table = {entry.table: entry for entry in found.tables}
    assert by_table["people"].hidden is None
    assert by_table["people"].shuffled is not None
    # How often people order is in their orders and earlier labels, and in nothing else.
    assert max(_value(by_table[t].hidden) for t in ("orders", "labels of the task")) > 0.02
    assert found == importance(run)
    for entry in found.tables:
        for part in (entry.hidden, entry.shuffled):
            assert part is None or part.low <= part.value <= part.high


def test_without_time_the_nearest_tables_are_weighed_and_the_others_named(run: Run) -> None:
    found = importance(run, seconds=0.0)
    assert [entry.table for entry in found.tables] == ["people"]
    assert found.unmeasured == ("labels of the task", "orders", "reviews", "things")
    material = Material(run)
    material.importance = found
    shown = str(table_importance(material))
    assert "would have taken too long: labels of the task, orders, reviews, things." in shown


def _value(part: Interval | None) -> float:
    assert part is not None
    return part.value


@pytest.mark.slow
def test_columns_one_by_one(run: Run) -> None:
    found = importance(run, deep=True)
    named = {(entry.table, entry.column) for entry in found.columns}
    assert {("people", "age"), ("people", "city"), ("orders", "channel")} <= named
    assert all(entry.hidden is None and entry.shuffled is not None for entry in found.columns)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("binary_classification", "roc_auc"), ("regression", "mae"), ("recommendation", "map"),
     ("multiclass_classification", "accuracy"), ("multilabel_classification", "roc_auc_macro"),
     ("binary_classification", "f1")],
)  # fmt: skip
def test_quick_metrics_are_the_metrics(kind: str, metric: str) -> None:
    rng = np.random.default_rng(0)
    size = 60
    truth: Any = rng.integers(0, 2, size)
    predicted = rng.integers(0, 9, size) / 9  # many of them equal
    if kind == "multiclass_classification":
        truth, predicted = rng.integers(-1, 3, size), rng.random((size, 3))
    elif kind == "multilabel_classification":
        labels = rng.integers(0, 2, (size, 3))
        truth, predicted = np.empty(size, object), rng.integers(0, 9, (size, 3)) / 9
        truth[:] = [tuple(row) for row in labels]
    elif kind == "recommendation":
        truth = np.empty(size, object)
        truth[:] = [rng.choice(12, rng.integers(1, 7), replace=False) for _ in range(size)]
        lists = np.stack([rng.permutation(12)[:4] for _ in range(size)])
        predicted = np.stack([lists, lists * 0.0], 2)
    scorer = Scorer(kind, metric, truth, predicted)
    for count in (size, 30, 7, 1):
        at = rng.integers(0, size, count)
        slow = compute_metrics(kind, truth[at], predicted[at])[metric]
        assert scorer(at) == pytest.approx(slow, nan_ok=True)


def test_ranges_are_over_entities_not_over_labels() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=60)
    found = resample(np.arange(60), lambda at: float(values[at].mean()))
    assert found.low < found.value < found.high
    # The usual error of a mean.
    assert (found.high - found.low) / 3.92 == pytest.approx(values.std() / 60**0.5, rel=0.2)
    # Each label nine times more tells nothing more.
    many = np.repeat(values, 9)
    again = resample(np.repeat(np.arange(60), 9), lambda at: float(many[at].mean()))
    assert again == pytest.approx(found)
    alone = resample(np.zeros(5), lambda at: 1.0)
    assert np.isnan(alone.low)
    assert not alone.certain
