"""What must have happened once in every process, however the tests are divided among several."""

import warnings

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def warmed():
    """A product and its gradient: torch warns once in a process where a thread that goes backwards is the first to
    need cuBLAS, and whichever test came first would fail of it."""
    if torch.cuda.is_available():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind in (torch.float32, torch.bfloat16):
                x = torch.ones(16, 16, device="cuda", dtype=kind, requires_grad=True)
                (x @ x).sum().backward()
            torch.cuda.synchronize()
