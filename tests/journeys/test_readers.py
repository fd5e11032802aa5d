"""Whatever reads a file that others may have made has a fuzzer that knows its form.

A new reader is found by a scan: it needs a format of `benchmarks/fuzz_formats.py`, and 20,000 cases
of it, or a reason why nobody else can have made what it reads.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import relfrog
from fuzz_formats import FORMATS

PACKAGE = Path(relfrog.__file__).parent
ROOT = Path(__file__).parents[2]
CASES = 20_000

#: Where files are read, by what formats it is tried.
FUZZED: dict[str, tuple[str, ...]] = {
    # Datasets.
    "datasets/checks/__init__.py:_check_manifest": ("checked manifest.yaml",),
    "datasets/checks/__init__.py:_check_files": ("checked manifest.yaml", "table.parquet"),
    "datasets/checks/records.py:check_records": ("keys.parquet",),
    "datasets/checks/tables.py:_column": ("table.parquet",),
    "datasets/dataset.py:read_tables": ("table.parquet",),
    "datasets/dataset.py:source_keys": ("keys.parquet",),
    "datasets/key_views.py:SourceKeys._file": ("import.json", "keys.parquet"),
    "datasets/key_views.py:SourceKeys._check_keys": ("import.json", "keys.parquet"),
    "datasets/key_views.py:SourceKeys._stored": ("keys.parquet",),
    "datasets/label_checks.py:check_stored": ("labels.parquet",),
    "datasets/manifest_forms.py:read_dataset_manifest": ("dataset manifest.yaml",),
    "datasets/manifest_forms.py:read_task_form": ("task manifest.yaml",),
    "datasets/memory_check.py:estimate": ("table.parquet",),
    "datasets/overview.py:_labels.load": ("kept labels.parquet",),
    "datasets/task_folder.py:_columns_named": ("labels.parquet",),
    "datasets/tasks.py:_StoredLabels._read": ("labels.parquet", "list labels.parquet"),
    "features/stored.py:_chunks": ("table in place.parquet",),
    "importing/database.py:_objection": ("checked manifest.yaml",),
    "importing/kept.py:read_kept": ("kept mapping.yaml",),
    "importing/record.py:read_record": ("import.json",),
    "importing/result.py:time_span": ("table.parquet",),
    "runs/ask.py:_imported_from": ("asked import.json",),
    "store/file_table.py:FileTable._header": ("table in place.parquet",),
    "store/file_table.py:FileTable._unmoved": ("table in place.parquet",),
    "store/file_table.py:FileTable.cells": ("table in place.parquet",),
    "store/file_table.py:FileTable.chunks": ("table in place.parquet",),
    "store/overlay.py:_from_file": ("table in place.parquet",),
    "store/table_sql.py:_counted": ("table in place.parquet",),
    "support/lists.py:read_arrow": ("list labels.parquet", "audited.parquet"),
    # What users give.
    "analysis/audit/predictions.py:read_predictions": ("audited.csv", "audited.parquet"),
    "analysis/audit/predictions.py:_decoded": ("audited lists.csv", "audited ranks.csv"),
    "config.py:read_preset": ("preset.yaml",),
    "datasets/entities.py:_read_csv": ("entities.csv",),
    "datasets/entities.py:_read_parquet": ("entities.parquet",),
    "datasets/external.py:read_frame": ("given labels.csv", "given labels.parquet"),
    "datasets/external.py:read_label_table": ("given labels.csv.gz", "given labels.parquet"),
    "datasets/external.py:read_labels": ("task labels.parquet",),
    "experiments/grid.py:GridRunner._answers": ("preset.yaml",),
    "features/text.py:_refuse_code": ("modules.json", "dense config.json"),
    "importing/corrections.py:read_corrections": ("mapping.yaml",),
    "io/marks.py:_listed": (".relfrog-written.json",),
    "io/marks.py:is_marked_file": ("source.parquet",),
    "io/sources/files.py:_csv_format": ("source.csv", "source.csv.gz"),
    "runs/parts_folder.py:begun_at": ("unfinished.json",),
    "runs/parts_folder.py:is_whole": ("predicted part.parquet",),
    "runs/parts_folder.py:read_parts": ("predicted manifest.json", "predicted part.parquet"),
    "runs/train.py:_read_roles": ("gates.json",),
    # Runs, and folders of studies.
    "experiments/study_job.py:is_complete": ("run.json",),
    "experiments/study_run.py:_StudyResults._differences": ("differences.json",),
    "experiments/study_run.py:_check_folder": ("results.json",),
    "features/columns.py:Columns.load": ("columns.json", "columns.safetensors"),
    "features/novelty.py:warn_of_new_categories": ("unseen.json",),
    "models/auto.py:AutoModel._refit_helps": ("backtests.json",),
    "models/auto.py:read_blend": ("blend.json",),
    "models/auto_members.py:_record": ("metrics.json",),
    "models/booster_file.py:_saved_text": ("lightgbm.txt",),
    "models/boosting.py:BoostedTrees.load": ("features.json", "lightgbm.json"),
    "models/model_files.py:check_model_files": ("ranker.json", "model.safetensors"),
    "models/network_model.py:NetworkModel._take": ("model.safetensors",),
    "models/network_model.py:NetworkModel.load": ("model.safetensors",),
    "models/out_of_time.py:Foretold.load": ("backtests.safetensors",),
    "models/past_labels.py:PastModel.load": ("baseline.json",),
    "models/postprocessing/bundle.py:load_postprocessing": ("postprocessing.json",),
    "models/rankers.py:BoostedRanker.load": ("ranker.json",),
    "models/run_folder.py:is_run": ("run.json",),
    "models/run_folder.py:read_run": ("run.json", "config.yaml"),
    "models/run_folder.py:resume_command": ("run.json",),
    "reporting/material.py:_json": ("database.json", "baselines.json", "backtests.json"),
    "reporting/saved.py:recall": ("shown.json", "shown.safetensors"),
    "reporting/sections/provenance.py:_certificates": ("certificate.json",),
    "runs/saved_results.py:read_baselines": ("baselines.json",),
    "runs/saved_results.py:read_history": ("history.jsonl",),
    "runs/saved_results.py:read_metrics": ("metrics.json",),
    "runs/saved_results.py:read_roles": ("roles.json",),
    "training/checkpoint.py:_cut_history": ("resumed history.jsonl",),
    "training/checkpoint.py:_read": ("checkpoint.safetensors",),
    "training/checkpoint.py:parse_progress": ("checkpoint.safetensors",),
    "training/weights.py:load_weights": ("model.safetensors",),
    # The cache folder.
    "datasets/files.py:_read_facts": ("facts.json",),
    "features/stored.py:open_encoded": ("encoded.json",),
    "graph/relational.py:open_graph": ("graph.json", "parents.npy"),
    "models/aggregates/encoded_tables.py:load_features": ("trail.json",),
    "models/aggregates/fitted_encodings.py:fit_encodings.load": ("cells.json",),
    "store/arrays.py:open_array": ("codes.npy",),
    "store/file_table.py:_array": ("facts.json",),
    "store/fingerprint.py:fingerprint": ("fingerprint.json",),
    "store/parts.py:_header": ("part.json",),
    "training/task_store.py:TaskStore.history.load": ("table.json", "kept history.parquet"),
    "training/task_store.py:TaskStore.predictions": ("predicted.npy",),
}
#: What only the same process, its children and its cluster have written, or RelFrog came with; and
#: files of which bytes are hashed or counted, and no more.
OWN = {
    "cli/experiments.py:experiment_command", "cluster/folders.py:pack", "cluster/folders.py:unpack",
    "cluster/local_team.py:_read_error", "cluster/ray_team.py:RayTeam.fit",
    "cluster/ray_team.py:_SendingTrainer.save_checkpoint", "cluster/replica.py:obtain",
    "cluster/replica.py:replicate", "datasets/demo.py:make_flights_database",
    "datasets/label_sql.py:_frame", "datasets/sql_job.py:run",
    "experiments/paper.py:_published", "experiments/study_datasets.py:_fingerprint",
    "experiments/study_job.py:_rename", "experiments/study_job.py:receive",
    "features/text.py:_glove", "models/aggregates/feature_job.py:_maker",
    "models/booster_job.py:run", "models/network_model.py:NetworkModel.fit",
    "reporting/html.py:asset", "reporting/saved.py:_model", "runs/predict_parts.py:_predict",
    "store/arrays.py:make_array", "store/parts.py:Store._is_full", "store/parts.py:versions",
    "support/memory.py:_read", "support/sandbox.py:_Helper.ask",
    "support/sandbox_child.py:_forked", "support/sandbox_child.py:serve",
}  # fmt: skip
#: How files are read everywhere.
MECHANISM = {"support/forms.py", "support/lists.py", "support/parquet.py", "support/tensors.py"}
#: Formats that a library reads whole, in SQL or from an address.
IN_LIBRARIES = {"source.db", "source.duckdb", "tune.journal"}
READS = {
    "ParquetFile", "parse_json", "read_arrays", "read_arrow", "read_bytes", "read_csv",
    "read_frame", "read_json", "read_json_lines", "read_metadata", "read_parquet", "read_table",
    "read_tensors", "read_text", "read_yaml", "safe_open", "load_tensors", "csv.reader",
    "json.load", "json.loads", "msgspec.json.decode", "np.load", "pq.read_schema", "tarfile.open",
}  # fmt: skip


def reads(node: ast.AST, where: str = "") -> Iterator[str]:
    """The functions that call what reads a file, each as often as it does."""
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{where}.{child.name}".lstrip(".")
        if isinstance(child, ast.Call):
            name = ast.unparse(child.func)
            # `read_json`, and `pq.read_table`, whatever it is of; `np.load`, but not `model.load`.
            if name in READS or name.rpartition(".")[2] in READS:
                yield where
        yield from reads(child, inside)


def readers() -> set[str]:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if place not in MECHANISM:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {f"{place}:{where}" for where in reads(tree)}
    return found


def test_every_reader_has_a_fuzzer() -> None:
    listed = {name for name in FUZZED if name.split(":")[0] not in MECHANISM}
    assert readers() == listed | OWN
    assert not listed & OWN
    named = {name for names in FUZZED.values() for name in names}
    assert named <= set(FORMATS)
    assert set(FORMATS) - named == IN_LIBRARIES


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f():\n    return read_json(path)", ["f"]),
        ("class A:\n    def f(self):\n        return forms.read_yaml(path, '')", ["A.f"]),
        ("np.load(path)", [""]), ("model.load(path)", []), ("json.dumps(x)", []),
    ],
)  # fmt: skip
def test_the_scan_finds_a_reader(text: str, found: list[str]) -> None:
    assert list(reads(ast.parse(text))) == found


def test_every_format_has_had_its_cases() -> None:
    """So many, without a defect; what was run is in the file, with its command."""
    kept = json.loads((ROOT / "benchmarks" / "fuzz.json").read_text(encoding="utf-8"))["formats"]
    assert set(kept) == set(FORMATS)
    for name, found in kept.items():
        assert found.get("read", 0) + found.get("refused", 0) >= CASES, name
        assert found["defects"] == [], name
