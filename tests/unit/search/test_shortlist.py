import pytest
import torch

from headway.search.shortlist import shortlist


@pytest.mark.parametrize("count", [1, 3, 5, 40, 64, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_equals_a_stable_sort_of_the_whole_vocabulary_however_many_tie(count, dtype):
    generator = torch.Generator().manual_seed(count)
    scores = torch.randint(-6, 0, (50, 64), generator=generator).to(dtype)
    expected = scores.double().sort(dim=1, descending=True, stable=True)
    values, tokens = shortlist(scores, count)
    assert torch.equal(values, expected.values[:, :count])
    assert torch.equal(tokens, expected.indices[:, :count])


def test_forbidden_tokens_are_impossible_and_leave_the_input_alone():
    scores = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    values, tokens = shortlist(scores, 2, forbidden=[0, 2])
    assert tokens.tolist() == [[1, 3]]
    assert values.tolist() == [[-2.0, -4.0]]
    assert scores[0, 0] == -1.0
    values, _ = shortlist(scores, 4, forbidden=[0, 2])
    assert values.tolist() == [[-2.0, -4.0, -torch.inf, -torch.inf]]
