"""Columns: nothing learned from after the cut, each row by itself, and the same from files."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from relbench.base import Database, Table

from oracles.every_column import CUT, cut_of, everything, imported
from oracles.relational_databases import dataset
from relfrog.errors import DatasetError, SchemaError, UsageError
from relfrog.features.columns import Columns, Features, NewColumnWarning, fit_columns

LATER = pd.Timestamp("2031-05-05 05:05:05")


def replaced(db: Database, name: str, frame: pd.DataFrame) -> Database:
    old = db.table_dict[name]
    new = Table(frame, old.fkey_col_to_pkey_table, old.pkey_col, old.time_col)
    return Database({**db.table_dict, name: new})


def parts(features: Features) -> dict[str, torch.Tensor]:
    names = ("dense", "codes", "moments", "bag_offsets", "bag_values")
    return {n: getattr(features, n) for n in names if getattr(features, n) is not None}


def assert_same(one: dict[str, Features], two: dict[str, Features]) -> None:
    assert one.keys() == two.keys()
    for name in one:
        first, second = parts(one[name]), parts(two[name])
        assert first.keys() == second.keys()
        for part in first:
            assert first[part].dtype == second[part].dtype
            assert first[part].numpy().tobytes() == second[part].numpy().tobytes(), (name, part)


def saved(columns: Columns, folder: Path) -> tuple[bytes, bytes]:
    columns.save(folder)
    return (folder / "columns.json").read_bytes(), (folder / "columns.safetensors").read_bytes()


@pytest.fixture(params=["everything", "imported 1", "imported 7"])
def db(request: pytest.FixtureRequest) -> Database:
    if request.param == "everything":
        return everything()
    return imported(int(request.param.split()[1]))


@pytest.mark.parametrize("poison", ["words", "holes", "numbers", "lists", "more rows"])
def test_the_future_is_not_heard(db: Database, poison: str, tmp_path: Path) -> None:
    cut = cut_of(db)
    expected = saved(fit_columns(db, before=cut, text_channels=4), tmp_path / "one")
    spoiled = {}
    touched = 0
    for name, table in db.table_dict.items():
        frame = table.df.copy()
        if table.time_col is not None:
            future = (frame[table.time_col] > cut).to_numpy()
            touched += future.sum()
            if poison == "more rows":
                late = frame[: min(9, len(frame))].assign(**{table.time_col: LATER})
                frame = pd.concat([frame, late], ignore_index=True)
            else:
                keys = {table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table}
                for column in frame.columns.difference(list(keys)):
                    value = {"words": "never seen", "holes": None, "numbers": -1e300}.get(poison)
                    values = frame[column].astype(object).to_numpy(copy=True)
                    for row in np.flatnonzero(future):
                        values[row] = ["a", "b"] if poison == "lists" else value
                    frame[column] = pd.Series(values, dtype=object, index=frame.index)
        spoiled[name] = Table(frame, table.fkey_col_to_pkey_table, table.pkey_col, table.time_col)
    assert touched
    found = saved(fit_columns(Database(spoiled), before=cut, text_channels=4), tmp_path / "two")
    assert found == expected


def test_the_past_is_heard(tmp_path: Path) -> None:
    db = everything()
    frame = db.table_dict["t"].df.copy()
    past = np.flatnonzero((frame["when"] <= CUT).to_numpy())[0]
    expected = saved(fit_columns(db, before=CUT), tmp_path / "one")
    for column, value in {"far": 1e6, "colour": "pink", "note": "entirely new", "rank": 99}.items():
        changed = frame.copy()
        changed.loc[past, column] = value
        other = fit_columns(replaced(db, "t", changed), before=CUT)
        assert saved(other, tmp_path / "two") != expected, column
    unknown = np.flatnonzero(frame["when"].isna().to_numpy())[0]
    changed = frame.copy()
    changed.loc[unknown, "colour"] = "pink"  # a row without a time counts as known
    other = fit_columns(replaced(db, "t", changed), before=CUT)
    assert saved(other, tmp_path / "two") != expected


def test_the_cut_itself_is_before_the_cut() -> None:
    stamps = pd.to_datetime(
        ["2020-01-01", "2020-01-02", "2020-01-02 00:00:00.000000001"], format="ISO8601"
    )
    frame = pd.DataFrame({"id": range(3), "when": stamps, "x": [1.5, 2.5, 1e9]})
    db = Database({"t": Table(frame, {}, "id", "when")})
    columns = fit_columns(db, before=pd.Timestamp("2020-01-02"))
    number = columns.tables["t"].numbers[0]
    assert (number.five[0], number.five[-1]) == (1.5, 2.5)


def test_saving_and_loading_changes_nothing(db: Database, tmp_path: Path) -> None:
    columns = fit_columns(db, before=cut_of(db), text_channels=8)
    first = saved(columns, tmp_path / "one")
    again = Columns.load(tmp_path / "one")
    assert saved(again, tmp_path / "two") == first
    assert_same(columns.encode(db), again.encode(db))
    for name, table in columns.tables.items():
        other = again.tables[name]
        assert other.dense_names == table.dense_names
        assert (other.quantiles == table.quantiles).all()
        assert (other.skipped, other.time_col) == (table.skipped, table.time_col)
    assert (again.before, again.text) == (columns.before, columns.text)


def test_each_row_by_itself(db: Database) -> None:
    columns = fit_columns(db, before=cut_of(db), text_channels=8)
    whole = columns.encode(db)
    rng = np.random.default_rng(0)
    for name, table in db.table_dict.items():
        for size in (1, 5, len(table.df)):
            rows = rng.permutation(len(table.df))[:size]
            part = columns.encode(replaced(db, name, table.df.iloc[rows]))[name]
            for key in ("dense", "codes", "moments"):
                expected = getattr(whole[name], key)[rows].numpy()
                assert getattr(part, key).numpy().tobytes() == expected.tobytes(), (name, key)
            if part.bag_offsets is not None:
                for at, row in enumerate(rows):
                    assert bag(part, at) == bag(whole[name], row)


def bag(features: Features, row: int) -> list[int]:
    assert features.bag_offsets is not None
    assert features.bag_values is not None
    first, last = features.bag_offsets[row : row + 2].tolist()
    return features.bag_values[first:last].tolist()


def test_shapes_names_and_ranges(db: Database) -> None:
    columns = fit_columns(db, before=cut_of(db), text_channels=8)
    for name, found in columns.encode(db).items():
        table, rows = columns.tables[name], len(db.table_dict[name].df)
        assert found.dense.shape == (rows, table.dense_size)
        assert len(set(table.dense_names)) == table.dense_size
        assert found.dense.isfinite().all()
        assert np.abs(found.dense.numpy()).max(initial=0) <= 10
        assert found.codes.shape == (rows, len(table.categories))
        for at, column in enumerate(table.categories):
            codes = found.codes[:, at]
            assert ((codes >= table.code_offsets[at]) & (codes < table.code_offsets[at + 1])).all()
            assert table.code_offsets[at + 1] - table.code_offsets[at] == 2 + len(column.categories)
        assert found.moments.shape == (rows, len(table.moment_names))
        assert table.time_col not in table.moment_names
        assert table.quantiles.shape == (table.num_numerical, 17)
        assert (np.diff(table.quantiles, axis=1) >= 0).all()
        keys = {db.table_dict[name].pkey_col, *db.table_dict[name].fkey_col_to_pkey_table}
        used = {c.name for c in table.columns} | set(table.skipped)
        assert used == set(db.table_dict[name].df) - keys


def test_types_are_what_the_values_are() -> None:
    table = fit_columns(everything(), before=CUT).tables["t"]
    kinds: dict[str, list[str]] = {}
    for column in table.columns:
        kinds.setdefault(column.name, []).append(column.stype)
    both = ["numerical", "categorical"]
    assert kinds == {
        "when": ["timestamp"], "far": ["numerical"], "plain": ["numerical"], "rank": both,
        "year": ["numerical"], "huge": ["numerical"], "flag": ["categorical"],
        "maybe": ["categorical"], "price": ["numerical"], "colour": ["categorical"],
        "sort": ["categorical"], "note": ["embedding"], "mixed": ["embedding"],
        "tags": ["multicategorical"], "place": ["embedding"], "due": ["timestamp"],
        "span": ["numerical"],
    }  # fmt: skip
    assert set(table.skipped) == {"nothing", "one", "raw", "object"}
    assert "no value in the" in table.skipped["nothing"]
    assert "the same value" in table.skipped["one"]
    assert "kind bytes" in table.skipped["raw"]


def test_numbers_are_those_of_a_plain_loop() -> None:
    db = everything()
    columns = fit_columns(db, before=CUT)
    table, found, frame = columns.tables["t"], columns.encode(db)["t"], db.table_dict["t"].df
    past = frame["when"].isna() | (frame["when"] <= CUT)
    for at, column in enumerate(table.numbers):
        raw = frame[column.name]
        if column.name == "span":
            raw = raw.dt.total_seconds()
        values = [float(v) if v is not None and np.isfinite(float(v)) else np.nan for v in raw]
        known = pd.Series(values)[past.to_numpy()].dropna()
        low, median, high = known.quantile([0.25, 0.5, 0.75])
        for row, value in enumerate(values):
            expected = 0.0
            if not np.isnan(value):
                # Beyond what was there before the cut nothing more is known.
                value = min(max(value, known.min()), known.max())
                expected = np.clip(np.arcsinh((value - median) / ((high - low) / 1.349)), -10, 10)
            assert found.dense[row, at].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    names = table.dense_names
    assert found.dense[:, names.index("far missing")].tolist() == np.isinf(frame["far"]).tolist()
    assert "plain missing" not in names
    assert table.numbers[0].mean == pytest.approx(
        frame["far"][past & np.isfinite(frame["far"])].mean()
    )


def test_spread_falls_back_when_quartiles_agree() -> None:
    frame = pd.DataFrame(
        {"id": range(9), "mostly": [0.5] * 8 + [3.25], "far": [1e308, -1e308] * 4 + [0.5]}
    )
    db = Database({"t": Table(frame, {}, "id", None)})
    columns = fit_columns(db, before=CUT)
    mostly, far = columns.tables["t"].numbers
    assert mostly.scale == pytest.approx(frame["mostly"].std(ddof=0))
    assert np.isfinite(far.scale)
    assert columns.encode(db)["t"].dense.isfinite().all()


def test_calendar_and_moments_are_those_of_pandas() -> None:
    db = everything()
    columns = fit_columns(db, before=CUT)
    table, found, frame = columns.tables["t"], columns.encode(db)["t"], db.table_dict["t"].df
    past = frame["when"].isna() | (frame["when"] <= CUT)
    for name in ("when", "due"):
        stamps = frame[name].dt
        expected = {}  # no year: it does not come again
        minutes = stamps.hour * 60 + stamps.minute
        waves = {
            "month": (stamps.month - 1) / 12,
            "day": (stamps.day - 1) / 31,
            "weekday": stamps.day_of_week / 7,
        }
        waves |= {"hour": minutes / 1440} if name == "due" else {}
        for part, turn in waves.items():
            expected[f"{part} sin"] = np.sin(2 * np.pi * turn)
            expected[f"{part} cos"] = np.cos(2 * np.pi * turn)
        assert [n for n in table.dense_names if n.startswith(f"{name} ")] == [
            f"{name} missing"
        ] * bool(frame[name][past].isna().any()) + [f"{name} {part}" for part in expected]
        for part, values in expected.items():
            at = table.dense_names.index(f"{name} {part}")
            assert np.allclose(found.dense[:, at], values.fillna(0), atol=1e-6), (name, part)
    assert table.moment_names == ("due",)
    seconds = (frame["due"] - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
    assert np.allclose(found.moments[:, 0], seconds, equal_nan=True)


def test_categories_stand_by_count_and_unknown_ones_are_unknown() -> None:
    seen = ["b"] * 3 + ["a"] * 3 + ["c"] * 5 + [None]
    frame = pd.DataFrame({"id": range(12), "x": pd.Series(seen, dtype=object), "n": [2, 1, 7] * 4})
    db = Database({"t": Table(frame, {}, "id", None)})
    columns = fit_columns(db, before=CUT)
    text, number = columns.tables["t"].categories
    assert text.categories == ("c", "a", "b")
    assert number.categories == (1, 2, 7)
    assert columns.tables["t"].num_codes == 5 + 5
    later = pd.DataFrame(
        {
            "id": range(4),
            "x": pd.Series(["a", "new", None, "c"], dtype=object),
            "n": [7.0, np.nan, 3, 1.5],
        }
    )
    found = columns.encode(replaced(db, "t", later))["t"]
    assert found.codes[:, 0].tolist() == [3, 1, 0, 2]
    assert (found.codes[:, 1] - 5).tolist() == [4, 0, 1, 1]


def test_among_many_categories_those_seen_once_teach_unknown() -> None:
    names = [f"c{i:02d}" for i in range(30) for _ in range(1 if i < 5 else 9)]
    frame = pd.DataFrame({"id": range(len(names)), "x": names})
    db = Database({"t": Table(frame, {}, "id", None)})
    columns = fit_columns(db, before=CUT)
    (column,) = columns.tables["t"].categories
    assert column.categories == tuple(f"c{i:02d}" for i in range(5, 30))
    assert columns.encode(db)["t"].codes[:5, 0].tolist() == [1] * 5
    alone = pd.DataFrame({"id": range(25), "x": [f"name {i}" for i in range(25)]})
    columns = fit_columns(replaced(db, "t", alone), before=CUT)
    assert [c.stype for c in columns.tables["t"].columns] == ["embedding"]


def test_lists_count_an_entry_once() -> None:
    lists = [["b", "a", "b"], [], None, ["a"], ("c", None), np.array(["a", "new"])]
    tags = pd.Series([*lists[:5], ["a"]], dtype=object)
    frame = pd.DataFrame({"id": range(6), "kind": list("xyxyxy"), "tags": tags, "more": tags})
    db = Database({"t": Table(frame, {}, "id", None)})
    columns = fit_columns(db, before=CUT)
    assert columns.tables["t"].bags[0].categories == ("a", "b", "c")
    assert columns.tables["t"].bags[0].counts == (3, 1, 1)
    later = frame.assign(tags=pd.Series(lists, dtype=object))
    found = columns.encode(replaced(db, "t", later))["t"]
    first, second = columns.tables["t"].code_offsets[1:3]  # of tags, and of more
    expected = [[2, 3], [], [0], [2], [4], [1, 2]], [[2, 3], [], [0], [2], [4], [2]]
    for row in range(6):
        assert bag(found, row) == [
            *(first + code for code in expected[0][row]),
            *(second + code for code in expected[1][row]),
        ]


def test_what_is_gone_is_named_and_what_is_new_is_ignored() -> None:
    db = everything()
    columns = fit_columns(db, before=CUT)
    expected = columns.encode(db)
    frame = db.table_dict["t"].df
    with pytest.raises(SchemaError, match=r"2 columns \(t\.rank, t\.note\).*fit the columns again"):
        columns.encode(replaced(db, "t", frame.drop(columns=["note", "rank", "nothing", "one"])))
    fewer = {name: table for name, table in db.table_dict.items() if name == "t"}
    with pytest.raises(SchemaError, match=r"2 tables \(bare, empty\)"):
        columns.encode(Database(fewer))
    more = replaced(db, "t", frame.assign(extra=1, other="x"))
    more = Database({**more.table_dict, "novel": db.table_dict["bare"]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_same(columns.encode(more), expected)
    assert [w.category for w in caught] == [NewColumnWarning] * 2
    assert "2 columns (extra, other)" in str(caught[0].message)
    assert "table novel" in str(caught[1].message)
    assert caught[0].filename == __file__


def test_changed_types_are_read_as_far_as_they_can_be() -> None:
    db = everything()
    columns = fit_columns(db, before=CUT)
    expected, frame = columns.encode(db), db.table_dict["t"].df
    spelled = frame.assign(
        plain=[repr(float(x)) for x in frame["plain"]],
        rank=frame["rank"].astype(float),
        flag=frame["flag"].astype(int),
        due=frame["due"].astype(str).where(frame["due"].notna(), None),
        when=frame["when"].astype("datetime64[s]").dt.tz_localize("UTC"),
        colour=frame["colour"].astype("category"),
    )
    assert_same(columns.encode(replaced(db, "t", spelled)), expected)
    kept = frame["plain"].tolist()
    half = frame.assign(plain=["?" if i % 2 else kept[i] for i in range(len(frame))])
    found = columns.encode(replaced(db, "t", half))["t"].dense[:, 1]
    assert not found[1::2].any()
    assert len(found[::2].unique()) > 10
    broken = frame.assign(plain="?", due="?", tags="?", place="?", rank="?")
    with pytest.raises(
        SchemaError, match=r"5 columns \(t\.plain, t\.rank, t\.tags, t\.place, t\.due\)"
    ):
        columns.encode(replaced(db, "t", broken))
    empty = frame.assign(plain=None, due=None, tags=None, place=None, rank=None)
    assert columns.encode(replaced(db, "t", empty))["t"].dense.isfinite().all()


def test_types_can_be_given() -> None:
    frame = pd.DataFrame(
        {
            "id": range(40), "zip": [f"{i:05d}" for i in range(40)], "rank": [1, 2] * 20,
            "day": [f"2020-01-{i % 28 + 1:02d}" for i in range(40)], "one": ["same"] * 40,
            "half": [0.5, 1.5] * 20, "left": range(40), "none": [None] * 40,
        }
    )  # fmt: skip
    db = Database({"t": Table(frame, {}, "id", None)})
    types = {"zip": "numerical", "rank": "categorical", "day": "timestamp", "one": "embedding",
             "half": "categorical", "left": "skip", "none": "numerical"}  # fmt: skip
    columns = fit_columns(db, before=CUT, types={"t": types})
    table = columns.tables["t"]
    assert {c.name: c.stype for c in table.columns} == {
        n: t for n, t in types.items() if t != "skip"
    }
    assert table.skipped == {"left": "left out on request"}
    assert columns.encode(db)["t"].dense.isfinite().all()
    assert table.categories[1].categories == (0.5, 1.5)
    for wrong, message in [
        ({"u": {}}, "no table 'u'.*There are: t"),
        ({"t": {"x": "numerical"}}, "t has no column 'x'"),
        ({"t": {"zip": "number"}}, "t.zip cannot be 'number'. Choose one of numerical"),
        ({"t": {"id": "numerical"}}, "t.id is a key"),
        ({"t": {"day": "numerical"}}, "t.day as numerical: none of the 40 values.*'2020-01-01'"),
        ({"t": {"zip": "multicategorical"}}, "t.zip as multicategorical: none"),
    ]:
        with pytest.raises(UsageError, match=message):
            fit_columns(db, before=CUT, types=wrong)


def test_the_cut_must_be_a_time() -> None:
    db = everything()
    with pytest.raises(UsageError, match="before is not a time"):
        fit_columns(db, before=pd.NaT)
    with pytest.raises(UsageError, match="no text model"):
        fit_columns(db, before=CUT, text="bert")
    with pytest.raises(SchemaError, match=r"t\.when: not a time"):
        fit_columns(replaced(db, "t", db.table_dict["t"].df.assign(when="?")), before=CUT)
    nothing = fit_columns(db, before=pd.Timestamp("1999-01-01"))
    assert len(nothing.tables["t"].columns) > 5  # rows without a time are known


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    columns = fit_columns(everything(60), before=CUT, text_channels=2)
    good = saved(columns, tmp_path)
    about = json.loads(good[0])

    def spoiled(text: str | bytes, name: str = "columns.json") -> None:
        raw = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "columns.json").write_bytes(good[0])
        (tmp_path / "columns.safetensors").write_bytes(good[1])
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(DatasetError, match="Fit them again"):
            Columns.load(tmp_path)

    spoiled("")
    spoiled("[]")
    spoiled(json.dumps({**about, "format": 99}))
    spoiled(b"junk", "columns.safetensors")
    spoiled(good[1][:-9], "columns.safetensors")
    for key in about["tables"]["t"]:
        broken = json.loads(good[0])
        del broken["tables"]["t"][key]
        spoiled(json.dumps(broken))
    for at, column in enumerate(about["tables"]["t"]["columns"]):
        for key in column:
            broken = json.loads(good[0])
            del broken["tables"]["t"]["columns"][at][key]
            spoiled(json.dumps(broken))
            broken["tables"]["t"]["columns"][at][key] = {"a": [None]}
            spoiled(json.dumps(broken))
    (tmp_path / "columns.json").unlink()
    with pytest.raises(DatasetError, match="Fit them again"):
        Columns.load(tmp_path)


def test_pytorch_frame_runs_on_every_table(db: Database) -> None:
    from torch_frame import stype
    from torch_frame.nn import (
        EmbeddingEncoder,
        LinearEmbeddingEncoder,
        LinearEncoder,
        MultiCategoricalEmbeddingEncoder,
        ResNet,
        TimestampEncoder,
    )

    columns = fit_columns(db, before=cut_of(db), text_channels=8)
    encoders = {
        stype.numerical: LinearEncoder,
        stype.categorical: EmbeddingEncoder,
        stype.multicategorical: MultiCategoricalEmbeddingEncoder,
        stype.timestamp: TimestampEncoder,
        stype.embedding: LinearEmbeddingEncoder,
    }
    for name, frame in columns.frames(db).items():
        names, stats = columns.frame_stats(name)
        assert frame.col_names_dict == names
        assert len(frame) == len(db.table_dict[name].df)
        net = ResNet(8, 4, 1, stats, names, {kind: encoders[kind]() for kind in names})
        out = net.eval()(frame)
        assert out.shape == (len(frame), 4)
        assert out.isfinite().all()


def test_pytorch_frames_hold_the_same_values() -> None:
    from torch_frame import stype

    db = everything()
    columns = fit_columns(db, before=CUT, text_channels=8)
    table, found = columns.tables["t"], columns.encode(db)["t"]
    frame = columns.frames(db)["t"]
    stats = columns.frame_stats("t")[1]
    codes = found.codes - torch.tensor(table.code_offsets[: found.codes.shape[1]])
    assert (frame.feat_dict[stype.categorical] == (codes - 2).clamp(min=-1)).all()
    assert "rank (category)" in frame.col_names_dict[stype.categorical]
    raw = frame.feat_dict[stype.numerical][:, table.dense_names.index("plain")]
    assert np.allclose(raw, db.table_dict["t"].df["plain"])
    text = frame.feat_dict[stype.embedding].values
    assert (text == found.dense[:, -text.shape[1] :]).all()
    tags = frame.feat_dict[stype.multicategorical]
    first = table.code_offsets[len(table.categories)]
    for row in range(0, 200, 7):
        own = [max(code - first - 2, -1) for code in bag(found, row)]
        assert tags[row, 0].tolist() == own
    due = frame.feat_dict[stype.timestamp][:, 1]
    stamps = db.table_dict["t"].df["due"]
    for row in np.flatnonzero(stamps.notna()):
        t = stamps[row]
        assert due[row].tolist() == [
            t.year,
            t.month - 1,
            t.day - 1,
            t.weekday(),
            t.hour,
            t.minute,
            t.second,
        ]
    assert (due[torch.tensor(stamps.isna().tolist())] == -1).all()
    assert len(stats) == sum(map(len, frame.col_names_dict.values()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flights", "olist-sample", "rel-f1", "travel-exchange"])
def test_real_databases(name: str, tmp_path: Path) -> None:
    source = dataset(name)
    db = source.get_db(upto_test_timestamp=False)
    began = time.perf_counter()
    columns = fit_columns(db, before=source.val_timestamp)
    found = columns.encode(db)
    assert time.perf_counter() - began < 60  # seconds where nobody else works
    columns.save(tmp_path)
    assert_same(Columns.load(tmp_path).encode(db), found)
    for features in found.values():
        assert features.dense.isfinite().all()
        assert np.abs(features.dense.numpy()).max(initial=0) <= 10
    early = fit_columns(source.get_db(), before=source.val_timestamp)  # without the test's rows
    assert saved(early, tmp_path / "early") == saved(columns, tmp_path)


def test_what_only_counts_on_with_time_is_left_out() -> None:
    rng = np.random.default_rng(0)
    size = 400
    when = pd.Series(pd.date_range("2019-01-01", periods=size, freq="D"))
    frame = pd.DataFrame(
        {
            "when": when,
            "serial": np.arange(size) + rng.integers(0, 3, size),  # the time in other words
            "price": rng.normal(size=size),
            "season": np.arange(size) // 10,  # always new: as a code it says nothing later
            "shop": rng.integers(0, 5, size),
        }
    )
    db = Database({"t": Table(frame, {}, None, "when")})
    table = fit_columns(db, before=when.iloc[-1]).tables["t"]
    assert set(table.skipped) == {"serial", "season"}
    assert [c.name for c in table.numbers] == ["price", "shop"]
    assert [c.name for c in table.categories] == ["shop"]
    # Codes that are always new, but not in order of time, stay as numbers alone.
    shuffled = frame.assign(season=(np.arange(size) // 10 * 7919) % 1009).drop(columns="serial")
    table = fit_columns(
        Database({"t": Table(shuffled, {}, None, "when")}), before=when.iloc[-1]
    ).tables["t"]
    assert "season" in [c.name for c in table.numbers]
    assert [c.name for c in table.categories] == ["shop"]


def test_texts_get_as_many_numbers_as_they_can_bear() -> None:
    """Names of a few hundred things only say who is who; a user can still ask for more."""
    few, many = 300, 2_100
    for count, channels in ((few, 1), (many, 4)):
        frame = pd.DataFrame(
            {"id": range(count), "note": [f"word{i} of {i}" for i in range(count)]}
        )
        db = Database({"t": Table(frame, {}, "id", None)})
        own = fit_columns(db, before=CUT, text_channels=16)
        assert sum(name.startswith("note") for name in own.tables["t"].dense_names) == channels
        wanted = fit_columns(db, before=CUT, text_channels=16, types={"t": {"note": "embedding"}})
        assert sum(name.startswith("note") for name in wanted.tables["t"].dense_names) == 16
