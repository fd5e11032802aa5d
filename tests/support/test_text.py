"""Names as people write them."""

from __future__ import annotations

import pytest

from relfrog.support.text import split_place


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("orders.total", ("orders", "total")),
        ("order.lines.qty", ("order.lines", "qty")),
        ("orders.key.id", ("orders", "key.id")),
        ("nobody.x.y", ("nobody.x", "y")),
        ("orders", ("", "orders")),
    ],
)
def test_tables_and_columns_may_have_dots(place: str, found: tuple[str, str]) -> None:
    assert split_place(place, ["order", "orders", "order.lines"]) == found
