"""Keys in label SQL are those of the source, whatever they are."""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import relbench
import yaml
from hypothesis import given
from hypothesis import strategies as st

import relfrog
from helpers import examples, inside, sqlite
from relfrog import add_task, check, import_database, open_dataset
from relfrog.datasets.entities import key_frame
from relfrog.datasets.task_file import TaskFile
from relfrog.datasets.tasks import load_task, task_from
from relfrog.errors import TaskError

DAYS = 20
TIMES = [pd.Timestamp(f"2020-{month:02d}-01") for month in (3, 5, 7)]


def frame_of(folder: Path, name: str, split: str, **options: Any) -> pd.DataFrame:
    task = load_task(open_dataset(folder), name, **options)
    return task.get_table(split, mask_input_cols=False).df


# A law: the SQL gives what it gives on the source.


def keys(kind: str, numbers: list[int]) -> list[Any]:
    """Different keys of a kind."""
    if kind == "gaps":
        return [n * n + 3 * n + 5 for n in numbers]
    if kind == "negative":
        return [(-1) ** n * (n // 2 + 1) for n in numbers]
    if kind == "large":
        return [2**62 - n for n in numbers]
    if kind == "text":
        return [f"it's {n}" for n in numbers]
    return [str(uuid.UUID(int=n * 7919 + 1)) for n in numbers]


@st.composite
def shops(draw: Any) -> dict[str, Any]:
    kind = {name: draw(st.sampled_from(["gaps", "negative", "large", "text", "uuid"])) for name in ("people", "things")}  # fmt: skip
    size = {name: draw(st.integers(2, 6)) for name in kind}
    order = {name: draw(st.permutations(range(n))) for name, n in size.items()}
    rows = {name: keys(kind[name], list(order[name])) for name in kind}
    row = st.tuples(
        st.sampled_from(rows["people"]),
        st.one_of(st.none(), st.sampled_from(rows["things"])),
        st.integers(0, 330),
        st.integers(0, 9),
    )
    # The first and the last see to it that splits lie inside, and that no column is constant.
    orders = [(rows["people"][0], rows["things"][0], 0, 1), *draw(st.lists(row, max_size=40))]
    orders.append((rows["people"][1], rows["things"][1], 331, 2))
    return {**rows, "orders": orders, "asked": draw(st.sampled_from(rows["things"]))}


LAW = """
SELECT t.timestamp, o.person AS key, sum(o.amount) + 100 * count(DISTINCT o.thing) AS total
FROM timestamps t JOIN orders o ON o.at > t.timestamp AND o.at <= {end}
LEFT JOIN things g ON g.key = o.thing
WHERE o.thing <> {asked} OR g.key IS NULL OR o.person IN (SELECT min(key) FROM people)
GROUP BY t.timestamp, o.person
"""


def literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@pytest.mark.slow
@examples(40)
@given(shops())
def test_the_sql_gives_what_it_gives_on_the_source(shop: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        address = sqlite(folder / "shop.db")
        source = sqlite3.connect(folder / "shop.db")
        text = {name: "TEXT" if isinstance(shop[name][0], str) else "INTEGER" for name in ("people", "things")}  # fmt: skip
        for name, kind in text.items():
            source.execute(f"CREATE TABLE {name} (key {kind} PRIMARY KEY, word TEXT)")
            source.executemany(f"INSERT INTO {name} VALUES (?, 'x' || abs(random() % 9))", [(k,) for k in shop[name]])  # fmt: skip
        source.execute(
            f"CREATE TABLE orders (id INTEGER PRIMARY KEY, person {text['people']} REFERENCES "
            f"people (key), thing {text['things']} REFERENCES things (key), at TEXT, amount INT)"
        )
        source.executemany(
            "INSERT INTO orders (person, thing, at, amount) "
            "VALUES (?, ?, datetime('2020-01-02', ? || ' days'), ?)",
            shop["orders"],
        )
        source.execute("CREATE TEMP TABLE timestamps (timestamp TEXT)")
        source.executemany("INSERT INTO timestamps VALUES (?)", [(str(t),) for t in TIMES])
        asked = literal(shop["asked"])
        here = LAW.format(end=f"datetime(t.timestamp, '{DAYS} days')", asked=asked)
        expected = {(pd.Timestamp(t), key): total for t, key, total in source.execute(here)}
        source.commit()
        source.close()

        import_database(address, folder / "ds", time=["orders.at"], val="2020-06-01", test="2020-08-01")  # fmt: skip
        dataset = open_dataset(folder / "ds")
        manifest = TaskFile(
            name="law", kind="forecast", task_type="regression", entity_table="people",
            entity_col="key", target_col="total", time_col="timestamp", timedelta=f"{DAYS} days",
            sql=LAW.format(end="t.timestamp + INTERVAL '{timedelta}'", asked=asked), keys="source",
        )  # fmt: skip
        db = dataset.get_db(upto_test_timestamp=False)
        if not expected:
            with pytest.raises(TaskError, match="no label"):
                task_from(dataset, manifest).make_table(db, TIMES)
            return
        found = task_from(dataset, manifest).make_table(db, TIMES).df
        names = key_frame(folder / "ds", "people", "key", found["key"].to_numpy())["key"]
        got = dict(zip(zip(found["timestamp"], names.tolist()), found["total"], strict=True))
        assert got == expected


# What one sees of it.


def shop_of_categories(folder: Path) -> Path:
    """Products of nine categories, which are stored in another order than that of their keys."""
    rows = ", ".join(f"({i}, {(i * 7) % 9 + 1}, 'p{i}')" for i in range(1, 28))
    sales = ", ".join(
        f"({(i * 5) % 27 + 1}, {i % 4}, datetime('2020-01-01', '{i} days'))" for i in range(360)
    )
    address = sqlite(
        folder / "shop.db",
        "CREATE TABLE categories (category_id INTEGER PRIMARY KEY, name TEXT, made TIMESTAMP);"
        "CREATE TABLE products (product_id INTEGER PRIMARY KEY, category_id INTEGER REFERENCES "
        "categories, title TEXT);"
        "CREATE TABLE sales (id INTEGER PRIMARY KEY, product_id INTEGER REFERENCES products, "
        "amount INTEGER, at TIMESTAMP);"
        "INSERT INTO categories SELECT i, 'c' || i, datetime('2019-01-01', (20 - i) || ' days') "
        "FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n);"
        f"INSERT INTO products VALUES {rows}; INSERT INTO sales (product_id, amount, at) VALUES {sales};",
    )  # fmt: skip
    import_database(address, folder / "ds", val="2020-08-01", test="2020-10-01")
    return folder / "ds"


EIGHT = """
SELECT t.timestamp, p.product_id, coalesce(sum(s.amount), 0) AS sold
FROM timestamps t CROSS JOIN products p
LEFT JOIN sales s ON s.product_id = p.product_id AND s.at > t.timestamp
    AND s.at <= t.timestamp + INTERVAL '{timedelta}'
WHERE p.category_id = 8 GROUP BY ALL
"""


@pytest.mark.slow
def test_category_8_is_category_8(tmp_path: Path) -> None:
    folder = shop_of_categories(tmp_path)
    added = add_task(folder, "sold", EIGHT, type="regression", entity="products", horizon="30 days")
    with sqlite3.connect(tmp_path / "shop.db") as source:
        of_eight = {row[0] for row in source.execute("SELECT product_id FROM products WHERE category_id = 8")}  # fmt: skip
    for split in ("train", "val", "test"):
        rows = frame_of(folder, "sold", split)["product_id"].to_numpy()
        assert set(key_frame(folder, "products", "product_id", rows)["product_id"]) == of_eight
    assert check(folder, "sold").ok
    # RelBench knows row numbers only: it takes the labels, and does not try to make them.
    stored = yaml.safe_load((added.folder / "manifest.yaml").read_text())
    assert (stored["kind"], stored["keys"]) == ("external", "source")
    assert "category_id = 8" in stored["source_sql"]
    theirs = relbench.load_dataset(folder).load_task("sold")
    for split in ("train", "val", "test"):
        mine = frame_of(folder, "sold", split, regenerate=True)
        other = theirs.get_table(split, mask_input_cols=False).df
        pd.testing.assert_frame_equal(mine, other, check_dtype=False)
    with pytest.raises(ValueError, match="not regenerable"):
        relbench.load_dataset(folder).load_task("sold", regenerate=True)
    found = relfrog.inspect(folder)["tasks"][0]
    assert (found["kind"], found["keys"]) == ("forecast", "source")


@pytest.mark.slow
def test_relbench_runs_sql_that_does_not_look_at_keys(tmp_path: Path) -> None:
    folder = shop_of_categories(tmp_path)
    sql = EIGHT.replace("WHERE p.category_id = 8 ", "")
    added = add_task(folder, "sold", sql, type="regression", entity="products", horizon="30 days")
    stored = yaml.safe_load((added.folder / "manifest.yaml").read_text())
    assert (stored["kind"], stored["keys"]) == ("forecast", "source")
    theirs = relbench.load_dataset(folder).load_task("sold", regenerate=True)
    for split in ("train", "val", "test"):
        other = theirs.get_table(split, mask_input_cols=False).df
        mine = frame_of(folder, "sold", split, regenerate=True)
        # RelBench's training times go back to the first row of all, ours to the first event.
        other = other[other["timestamp"] >= mine["timestamp"].min()].reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, other, check_dtype=False)


@pytest.mark.slow
def test_a_task_in_row_numbers_stays_in_row_numbers(tmp_path: Path) -> None:
    folder = shop_of_categories(tmp_path)
    add_task(folder, "sold", EIGHT, type="regression", entity="products", horizon="30 days")
    path = folder / "tasks" / "sold" / "manifest.yaml"
    stored = yaml.safe_load(path.read_text())
    del stored["keys"]
    stored |= {"kind": "forecast", "sql": stored.pop("source_sql")}
    path.write_text(yaml.safe_dump(stored))
    for split in ("train", "val", "test"):
        (path.parent / f"{split}.parquet").unlink()
    rows = frame_of(folder, "sold", "val")["product_id"]
    products = pd.read_parquet(folder / "db" / "products.parquet")
    assert set(products["category_id"].iloc[rows]) == {8}  # of 0 to 8: the ninth
    theirs = relbench.load_dataset(folder).load_task("sold").get_table("val").df
    assert set(theirs["product_id"]) == set(rows)


@pytest.mark.slow
def test_a_task_means_the_same_when_rows_are_numbered_anew(tmp_path: Path) -> None:
    folder = shop_of_categories(tmp_path)
    add_task(folder, "sold", EIGHT, type="regression", entity="products", horizon="30 days")

    def labels() -> dict[Any, float]:
        frame = frame_of(folder, "sold", "val")
        names = key_frame(folder, "products", "product_id", frame["product_id"].to_numpy())
        return dict(zip(names["product_id"], frame["sold"], strict=True))

    before = labels()
    with sqlite3.connect(tmp_path / "shop.db") as source:
        source.execute("INSERT INTO products VALUES (-5, 1, 'first'), (0, 3, 'second')")
        source.execute("INSERT INTO categories VALUES (0, 'none', '2018-01-01')")
    import_database(f"sqlite:///{tmp_path / 'shop.db'}", folder, val="2020-08-01", test="2020-10-01", overwrite=True)  # fmt: skip
    assert labels() == before


LEAGUE = """
CREATE TABLE teams (year INTEGER, club TEXT, city TEXT, PRIMARY KEY (year, club));
CREATE TABLE games (id INTEGER PRIMARY KEY, year INTEGER, club TEXT, points INTEGER, at TIMESTAMP,
    FOREIGN KEY (year, club) REFERENCES teams (year, club));
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 11)
INSERT INTO teams SELECT 2019 + i % 2, 'club ' || (i / 2), 'c' || (i % 3) FROM n;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
INSERT INTO games SELECT i, 2019 + i % 2, 'club ' || (i / 2 % 6), i % 5,
    datetime('2020-01-01', (i / 2) || ' days') FROM n;
"""
POINTS = """
SELECT t.timestamp, {entity}, sum(g.points) AS points
FROM timestamps t JOIN games g ON g.at > t.timestamp
    AND g.at <= t.timestamp + INTERVAL '{{timedelta}}' {more}
WHERE g.year = 2020 AND g.club <> 'club 3' GROUP BY ALL
"""


@pytest.mark.slow
def test_a_composite_key_has_the_columns_of_the_source(tmp_path: Path) -> None:
    address = sqlite(tmp_path / "league.db", LEAGUE)
    folder = tmp_path / "ds"
    import_database(
        address, folder, time=["games.at", "teams.none"], val="2020-08-01", test="2020-10-01"
    )
    options = {"type": "regression", "entity": "teams", "horizon": "20 days"}
    join = "JOIN teams m ON m.year = g.year AND m.club = g.club"
    forms = {
        "own": POINTS.format(entity="g.year, g.club", more=""),
        "joined": POINTS.format(entity="m.club, m.year", more=join),
        "made": POINTS.format(entity="g.teams_id", more=""),
    }
    found = {}
    for name, sql in forms.items():
        add_task(folder, name, sql, **options)  # type: ignore[arg-type]
        frame = frame_of(folder, name, "val")
        names = key_frame(folder, "teams", "teams_id", frame["teams_id"].to_numpy())
        assert set(names["year"]) == {2020}
        assert set(names["club"]) == {f"club {i}" for i in (0, 1, 2, 4, 5)}
        found[name] = dict(zip(names["club"], frame["points"], strict=True))
    assert found["own"] == found["joined"] == found["made"]
    wrong = POINTS.format(entity="g.year + 1 AS year, g.club", more="")
    with pytest.raises(TaskError, match="5 of 5 values of year, club are no keys of teams, such as 2021, 'club"):  # fmt: skip
        add_task(folder, "wrong", wrong, **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_lists_hold_keys_of_the_source(tmp_path: Path) -> None:
    folder = shop_of_categories(tmp_path)
    sql = """
    SELECT t.timestamp, p.category_id, LIST(DISTINCT s.product_id) AS product_id
    FROM timestamps t JOIN sales s ON s.at > t.timestamp
        AND s.at <= t.timestamp + INTERVAL '{timedelta}'
    JOIN products p ON p.product_id = s.product_id
    WHERE p.product_id % 2 = 1 GROUP BY ALL
    """
    options = {"type": "recommendation", "source": "categories", "target": "products", "horizon": "30 days"}  # fmt: skip
    add_task(folder, "list", sql, **options)  # type: ignore[arg-type]
    frame = frame_of(folder, "list", "test")
    products = pd.read_parquet(tmp_path / "ds" / "db" / "products.parquet")
    for category, rows in zip(frame["category_id"], frame["product_id"]):
        names = key_frame(folder, "products", "product_id", list(rows))["product_id"]
        assert (names % 2 == 1).all()
        assert set(products["category_id"].iloc[list(rows)]) == {category}
    theirs = (
        relbench.load_dataset(folder).load_task("list").get_table("test", mask_input_cols=False)
    )
    assert [list(r) for r in theirs.df["product_id"]] == [list(r) for r in frame["product_id"]]
    wrong = sql.replace("LIST(DISTINCT s.product_id)", "LIST(DISTINCT s.product_id + 1000)")
    with pytest.raises(TaskError, match="values of product_id are no keys of products"):
        add_task(folder, "wrong", wrong, **options)  # type: ignore[arg-type]


def test_a_key_to_a_unique_column_has_the_values_of_that_column(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "s.db",
        "CREATE TABLE people (id INTEGER PRIMARY KEY, code TEXT UNIQUE);"
        "CREATE TABLE visits (id INTEGER PRIMARY KEY, code TEXT REFERENCES people (code), at TIMESTAMP);"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8) "
        "INSERT INTO people SELECT i * 10, 'K' || (9 - i) FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 400) "
        "INSERT INTO visits SELECT i, 'K' || (i * i % 8 + 1), datetime('2020-01-01', i || ' days') FROM n;",
    )  # fmt: skip
    folder = tmp_path / "ds"
    import_database(address, folder, val="2020-08-01", test="2020-10-01")
    sql = """
    SELECT t.timestamp, p.id, count(v.id) AS n FROM timestamps t CROSS JOIN people p
    LEFT JOIN visits v ON v.code = p.code AND v.at > t.timestamp
        AND v.at <= t.timestamp + INTERVAL '{timedelta}' AND v.code <> 'K5'
    GROUP BY ALL
    """
    add_task(folder, "visits", sql, type="regression", entity="people", horizon="30 days")
    frame = frame_of(folder, "visits", "train").groupby("id")["n"].sum()
    total = dict(zip(key_frame(folder, "people", "id", frame.index.to_numpy())["id"], frame))
    assert total[40] == 0  # K5
    assert total[80] > 0  # K1


@pytest.mark.slow
def test_a_task_comes_from_its_dataset_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shop_of_categories(tmp_path)
    options = {"type": "regression", "entity": "products", "horizon": "30 days"}
    add_task(folder, "sold", EIGHT, **options)  # type: ignore[arg-type]
    beside = tmp_path / "beside" / "sold"
    (folder / "tasks" / "sold").rename(beside.parent.mkdir() or beside)
    add_task(folder, "sold", EIGHT.replace("= 8", "= 3"), **options)  # type: ignore[arg-type]
    monkeypatch.chdir(beside.parent)
    products = pd.read_parquet(folder / "db" / "products.parquet")["category_id"]
    for task in (load_task(open_dataset(folder), "sold"), open_dataset(folder).load_task("sold")):
        rows = task.get_table("val").df["product_id"]
        names = key_frame(
            folder, "categories", "category_id", products.iloc[rows].to_numpy("int64")
        )
        assert set(names["category_id"]) == {3}
    for name in ("./sold", str(beside), "../beside/sold"):
        with pytest.raises(TaskError, match="no task"):
            open_dataset(folder).load_task(name)


def test_inspect_says_which_keys_one_writes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shop_of_categories(tmp_path)
    found = relfrog.inspect(folder)["keys_in_sql"]
    assert found["values"] == "source"
    assert found["examples"]["categories"] == {"category_id": 9}  # the first row, by time
    code, out, _ = inside(capfd, "inspect", str(folder))
    assert code == 0
    assert "Keys in label SQL are those of the source, such as categories.category_id = 9" in out
    (folder / "import.json").unlink()
    code, out, _ = inside(capfd, "inspect", str(folder))
    assert code == 0
    assert "Keys in label SQL are row numbers" in out
