"""The made-up versions of the paper's databases are datasets with something to learn."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from relbench.manifest import DatasetManifest, validate_dataset_manifest

import paper_databases
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.tasks import load_task

#: Small enough to be quick, large enough for every task to have labels.
SCALE = {"rel-f1": 1, "rel-event": 0.02, "rel-hm": 0.002, "rel-avito": 0.004}


@pytest.fixture(scope="module", params=paper_databases.NAMES)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper") / request.param
    return paper_databases.write(request.param, folder, SCALE.get(request.param, 0.01))


def test_tables_have_the_rows_and_keys_of_the_schema(made):
    schema = paper_databases.read_schema(made.name)
    manifest = DatasetManifest.load(made / "manifest.yaml")
    validate_dataset_manifest(manifest, made / "db")
    tables = {name: pq.read_table(made / "db" / f"{name}.parquet") for name in manifest.tables}
    for name, spec in manifest.tables.items():
        assert tables[name].num_rows == schema.rows(name, SCALE.get(made.name, 0.01))
        if spec.pkey is not None:
            keys = tables[name][spec.pkey].to_numpy()
            np.testing.assert_array_equal(keys, np.arange(len(keys)))
        for column, parent in spec.fkeys.items():
            known = tables[name][column].drop_null().to_numpy()
            assert len(np.unique(known)) > 1
            assert 0 <= known.min() <= known.max() < tables[parent].num_rows


def test_the_same_seed_draws_the_same_rows(tmp_path):
    tables = [
        pq.read_table(
            paper_databases.write("rel-hm", tmp_path / name, 0.0005, seed)
            / "db" / "transactions.parquet"
        )
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]  # fmt: skip
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])


@pytest.mark.slow
def test_every_task_has_labels_to_learn_from(made):
    dataset = open_dataset(made)
    for name in paper_databases.read_schema(made.name).tasks:
        task = load_task(dataset, name)
        column = getattr(task, "target_col", None) or task.dst_entity_col
        for split in ("train", "val"):
            labels = task.get_table(split, mask_input_cols=False).df[column]
            assert len(labels), f"{name} {split} has no labels"
            if split == "train":
                assert len({str(value) for value in labels}) > 1, f"{name}: labels all alike"
