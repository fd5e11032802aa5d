"""The mapping file: written by a dry run, corrected, given back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers import assert_same_dataset, csv_folder, imported, said
from relfrog import import_database
from relfrog.errors import SchemaError
from relfrog.importing import plan_import
from relfrog.testing import random_database


@pytest.mark.slow
def test_an_untouched_mapping_changes_nothing(tmp_path: Path) -> None:
    address = random_database(3).to_sqlite(tmp_path / "a.db")
    (tmp_path / "m.yaml").write_text(plan_import(address).mapping.to_yaml(), encoding="utf-8")
    import_database(address, tmp_path / "one", name="x")
    import_database(address, tmp_path / "two", name="x", mapping=tmp_path / "m.yaml")
    assert_same_dataset(tmp_path / "one", tmp_path / "two")
    for name in ("mapping.yaml", "import.json", "manifest.yaml"):
        one, two = ((tmp_path / d / name).read_text(encoding="utf-8") for d in ("one", "two"))
        assert one == two, name


@pytest.fixture
def source(tmp_path: Path) -> str:
    return csv_folder(
        tmp_path / "csv",
        a="id,when,score,old\n1,2020-01-01,5,x\n2,2020-02-01,6,y\n3,2020-03-01,bad,z\n",
        b="n,a_ref,t2\n7,1,2020-01-05\n8,9,2020-02-05\n",
        c="id,v\n1,2\n",
    )


def edited(source: str, path: Path, edit: object) -> Path:
    content = yaml.safe_load(plan_import(source).mapping.to_yaml())
    edit(content)  # type: ignore[operator]
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_everything_in_it_can_be_corrected(source: str, tmp_path: Path) -> None:
    def edit(content: dict) -> None:  # type: ignore[type-arg]
        del content["tables"]["c"]
        a, b = content["tables"]["a"], content["tables"]["b"]
        a["name"] = "things"
        a["columns"]["score"] = "number"
        a["columns"]["old"] = "drop"
        a["time"] = None
        b["primary_key"] = "n"
        b["time"] = "t2"
        b["foreign_keys"] = [{"columns": "a_ref", "parent": "a"}]
        content["val"], content["test"] = "2020-01-10", "2020-01-20"

    result, tables = imported(
        source, tmp_path / "out", mapping=edited(source, tmp_path / "m.yaml", edit)
    )
    assert list(tables) == ["things", "b"]
    assert tables["things"]["score"].tolist()[:2] == [5, 6]
    assert "1 values cannot be read as number" in said(result, "changed", "a.score")
    assert "old" not in tables["things"]
    assert [t.time_col for t in result.tables] == [None, "t2"]
    assert result.tables[1].fkeys == {"a_ref": "things"}
    assert result.mapping.tables["b"].primary_key_origin == "chosen"
    assert result.mapping.tables["b"].foreign_keys[0].origin == "chosen"
    assert (result.mapping.val, result.mapping.test) == ("2020-01-10", "2020-01-20")
    assert "not listed in the mapping file" in said(result, "left out", "c")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda c: c.update(tabels={}), "unknown entry 'tabels'"),
        (lambda c: c["tables"]["a"].update(primry_key="id"), "unknown entry 'primry_key'"),
        (lambda c: c["tables"].update(aa=c["tables"].pop("a")), "no table 'aa'"),
        (lambda c: c["tables"]["a"]["columns"].update(score="nubmer"), "unknown type 'nubmer'"),
        (lambda c: c["tables"]["a"]["columns"].update(skore="text"), "did you mean 'score'"),
        (lambda c: c["tables"]["a"]["columns"].update(score="text %d"), "only time takes a format"),
        (lambda c: c["tables"]["a"]["columns"].update(score="time epoch h"), "s, ms, us or ns"),
        (lambda c: c["tables"]["a"].update(primary_key="idd"), "did you mean 'id'"),
        (lambda c: c["tables"]["a"]["columns"].update(id="boolean"), "is the primary key"),
        (lambda c: c["tables"]["a"].update(time="wen"), "did you mean 'when'"),
        (lambda c: c["tables"]["b"].update(foreign_keys=[{"parent": "a"}]), "needs 'columns'"),
        (lambda c: c["tables"]["b"].update(foreign_keys={"a_ref": "a"}), "is a list"),
        (lambda c: c["tables"]["a"].update(name="b"), "is taken by"),
        (lambda c: c["tables"]["a"].update(name="x/y"), "cannot be a file name"),
        (lambda c: c.update(tables=[1]), "expected names with values"),
    ],
)
def test_what_means_nothing_is_named(edit: object, words: str, source: str, tmp_path: Path) -> None:
    path = edited(source, tmp_path / "m.yaml", edit)
    with pytest.raises(SchemaError, match=words):
        import_database(source, tmp_path / "out", mapping=path)
    assert not (tmp_path / "out").exists()


def test_a_number_as_text_key(source: str, tmp_path: Path) -> None:
    path = edited(
        source, tmp_path / "m.yaml", lambda c: c["tables"]["a"]["columns"].update(id="text")
    )
    _, tables = imported(source, tmp_path / "out", mapping=path)
    assert tables["a"]["id_key"].tolist() == ["1", "2", "3"]


def test_a_file_that_is_no_mapping(source: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read"):
        import_database(source, tmp_path / "out", mapping=tmp_path / "none.yaml")
    (tmp_path / "m.yaml").write_bytes("val: 2020".encode("utf-16"))
    with pytest.raises(SchemaError, match=r"m\.yaml is not YAML: it is not UTF-8"):
        import_database(source, tmp_path / "out", mapping=tmp_path / "m.yaml")
    (tmp_path / "m.yaml").write_text("a: [")
    with pytest.raises(SchemaError, match="is not YAML"):
        import_database(source, tmp_path / "out", mapping=tmp_path / "m.yaml")
    (tmp_path / "m.yaml").write_text("!!python/object/apply:os.system ['touch evil']")
    with pytest.raises(SchemaError, match="is not YAML"):
        import_database(source, tmp_path / "out", mapping=tmp_path / "m.yaml")
