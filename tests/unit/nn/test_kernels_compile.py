"""Every kernel, compiled for a Hopper GPU as training and decoding launch it; the interpreter accepts far more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import kernels_for_hopper
from kernels_for_hopper import CASES, FAST

SHARED = 227 << 10
"""Bytes of shared memory that a program on a Hopper GPU can have."""
SPILLED = {"tf32": 256, "ieee": 2048}
"""Bytes of a thread's stack at most, by the precision of products: for the registers that it lacks."""


@pytest.fixture
def compiled(tmp_path):
    """Compiles some cases in a process that does not interpret, from nothing."""

    def run(*cases):
        environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
        environment.pop("TRITON_INTERPRET", None)
        command = [sys.executable, Path(kernels_for_hopper.__file__), *cases]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def assert_sound(lines):
    """No kernel was refused, and what each takes can be had."""
    refused = [f"{line['kernel']}, {line['case']}: {line['error']}" for line in lines if "error" in line]
    assert not refused, "\n\n".join(refused)
    for line in lines:
        assert line["shared"] <= SHARED, line
        assert line["stack"] <= SPILLED[line["constants"].get("EXACT", "tf32")], line


def test_every_kernel_of_the_package_compiles_for_a_hopper_gpu_and_what_the_compiler_refuses_is_told_of(compiled):
    *lines, refused = compiled(*FAST)
    assert_sound(lines)
    missing = set(kernels_for_hopper.kernels()).difference(*(line["holds"] for line in lines))
    assert not missing, "no case in kernels_for_hopper.py compiles these"
    assert {line["case"] for line in lines} == set(FAST) - {"refused"}
    assert "arange" in refused["error"]
    with pytest.raises(AssertionError, match=r"__main__\.wrong, refused: CompilationError"):
        assert_sound([refused])


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in FAST])
def test_the_kernels_compile_for_other_models_and_precisions(compiled, case):
    lines = compiled(case)
    assert lines
    assert_sound(lines)
