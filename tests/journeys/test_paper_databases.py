"""The made-up versions of the paper's databases are datasets with something to learn."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from relbench.manifest import DatasetManifest, validate_dataset_manifest

import paper_databases
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.tasks import load_task

SCALE = 0.002


@pytest.fixture(scope="module", params=paper_databases.NAMES)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper") / request.param
    return paper_databases.write(request.param, folder, SCALE)


def test_tables_have_the_rows_and_keys_of_the_schema(made):
    schema = paper_databases.read_schema(made.name)
    manifest = DatasetManifest.load(made / "manifest.yaml")
    validate_dataset_manifest(manifest, made / "db")
    tables = {name: pq.read_table(made / "db" / f"{name}.parquet") for name in manifest.tables}
    for name, spec in manifest.tables.items():
        assert tables[name].num_rows == schema.rows(name, SCALE)
        if spec.pkey is not None:
            keys = tables[name][spec.pkey].to_numpy()
            np.testing.assert_array_equal(keys, np.arange(len(keys)))
        for column, parent in spec.fkeys.items():
            known = tables[name][column].drop_null().to_numpy()
            assert len(np.unique(known)) > 1
            assert 0 <= known.min() <= known.max() < tables[parent].num_rows


def test_the_same_seed_draws_the_same_rows(made, tmp_path):
    table = next(iter(paper_databases.read_schema(made.name).tables))
    for seed, same in ((0, True), (1, False)):
        again = paper_databases.write(made.name, tmp_path / str(seed), SCALE, seed)
        files = [pq.read_table(folder / "db" / f"{table}.parquet") for folder in (made, again)]
        assert files[0].equals(files[1]) == same


def test_every_task_has_labels_to_learn_from(made):
    dataset = open_dataset(made)
    for name in paper_databases.read_schema(made.name).tasks:
        task = load_task(dataset, name)
        for split in ("train", "val", "test"):
            labels = task.get_table(split, mask_input_cols=False).df
            column = getattr(task, "target_col", None) or task.dst_entity_col
            values = {str(value) for value in labels[column]}
            assert len(values) > 1, f"{name} {split}: {len(labels)} labels, all alike"
