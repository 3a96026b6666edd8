import sys

import pytest
import torch

from headway.nn.compiling import compiles


@pytest.fixture(autouse=True)
def asked_anew():
    compiles.cache_clear()
    yield
    compiles.cache_clear()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_nothing_is_compiled_without_a_gpu():
    assert not compiles()


def test_nothing_is_compiled_without_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "headway.nn.elements", None)
    assert not compiles()


def test_a_kernel_that_fails_closes_the_door_and_one_that_runs_opens_it(monkeypatch):
    elements = pytest.importorskip("headway.nn.elements")
    monkeypatch.setattr(torch, "ones", lambda *_, **__: None)

    def fail(_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(elements, "totals", fail)
    assert not compiles()
    compiles.cache_clear()
    monkeypatch.setattr(elements, "totals", lambda _: None)
    assert compiles()
