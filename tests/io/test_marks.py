"""What RelFrog wrote is marked, and an import leaves it out."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from helpers import csv_folder, imported, said, sqlite
from relfrog.errors import SourceError
from relfrog.importing import import_database
from relfrog.io.marks import LIST, is_marked_file
from relfrog.io.output import write_frame

PEOPLE = pd.DataFrame({"person_id": [1, 2, 3], "prediction": [0.5, 0.25, 1.0]})


def skipped(address: str, folder: Path) -> None:
    """Of a source with people and predictions, only people are imported, and it says so."""
    result, tables = imported(address, folder / "out")
    assert list(tables) == ["people"]
    assert "written by RelFrog" in said(result, "left out", "predictions")
    # Who names the table gets it.
    result, tables = imported(address, folder / "both", tables=["people", "predictions"])
    assert sorted(tables) == ["people", "predictions"]


def overwritten(address: str, folder: Path) -> None:
    """Written twice, as every night."""
    for _ in range(2):
        write_frame(PEOPLE, address, table="predictions", overwrite=True)
    skipped(address, folder)


def test_a_table_in_sqlite(tmp_path: Path) -> None:
    address = sqlite(
        tmp_path / "a.db", "CREATE TABLE people (person_id INTEGER PRIMARY KEY, town TEXT);"
        "INSERT INTO people VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )  # fmt: skip
    overwritten(address, tmp_path)
    # The mark is no column, and stays when the table is renamed.
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("ALTER TABLE predictions RENAME TO guesses")
        assert connection.execute("SELECT * FROM guesses").fetchall() == [
            (1, 0.5), (2, 0.25), (3, 1.0)
        ]  # fmt: skip
    assert list(imported(address, tmp_path / "renamed")[1]) == ["people"]
    # Another table of this name is read like any other.
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DROP TABLE guesses")
        connection.execute("CREATE TABLE guesses AS SELECT person_id FROM people")
    assert sorted(imported(address, tmp_path / "own")[1]) == ["guesses", "people"]


def test_a_table_in_duckdb(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE people (person_id INTEGER PRIMARY KEY, town TEXT)")
        connection.execute("INSERT INTO people VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    overwritten(f"duckdb:///{tmp_path / 'a.duckdb'}", tmp_path)


def test_a_table_in_postgresql(fresh_postgres: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(fresh_postgres) as connection:
        connection.execute("CREATE TABLE people (person_id INTEGER PRIMARY KEY, town TEXT)")
        connection.execute("INSERT INTO people VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    overwritten(fresh_postgres, tmp_path)


def test_a_table_in_mysql(mysql: str, tmp_path: Path) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(mysql.replace("mysql:", "mysql+pymysql:"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE DATABASE marks"))
        connection.execute(sa.text("USE marks"))
        connection.execute(
            sa.text("CREATE TABLE people (person_id INTEGER PRIMARY KEY, n INTEGER)")
        )
        connection.execute(sa.text("INSERT INTO people VALUES (1, 5), (2, 6), (3, 7)"))
    engine.dispose()
    overwritten(mysql.replace("/mysql?", "/marks?"), tmp_path)


@pytest.mark.parametrize("mine", ["csv", "parquet"])
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_file_in_a_folder(mine: str, suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    csv_folder(folder, people="person_id,town\n1,a\n2,b\n3,c\n")
    if mine == "parquet":
        pd.read_csv(folder / "people.csv").to_parquet(folder / "people.parquet")
        (folder / "people.csv").unlink()
    for _ in range(2):
        write_frame(PEOPLE, folder / f"predictions.{suffix}", overwrite=True)
    if mine == suffix.split(".")[0]:
        skipped(str(folder), tmp_path)
    else:  # not even of the kind that is read
        assert list(imported(str(folder), tmp_path / "out")[1]) == ["people"]
    # Whatever takes the place of a file is no prediction.
    if suffix == "csv" == mine:
        (folder / "predictions.csv").write_text("person_id,visits\n1,8\n2,9\n")
        assert sorted(imported(str(folder), tmp_path / "other")[1]) == ["people", "predictions"]


def test_no_list_is_left_where_nothing_else_is_to_import(tmp_path: Path) -> None:
    write_frame(PEOPLE, tmp_path / "predictions.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["predictions.csv"]
    assert not is_marked_file(tmp_path / "predictions.csv")
    write_frame(PEOPLE, tmp_path / "again.csv")
    assert (tmp_path / LIST).exists()
    assert is_marked_file(tmp_path / "again.csv")


def test_folders_without_tables_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="is empty"):
        import_database(str(tmp_path / "empty"), tmp_path / "out")
    (tmp_path / "empty" / "notes.txt").write_text("x")
    with pytest.raises(
        SourceError, match=r"no CSV or Parquet files to import \(it holds notes.txt"
    ):
        import_database(str(tmp_path / "empty"), tmp_path / "out")
    with pytest.raises(SourceError, match="neither a database nor a folder"):
        import_database(str(tmp_path / "missing"), tmp_path / "out")
