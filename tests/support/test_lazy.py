"""What is loaded later is loaded when it is needed, and works then."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from relfrog.support.lazy import deferred


def alone(code: str) -> None:
    """Run code in a process of its own, which has imported nothing yet."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300)


def test_a_module_waits_until_something_of_it_is_used() -> None:
    alone("""
        import sys
        from relfrog.support.lazy import deferred
        with deferred("wsgiref.util", inner=True):
            import wsgiref.util as later
            import wsgiref.headers
            assert not hasattr(later, "__path__")
        assert "wsgiref.util" not in sys.modules
        assert later.guess_scheme({}) == "http"
        assert sys.modules["wsgiref.util"] is not later
    """)


def test_using_a_module_at_once_loads_it() -> None:
    alone("""
        import sys
        from relfrog.support.lazy import deferred
        with deferred("wsgiref.util", inner=True):
            from wsgiref.util import guess_scheme
        assert guess_scheme({}) == "http"
        assert hasattr(sys.modules["wsgiref.util"], "guess_scheme")
    """)


def test_a_module_that_is_there_stays() -> None:
    import json.decoder

    with deferred("json.decoder"):
        assert sys.modules["json.decoder"] is json.decoder
    assert sys.modules["json.decoder"] is json.decoder


@pytest.mark.slow
def test_compiled_code_finds_linear_algebra() -> None:
    alone("""
        import sys
        import numpy as np
        from relfrog.support.jit import compiled
        assert "scipy.linalg" not in sys.modules
        values = np.arange(6.0).reshape(2, 3)
        assert np.array_equal(compiled(lambda a, b: a @ b)(values, values.T), values @ values.T)
    """)


@pytest.mark.slow
def test_without_training_pytorch_leaves_out_tensors_without_values_until_they_are_asked_for() -> (
    None
):
    alone("""
        import gc, sys
        from relfrog.support.lazy import loading
        with loading(training=False):
            import torch
        assert "torch._meta_registrations" not in sys.modules
        assert gc.isenabled() and gc.get_freeze_count() > 100_000
        torch.nn.Linear(2, 1)(torch.ones(3, 2)).sum().backward()
        import torch._meta_registrations
        empty = torch.empty(4, 4, device="meta")
        assert torch.linalg.eigh(empty)[1].shape == (4, 4)
    """)
