"""Freed memory is used again without a fault of a page."""

import subprocess
import sys

import pytest

ROUNDS = """
import resource, torch
from headway.allocator import keep_freed_memory
if {kept}:
    assert keep_freed_memory()
for round in range(20):
    if round == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(40 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="settings of the GNU C library")
def test_a_large_tensor_of_every_update_costs_no_faults():
    def faults(kept):
        told = subprocess.run([sys.executable, "-c", ROUNDS.format(kept=kept)], capture_output=True, check=True)
        return int(told.stdout)

    assert 10 * faults(kept=True) < faults(kept=False)
