"""The files for clusters are what their readers can read, and say what RelFrog understands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from relfrog.cli import cli
from relfrog.training.shards import usual_shards

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "cluster"


def commands(text: str) -> list[list[str]]:
    """Every relfrog command in a text, without what only a shell understands."""
    joined = re.sub(r"\\\n\s*", " ", text)
    found = re.findall(r"relfrog ((?:train|predict|experiment) [^\n#`]*)", joined)
    return [re.sub(r'"\$\{\w+\[@\]\}"', "", words).replace('"', "").split() for words in found]


@pytest.mark.parametrize("name", ["train.sbatch", "ray.sbatch"])
def test_scripts_are_bash(name: str) -> None:
    subprocess.run(["bash", "-n", FOLDER / name], check=True)
    text = (FOLDER / name).read_text()
    assert text.startswith("#!/bin/bash\n")
    assert "set -euo pipefail" in text
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:]), "Slurm ignores these"


def test_all_workers_of_torchrun_have_work() -> None:
    """A batch has a piece for each of them."""
    text = (FOLDER / "train.sbatch").read_text()
    numbers = [
        int(re.findall(rf"{name}=(\d+)", text)[0])
        for name in ("--nodes", "workers_per_node", "batch_size")
    ]
    nodes, each, batch = numbers
    assert nodes * each == usual_shards(batch)


def test_the_manifest_is_one_of_kuberay() -> None:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "raycluster.yaml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayCluster")
    spec = found["spec"]
    assert set(spec) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    lock = (ROOT / "requirements-3.11.lock").read_text()
    assert f"\nray=={spec['rayVersion']}\n" in lock, "the version that is tested"
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            assert {"name": "RELFROG_CACHE", "value": "/cache"} in container["env"]
            cores = container["resources"]["requests"]["cpu"]
            assert cores == group["rayStartParams"]["num-cpus"]


def test_commands_are_understood() -> None:
    pages = [*FOLDER.iterdir(), ROOT / "docs" / "scale.md"]
    found = [words for page in pages for words in commands(page.read_text())]
    assert len(found) > 8
    for name, *words in found:
        command = cli.commands[name]
        if "..." not in words:
            with click.Context(command) as context:
                command.parse_args(context, words)
