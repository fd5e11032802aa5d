"""Trimming a recommendation's plan: less is computed, and the lists are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relfrog.models import NetworkModel
from relfrog.nn.batch_plan import make_plan
from small_store import fit


@pytest.mark.parametrize("model", ["frog", "sage", "relgnn"])
def test_lists_do_not_depend_on_what_is_left_out(model: str, shop: Path, tmp_path: Path) -> None:
    run = fit(shop, tmp_path / "run", "list", model=model, layers=2, neighbors=8, epochs=1)
    made, prepared = run.model, run.prepared
    assert isinstance(made, NetworkModel)
    loader = prepared.loader(prepared.seeds("test"))
    batch = loader.sampler.sample(loader.rows, prepared.seeds("test").times)
    lists, computed = [], []
    for trim in (False, True):
        plan = make_plan(batch, 2, prepared.routes, trim=trim, target_table=prepared.target_table)
        with torch.no_grad():
            out = made.network(plan, made.features)
            lists.append(made.network.head.batch_predict(out.seeds, plan, made.features))
        computed.append(sum(sum(layer.targets.values()) for layer in plan.layers))
        # Each layer reads what the one before has computed.
        sizes = [plan.sizes, *(layer.targets for layer in plan.layers)]
        for before, layer in zip(sizes, plan.layers, strict=False):
            for key, links in (*layer.up.items(), *layer.down.items()):
                source = key.table if key in layer.up and links is layer.up[key] else key.parent
                assert int(links.source.max()) < before[source] if len(links) else True
    assert torch.equal(lists[0][:, :, 0], lists[1][:, :, 0])
    torch.testing.assert_close(lists[0][:, :, 1], lists[1][:, :, 1], rtol=1e-5, atol=1e-6)
    assert computed[1] < 0.8 * computed[0]
