"""The graph against the tables it was built from."""

from __future__ import annotations

import json
import mmap

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from relbench.base import Database, Table

from helpers import examples
from oracles.reference_sampler import Reference
from oracles.relational_databases import DAY, START, databases, real, star, table
from relfrog.errors import DatasetError, SchemaError, UsageError
from relfrog.graph.relational import ForeignKey, RelationalGraph, build_graph, open_graph
from relfrog.support.times import MISSING


def cells(graph: RelationalGraph) -> int:
    return sum(graph.num_rows[key.table] for key in graph.foreign_keys)


@examples(150)
@given(databases())
def test_pointers_children_and_times(db: Database) -> None:
    graph, slow = build_graph(db), Reference(db)
    assert list(graph.num_rows) == sorted(db.table_dict)
    assert graph.foreign_keys == slow.keys
    for key in graph.foreign_keys:
        pointers = graph.parent(key)
        for row, parent in enumerate(pointers.tolist()):
            expected = slow.parent((key.table, row), key)
            assert parent == (-1 if expected is None else expected[1])
        children = graph.children_by_parent(key)
        expected = [
            child
            for parent in range(graph.num_rows[key.parent])
            for _, child in slow.children((key.parent, parent), key, pd.Timestamp.max)
        ]
        assert children.tolist() == expected
    for name in db.table_dict:
        for day in range(6):
            at = START + day * DAY
            seen = [slow.visible((name, row), at) for row in range(graph.num_rows[name])]
            assert graph.visible(name, at).tolist() == seen
    # At most 16 bytes per foreign-key value plus 8 per row, to the byte.
    assert graph.nbytes <= 16 * cells(graph) + 8 * sum(graph.num_rows.values())


def test_memory_with_many_childless_parents(tmp_path) -> None:
    db = Database(
        {
            "hub": table({"when": [START] * 1000}, time="when"),
            "spoke": table({"hub": [7, 999, 7]}, {"hub": "hub"}),
        }
    )
    graph = build_graph(db)
    assert graph.nbytes <= 16 * 3 + 8 * 1003
    assert graph.children_by_parent(graph.foreign_keys[0]).tolist() == [0, 2, 1]


@examples(30)
@given(db=databases())
def test_save_and_open(db: Database, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("graph")
    graph = build_graph(db)
    graph.save(folder)
    again = open_graph(folder)
    assert again.num_rows == graph.num_rows
    assert again.foreign_keys == graph.foreign_keys
    for name in ("parents", "children", "blocks", "times", "keys", "tables"):
        one, two = getattr(graph, name), getattr(again, name)
        assert one.dtype == two.dtype
        assert np.array_equal(one, two)
        assert not two.flags.writeable
    assert {path.suffix for path in folder.iterdir()} == {".npy", ".json"}


def test_an_opened_graph_stays_on_disk(tmp_path) -> None:
    build_graph(star(100)).save(tmp_path)
    owner = open_graph(tmp_path).children
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert isinstance(owner, mmap.mmap)


def test_damaged_graphs_are_refused(tmp_path) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        open_graph(tmp_path)
    build_graph(star(5)).save(tmp_path)
    np.save(tmp_path / "children.npy", np.zeros(3, np.int32))
    with pytest.raises(DatasetError, match="expected 5 of int32"):
        open_graph(tmp_path)
    np.save(tmp_path / "children.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match="Python objects in dtype"):
        open_graph(tmp_path)
    about = json.loads((tmp_path / "graph.json").read_text())
    (tmp_path / "graph.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(DatasetError, match="format 99"):
        open_graph(tmp_path)


def test_nobody_can_write_to_a_graph() -> None:
    graph = build_graph(star(5))
    with pytest.raises(ValueError, match="read-only"):
        graph.parents[0] = 3


def one_table(times: object) -> Database:
    return Database({"t": Table(pd.DataFrame({"when": times}), {}, None, "when")})


def test_times_are_exact() -> None:
    nanos = pd.to_datetime([1, 2, 3], unit="ns")
    graph = build_graph(one_table(nanos))
    assert graph.unit == "ns"
    assert graph.visible("t", pd.Timestamp(2, unit="ns")).tolist() == [True, True, False]
    micros = pd.Series(np.array([0, 1, 2], "datetime64[us]"))
    graph = build_graph(one_table(micros))
    assert graph.unit == "us"
    # A cut-off between two ticks counts as the tick before it.
    assert graph.visible("t", pd.Timestamp(1_999, unit="ns")).tolist() == [True, True, False]
    far = pd.Series(np.array(["0001-01-01", "NaT", "9999-12-31"], "datetime64[us]"))
    graph = build_graph(one_table(far))
    assert graph.visible("t", "2020-01-01").tolist() == [True, True, False]
    assert graph.time("t")[1] == MISSING
    both = one_table(far).table_dict | {"n": one_table(nanos).table_dict["t"]}
    with pytest.raises(SchemaError, match="does not fit into 64 bits of ns"):
        build_graph(Database(both))


def test_times_of_other_types() -> None:
    zoned = pd.Series(pd.to_datetime(["2020-01-01 01:00"])).dt.tz_localize("Europe/Berlin")
    assert build_graph(one_table(zoned)).visible("t", "2020-01-01 00:00").tolist() == [True]
    assert build_graph(one_table(zoned)).visible("t", "2019-12-31 23:59:59").tolist() == [False]
    for seconds in ([10, 20], [10.0, 20.0], pd.array([10, 20], "Int64")):
        assert build_graph(one_table(seconds)).time("t").tolist() == [10_000_000, 20_000_000]
    assert build_graph(one_table([1.5, None])).time("t").tolist() == [1_500_000, MISSING]
    assert build_graph(one_table(["2020-01-01", None])).time("t")[1] == MISSING
    with pytest.raises(SchemaError, match=r"t\.when: not a time"):
        build_graph(one_table([True, False]))


def test_bad_schemas_are_refused() -> None:
    parent, child = pd.DataFrame({"id": [1, 1]}), pd.DataFrame({"p": [1]})
    cases = {
        "no table 'nowhere'": {"c": Table(child, {"p": "nowhere"})},
        "no primary key": {"c": Table(child, {"p": "a"}), "a": Table(parent, {})},
        "no column 'q'": {"c": Table(child, {"q": "a"}), "a": Table(parent, {}, "id")},
        "1 of 2 values are NULL or not unique": {
            "c": Table(child, {"p": "a"}),
            "a": Table(parent, {}, "id"),
        },
        "no time column 'when'": {"c": Table(child, {}, None, "when")},
    }
    for message, tables in cases.items():
        with pytest.raises(SchemaError, match=message):
            build_graph(Database(tables))


def test_primary_keys_need_not_count_rows() -> None:
    parent = Table(pd.DataFrame({"id": ["b", "a"]}), {}, "id")
    child = Table(pd.DataFrame({"p": ["a", None, "b", "z"]}), {"p": "parent"})
    graph = build_graph(Database({"parent": parent, "child": child}))
    assert graph.parent(ForeignKey("child", "p", "parent")).tolist() == [1, -1, 0, -1]


def nanoseconds(db: Database) -> Database:
    """RelBench counts seconds from nanoseconds; other units it takes for nanoseconds, too."""
    for part in db.table_dict.values():
        if part.time_col is not None:
            part.df[part.time_col] = part.df[part.time_col].astype("datetime64[ns]")
    return db


def assert_equal_to_relbench(db: Database, col_to_stype: dict) -> None:
    pytest.importorskip("torch_geometric")
    from relbench.modeling.graph import make_pkey_fkey_graph

    ours = build_graph(db).to_pyg(db, {name: dict(kinds) for name, kinds in col_to_stype.items()})
    theirs, _ = make_pkey_fkey_graph(db, col_to_stype)
    assert sorted(ours.node_types) == sorted(theirs.node_types)
    assert sorted(ours.edge_types) == sorted(theirs.edge_types)
    for edge_type in theirs.edge_types:
        assert ours[edge_type].edge_index.equal(theirs[edge_type].edge_index)
    for name in theirs.node_types:
        assert sorted(ours[name].keys()) == sorted(theirs[name].keys())
        assert ours[name].num_nodes == theirs[name].num_nodes
        assert ours[name].tf == theirs[name].tf
        if "time" in theirs[name]:
            assert ours[name].time.dtype == theirs[name].time.dtype
            assert ours[name].time.equal(theirs[name].time)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # in RelBench
@pytest.mark.parametrize("name", ["rel-f1", "olist-sample"])
def test_to_pyg_equals_relbench(name: str) -> None:
    stype = pytest.importorskip("torch_frame").stype
    db = nanoseconds(real(name))
    numbers = {
        table_name: {column: stype.numerical for column in part.df.select_dtypes("number").columns}
        for table_name, part in db.table_dict.items()
    }
    assert_equal_to_relbench(db, numbers)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # in RelBench
def test_to_pyg_with_parallel_keys_rows_out_of_order_and_missing_times() -> None:
    stype = pytest.importorskip("torch_frame").stype
    times = pd.Series(np.array(["2020-01-03", "NaT", "2020-01-01"], "datetime64[ns]"))
    db = Database(
        {
            "hub": table({"x": [1.0, 2.0]}),
            "spoke": table(
                {"a": [1, 0, 1], "b": [0, None, 0], "next": [2, None, 2], "when": times},
                {"a": "hub", "b": "hub", "next": "spoke"},
                "when",
            ),
        }
    )
    assert_equal_to_relbench(db, {"hub": {"x": stype.numerical}, "spoke": {}})


def test_to_pyg_without_features() -> None:
    pytest.importorskip("torch_geometric")
    graph = build_graph(star(3))
    data = graph.to_pyg()
    assert data["spoke"].num_nodes == 3
    assert "tf" not in data["spoke"]
    assert data["spoke", "f2p_hub", "hub"].edge_index.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert data["hub", "rev_f2p_hub", "spoke"].edge_index.tolist() == [[0, 0, 0], [0, 1, 2]]
    with pytest.raises(UsageError, match="Pass db"):
        graph.to_pyg(col_to_stype={})
