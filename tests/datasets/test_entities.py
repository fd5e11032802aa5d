"""Keys from files find the rows that have them, in the order asked for, or say which do not."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples, sqlite
from relfrog import import_database
from relfrog.datasets import source_keys
from relfrog.datasets.entities import Entities, key_frame, read_entities
from relfrog.datasets.key_lookup import find_keys
from relfrog.errors import DatasetError, TaskError, UsageError
from relfrog.testing import random_database

_UUIDS = [uuid.UUID(int=i * 2**100 + 0xABCDEF) for i in range(1, 4)]
_SCHEMA = f"""
CREATE TABLE people (id INTEGER PRIMARY KEY, v REAL);
INSERT INTO people VALUES (30, 1), (10, 2), (20, 3), (9007199254740993, 4);
CREATE TABLE codes (code TEXT PRIMARY KEY, v REAL);
INSERT INTO codes VALUES ('007', 1), ('7', 2), ('NA', 3), ('1.10', 4), ('a,"b"', 5), ('', 6);
CREATE TABLE devices (uid TEXT PRIMARY KEY, v REAL);
INSERT INTO devices VALUES ('{_UUIDS[0]}', 1), ('{_UUIDS[1]}', 2), ('{_UUIDS[2]}', 3);
CREATE TABLE blobs (raw BLOB PRIMARY KEY, v REAL);
INSERT INTO blobs VALUES (x'{_UUIDS[0].hex}', 1), (x'{_UUIDS[1].hex}', 2);
CREATE TABLE days (day DATE PRIMARY KEY, v REAL);
INSERT INTO days VALUES ('2020-01-02', 1), ('2020-01-01', 2), ('9999-12-31', 3);
CREATE TABLE prices (price REAL PRIMARY KEY, v REAL);
INSERT INTO prices VALUES (1.1, 1), (2.25, 2);
CREATE TABLE lines (customer INTEGER, number TEXT, v REAL, PRIMARY KEY (customer, number));
INSERT INTO lines VALUES (1, '01', 1), (1, '02', 2), (2, '01', 3), (3, NULL, 4);
CREATE TABLE huge (a BIGINT, b BIGINT, v REAL, PRIMARY KEY (a, b));
INSERT INTO huge VALUES (9007199254740993, 1, 1), (9007199254740995, 2, 2), (NULL, 3, 3);
CREATE TABLE empty (id INTEGER PRIMARY KEY, v REAL);
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("entities")
    import_database(sqlite(folder / "a.db", _SCHEMA), folder / "out")
    return folder / "out"


def keys_of(dataset: Path, table: str) -> pd.DataFrame:
    keys = source_keys(dataset, table)
    assert keys is not None
    return keys


def ask(dataset: Path, table: str, asked: Any, **options: Any) -> Entities:
    keys = keys_of(dataset, table)
    return read_entities(dataset, table, "pk", len(keys), asked, **options)


def csv_file(folder: Path, text: str | bytes, name: str = "asked.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("table", "text", "expected"),
    [
        ("people", "id\n20\n30\n20\n 10 \n", [20, 30, 20, 10]),
        ("people", "ID\n9007199254740993\n", [9007199254740993]),
        ("people", "whatever\n20.0\n+10\n", [20, 10]),
        ("people", "name;id\nx;20\ny;30\n", [20, 30]),
        ("people", "\ufeffid,name\r\n20,é\r\n\r\n30,ü\r\n", [20, 30]),
        ("codes", 'code\n007\n7\nNA\n1.10\n"a,""b"""\n""\n', ["007", "7", "NA", "1.10", 'a,"b"', ""]),
        ("devices", f"uid\n{_UUIDS[2]}\n{str(_UUIDS[0]).upper()}\n", [_UUIDS[2], _UUIDS[0]]),
        ("devices", f"uid\n{_UUIDS[1].hex}\n{{{_UUIDS[0]}}}\n", [_UUIDS[1], _UUIDS[0]]),
        ("blobs", f"raw\n{_UUIDS[1]}\n{_UUIDS[0].hex}\n", [_UUIDS[1].hex, _UUIDS[0].hex]),
        ("days", "day\n2020-01-02\n20200101\n9999-12-31T00:00:00Z\n", ["2020-01-02", "2020-01-01", "9999-12-31"]),
        ("prices", "price\n2.250\n1.10\n", [2.25, 1.1]),
    ],
)  # fmt: skip
def test_csv_values_are_read_in_the_type_of_the_key(
    table: str, text: str, expected: list[Any], dataset: Path, tmp_path: Path
) -> None:
    found = ask(dataset, table, csv_file(tmp_path, text))
    values = found.keys.iloc[:, 0].tolist()
    if table == "days":
        values = [str(v)[:10] for v in values]
    assert values == [str(v) if isinstance(v, uuid.UUID) else v for v in expected]
    own = keys_of(dataset, table)
    pd.testing.assert_frame_equal(found.keys, own.iloc[found.rows].reset_index(drop=True))
    assert found.times is None


def test_frames_lists_and_parquet_mean_the_same(dataset: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame({"v": [1.5, 2.5, 3.5], "id": [20, 10, 20]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    wanted = ask(dataset, "people", [20, 10, 20])
    assert wanted.keys["id"].tolist() == [20, 10, 20]
    assert len(wanted) == 3
    for asked in (
        frame,
        tmp_path / "a.parquet",
        str(tmp_path / "a.csv.gz"),
        np.array([20, 10, 20]),
        pd.Series([20.0, 10.0, 20.0]),
        frame["id"].astype("category").to_frame(),
        frame.astype({"id": "Int64"}),
        frame.astype({"id": str}),
        [decimal.Decimal("20.00"), "10", np.int8(20)],
    ):
        assert ask(dataset, "people", asked).rows.tolist() == wanted.rows.tolist()


@pytest.mark.parametrize(
    ("table", "asked", "expected"),
    [
        ("codes", ["NA", 7, 7.0], ["NA", "7", "7"]),
        ("devices", [_UUIDS[1], _UUIDS[0].bytes], [str(_UUIDS[1]), str(_UUIDS[0])]),
        ("prices", [decimal.Decimal("1.10"), 2.25], [1.1, 2.25]),
        ("days", [dt.date(2020, 1, 2), np.datetime64("2020-01-01")], [pd.Timestamp("2020-01-02"), pd.Timestamp("2020-01-01")]),
        ("days", [pd.Timestamp("2020-01-01 03:00+03:00")], [pd.Timestamp("2020-01-01")]),
    ],
)  # fmt: skip
def test_values_of_python_find_their_keys(
    table: str, asked: list[Any], expected: list[Any], dataset: Path
) -> None:
    assert ask(dataset, table, asked).keys.iloc[:, 0].tolist() == expected


def test_composite_keys(dataset: Path, tmp_path: Path) -> None:
    path = csv_file(tmp_path, "Number,x,CUSTOMER\n02,a,1\n01,b,2\n01,c,1\n02,d,1\n")
    found = ask(dataset, "lines", path)
    assert found.keys.to_dict("list") == {
        "customer": [1, 2, 1, 1],
        "number": ["02", "01", "01", "02"],
    }
    pairs = [(1, "02"), (2, "01"), (1, "01"), (1, "02")]
    assert ask(dataset, "lines", pairs).rows.tolist() == found.rows.tolist()
    with pytest.raises(TaskError, match=r"2 columns \(customer, number\), but the list holds 5"):
        ask(dataset, "lines", [5])
    with pytest.raises(TaskError, match=r"customer=2, number=02 is not in table \w+ \(one"):
        ask(dataset, "lines", [(2, "02")])


def test_a_null_beside_a_key_does_not_round_it(dataset: Path) -> None:
    found = ask(dataset, "huge", [(9007199254740995, 2), (9007199254740993, 1)])
    assert found.keys["a"].tolist() == [9007199254740995, 9007199254740993]
    with pytest.raises(TaskError, match="is not in table"):
        ask(dataset, "huge", [(9007199254740992, 1)])
    with pytest.raises(TaskError, match="1 of 2 rows have no value for a"):
        ask(dataset, "huge", [(9007199254740993, 1), (None, 3)])


def test_large_decimals_may_end_in_zeros() -> None:
    keys = pd.DataFrame({"n": ["12345678901234567890", "7", None]})
    asked = ["7.00", "12345678901234567890.000", decimal.Decimal("7.0"), "07", "70"]
    assert find_keys(keys, [asked]).tolist() == [1, 0, 1, -1, -1]


def test_spellings_that_would_meet_stay_apart() -> None:
    text = str(_UUIDS[0])
    keys = pd.DataFrame({"k": [text, text.upper()]})
    assert find_keys(keys, [[text.upper(), text, _UUIDS[0].hex]]).tolist() == [1, 0, -1]
    blank = pd.DataFrame({"k": [" a", "a", "b"]})
    assert find_keys(blank, [["a", " a", " b"]]).tolist() == [1, 0, -1]
    flags = pd.DataFrame({"k": [True, False]})
    assert find_keys(flags, [["f", "TRUE", True, "2"]]).tolist() == [1, 0, 0, -1]


@examples(60)
@given(seed=st.integers(0, 10**9), columns=st.integers(1, 3))
def test_finding_is_looking_through_all_rows(seed: int, columns: int) -> None:
    rng = random.Random(seed)

    def column(kind: str, size: int) -> list[Any]:
        # Few values, so that some repeat and some are absent.
        if kind == "int":
            return [rng.choice([0, -1, 7, 2**53 + 1, 2**53]) for _ in range(size)]
        if kind == "text":
            return [rng.choice(["", "7", "07", "a b", "ä"]) for _ in range(size)]
        return [rng.choice([0.5, 7.0, 1e300, 0.1 + 0.2]) for _ in range(size)]

    kinds = [rng.choice(["int", "text", "number"]) for _ in range(columns)]
    known = [column(k, rng.randint(0, 12)) for k in kinds[:1]]
    known += [column(k, len(known[0])) for k in kinds[1:]]
    asked = [column(k, 8) for k in kinds]
    types = {"int": "int64", "text": "str", "number": "float64"}
    frame = pd.DataFrame(
        {i: pd.Series(v, dtype=types[k]) for i, (v, k) in enumerate(zip(known, kinds))}
    )
    rows = list(zip(*known))
    wanted = [rows.index(key) if key in rows else -1 for key in zip(*asked)]
    assert find_keys(frame, asked).tolist() == wanted
    written = [[v if isinstance(v, str) else repr(v) for v in values] for values in asked]
    assert find_keys(frame, written).tolist() == wanted


def test_every_key_of_any_database_comes_back(tmp_path: Path) -> None:
    fake = random_database(11, 40)
    result = import_database(fake.to_sqlite(tmp_path / "a.db"), tmp_path / "out")
    rng = np.random.default_rng(0)
    seen = 0
    for table in result.tables:
        if not table.key or table.rows == 0:
            continue
        seen += 1
        rows = rng.integers(0, table.rows, 50)
        keys = key_frame(tmp_path / "out", table.name, "pk", rows)
        assert list(keys.columns) == list(table.key)
        keys.to_csv(tmp_path / "k.csv", index=False)
        keys.to_parquet(tmp_path / "k.parquet")
        for asked in (keys, tmp_path / "k.csv", tmp_path / "k.parquet"):
            found = read_entities(tmp_path / "out", table.name, "pk", table.rows, asked)
            assert found.rows.tolist() == rows.tolist()
            pd.testing.assert_frame_equal(found.keys, keys)
    assert seen >= 6


def test_without_keys_of_a_source_rows_are_named_by_number(tmp_path: Path) -> None:
    found = read_entities(tmp_path, "users", "UserId", 5, csv_file(tmp_path, "userid\n4\n0\n4\n"))
    assert found.rows.tolist() == [4, 0, 4]
    assert found.keys.to_dict("list") == {"UserId": [4, 0, 4]}
    assert key_frame(tmp_path, "users", "UserId", [2, 1]).to_dict("list") == {"UserId": [2, 1]}
    assert key_frame(tmp_path, "events", None, [2, 1]).to_dict("list") == {"row": [2, 1]}
    assert read_entities(tmp_path, "events", None, 4, [3, 0]).rows.tolist() == [3, 0]
    with pytest.raises(TaskError, match=r"1 of 2 keys are not in table users, such as UserId=5 "):
        read_entities(tmp_path, "users", "UserId", 5, [1, 5])


@pytest.mark.parametrize("text", ["", "\n\n", "id\n", "id,at\n"])
def test_an_empty_file_means_no_rows(text: str, dataset: Path, tmp_path: Path) -> None:
    found = ask(dataset, "people", csv_file(tmp_path, text))
    assert len(found) == 0
    assert found.rows.dtype == np.int64
    assert list(found.keys.columns) == ["id"]
    assert len(ask(dataset, "people", [])) == 0
    assert len(ask(dataset, "empty", [])) == 0


def test_a_column_of_times_is_given_back(dataset: Path, tmp_path: Path) -> None:
    path = csv_file(tmp_path, "id,AT\n20,2020-01-01\n10,2020-01-01T02:00:00+02:00\n")
    found = ask(dataset, "people", path)
    assert found.times is not None
    assert found.times.tolist() == [pd.Timestamp("2020-01-01")] * 2
    assert found.times.dtype == "datetime64[us]"
    # The key may have any name beside it, and the task's own name comes first.
    path = csv_file(tmp_path, "who,date,at\n20,2020-01-05,2021-01-01\n")
    with pytest.raises(TaskError, match="no column 'id'; there are: who, date, at"):
        ask(dataset, "people", path)
    path = csv_file(tmp_path, "id,date,at\n20,2020-01-05T00:00:00.123456789,2021-01-01\n")
    own = ask(dataset, "people", path, time_names=("date", "at"))
    assert own.times is not None
    assert own.times.name == "date"
    assert own.times.iloc[0] == pd.Timestamp("2020-01-05T00:00:00.123456789")
    frame = pd.DataFrame({"x": [20], "time": [pd.Timestamp("2020-01-05")]})
    assert ask(dataset, "people", frame).times is not None
    # A key called like a time is a key.
    found = ask(dataset, "days", csv_file(tmp_path, "day\n2020-01-01\n"), time_names=("day",))
    assert found.times is None
    for wrong, shown in (("soon", "'soon'"), ("", "an empty one"), ("1600000000", "'1600000000'")):
        path = csv_file(tmp_path, f"id,at\n20,2020-01-01\n10,{wrong}\n")
        with pytest.raises(TaskError, match=f"1 of 2 values of at are not times, such as {shown}"):
            ask(dataset, "people", path)


@pytest.mark.parametrize(
    ("table", "text", "words"),
    [
        ("people", "id\n20\n5\nx\n1e2\n", r"3 of 4 keys are not in table people, such as id=5 \(one that is: id=10\)\. Remove them"),
        ("people", "id\n20\n99999999999999999999\n", "1 of 2 keys"),
        ("people", 'id,v\n20,1\n,2\n" ",3\n', "2 of 3 rows have no value for id"),
        ("people", "name,x\nb,1\n", "no column 'id'; there are: name, x. The key of people is id"),
        ("people", "Id,ID\n1,2\n", "both Id and ID could be column 'id'"),
        ("people", "id,id\n1,2\n", "two columns 'id'"),
        ("people", "id,v\n20,1\n30\n", "line 3: 1 values, but the header has 2 columns"),
        ("people", "20\n30\n", "begins with '20', which is a key .* Add a first line with id"),
        ("people", b"id\n\xff\xfe\n", "is not UTF-8"),
        ("codes", "code\n0070\n", r"code=0070 is not in table codes \(one that is: code="),
        ("lines", "customer\n1\n", "no column 'number'"),
        ("devices", f"uid\n{_UUIDS[0]}x\n", "is not in table"),
        ("days", "day\n01/02/2020\n", "is not in table"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    table: str, text: str | bytes, words: str, dataset: Path, tmp_path: Path
) -> None:
    with pytest.raises(TaskError, match=words):
        ask(dataset, table, csv_file(tmp_path, text))


def test_files_that_cannot_be_read(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        ask(dataset, "people", tmp_path / "none.csv")
    with pytest.raises(UsageError, match=r"neither \.csv nor \.parquet"):
        ask(dataset, "people", csv_file(tmp_path, "id\n1\n", "a.xlsx"))
    for name in ("a.parquet", "a.csv.gz"):
        with pytest.raises(TaskError, match="cannot be read"):
            ask(dataset, "people", csv_file(tmp_path, "id\n1\n", name))
    with pytest.raises(DatasetError, match="holds 4 keys, but people has 5 rows"):
        read_entities(dataset, "people", "id", 5, [1])


def test_damaged_keys_are_said(dataset: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(dataset, tmp_path / "copy")
    (tmp_path / "copy" / "keys" / "people.parquet").write_bytes(b"no")
    with pytest.raises(DatasetError, match=r"people\.parquet cannot be read.*Import"):
        key_frame(tmp_path / "copy", "people", "id", [0])
