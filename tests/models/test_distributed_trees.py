"""Trees that are grown together; tests/cluster/test_on_ray.py grows them on a real cluster."""

from __future__ import annotations

import pytest

from relfrog.errors import ClusterError
from relfrog.models.distributed_trees import _learn
from relfrog.store.parts import versions


def test_a_worker_with_other_libraries_grows_no_trees() -> None:
    expected = versions() | {"numpy": "0.1"}
    with pytest.raises(ClusterError, match=r"the worker on .+ has numpy .+ instead of 0\.1\. Inst"):
        _learn({"versions": expected})
