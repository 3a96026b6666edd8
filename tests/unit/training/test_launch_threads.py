"""How many threads the processes of `headway train --processes` compute with."""

import os

import pytest
import torch
from torch.distributed.launcher import api

from headway.runtime.cores import Cores
from headway.runtime.threads import RECORD, prepare_environment
from headway.training.parallel import launch


@pytest.mark.parametrize(("given", "threads"), [({}, "2"), ({"OMP_NUM_THREADS": "3"}, "3")])
def test_processes_share_the_threads_of_a_quota_and_a_number_of_the_users_stays(given, threads, monkeypatch):
    environment = dict(given)
    prepare_environment(environment, Cores(8, 8, 8, quota=4.0))
    for name in ("OMP_NUM_THREADS", RECORD, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"):
        monkeypatch.setenv(name, environment.get(name, ""))  # put back afterwards
    seen = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(api, "elastic_launch", lambda *_: lambda *words: seen.append(os.environ["OMP_NUM_THREADS"]))
    launch(2, ["train"])
    assert seen == [threads]
