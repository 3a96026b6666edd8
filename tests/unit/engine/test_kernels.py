"""The kernels that choose candidates in a captured beam search, interpreted: they are those of the plain search."""

import pytest
import torch

from headway.search.candidates import best

pytest.importorskip("triton")
from headway.engine import kernels  # needs triton

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted where there is no GPU")
BATCH, PLACES, END = 4, 3, 2


@pytest.mark.parametrize("vocabulary", [3, 40, 2048, 5000])
def test_candidates_are_the_best_of_the_softmax_with_what_is_barred_left_out(vocabulary):
    torch.manual_seed(vocabulary)
    logits, bias = torch.randn(BATCH, PLACES, vocabulary), torch.randn(vocabulary)
    logits[1, 2, vocabulary // 2 :] = logits[1, 2, 0]  # many equals: the lower id comes first
    bias[vocabulary // 2 :] = bias[0]
    barred = torch.zeros(vocabulary).index_fill_(0, torch.tensor([0, vocabulary - 1]), -torch.inf)
    short = torch.tensor([0, 1, 0, 1], dtype=torch.int8)
    values, tokens = kernels.candidates(logits, bias, barred, short, END)
    merits = (logits + bias).log_softmax(-1) + barred
    merits[short.bool(), :, END] = -torch.inf
    wanted, ids = best(merits, PLACES + 1)
    torch.testing.assert_close(values, wanted)
    possible = wanted > -torch.inf
    assert torch.equal(tokens[possible], ids[possible])
