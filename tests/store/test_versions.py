"""Who has other libraries is told which."""

from __future__ import annotations

import pytest

from relfrog.cluster.workers import _checked
from relfrog.errors import ClusterError
from relfrog.store.parts import versions
from relfrog.store.versions import version_differences


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, ""),
        ({"python": "0"}, ""),  # Ray itself refuses another one
        ({"numpy": "1.0", "code": "0"}, "numpy 1.0 instead of {numpy}"),
        ({"numpy": "1.0", "relfrog": "0.1"}, "relfrog 0.1 instead of {relfrog}, numpy 1.0 instead "
                                             "of {numpy}"),
        ({"code": "0"}, "another state of relfrog {relfrog}"),
    ],
)  # fmt: skip
def test_differences_in_words(other: dict[str, str], words: str) -> None:
    assert version_differences({**versions(), **other}) == words.format(**versions())


def test_what_is_missing() -> None:
    own = {name: value for name, value in versions().items() if name != "duckdb"}
    assert version_differences(own) == f"duckdb missing instead of {versions()['duckdb']}"


def test_a_node_with_other_libraries_runs_no_job() -> None:
    given = {"work": len, "job": {}, "expected": {**versions(), "torch": "2.4.0"}}
    with pytest.raises(
        ClusterError, match=r"it has torch .* instead of 2\.4\.0\. Install the same"
    ):
        _checked(given)
    assert _checked({**given, "expected": versions()}) == 0
