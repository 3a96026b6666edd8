"""The kernel that looks tokens up against double precision, interpreted where there is no GPU."""

from itertools import product

import pytest
import torch

pytest.importorskip("triton")

from headway.nn import dropout as doors
from headway.nn import looking
from headway.nn.chance import draws, new_seed, threshold
from headway.nn.dropout import Dropout
from headway.nn.embedding import Embedding, embedded
from headway.nn.looking import looked_up
from headway.nn.positions import LearnedPositions, Positions, SinusoidalPositions, sinusoids

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EXACT = {torch.float32: 1e-6, torch.bfloat16: 6e-3}


def factors(shape, probability, seed=5):
    """What dropout will multiply by, the generator left as it will find it."""
    torch.manual_seed(seed)
    drawn = draws(int(new_seed(DEVICE)), torch.arange(torch.Size(shape).numel())).view(shape)
    torch.manual_seed(seed)
    return ((drawn >= threshold(probability)).double() / (1 - probability)).to(DEVICE)


def distance(got, wanted):
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def weight_of(vocabulary, dim):
    return torch.randn(vocabulary, dim, generator=torch.Generator().manual_seed(1)).to(DEVICE).requires_grad_()


def assert_alike(tokens, weight, table, probability, dtype):
    positions = torch.arange(tokens.shape[-1], device=DEVICE).expand(tokens.shape)
    mask = factors((*tokens.shape, weight.shape[1]), probability)
    output = looked_up(tokens, weight, table, positions, 3.0, probability, dtype)
    assert output.dtype == dtype
    wide = weight.detach().double().requires_grad_()
    placed = wide[tokens] * 3.0 if table is None else wide[tokens] * 3.0 + table.double()[positions]
    assert distance(output, placed * mask) < EXACT[dtype]
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).to(DEVICE, dtype)
    (gradient,) = torch.autograd.grad(output, weight, direction)
    (wanted,) = torch.autograd.grad(placed * mask, wide, direction.double())
    assert gradient.dtype == torch.float32
    assert distance(gradient, wanted) < 1e-6
    assert torch.equal(gradient == 0, wanted == 0)


@pytest.mark.parametrize(
    ("dtype", "dim", "probability", "placed"),
    list(product([torch.float32, torch.bfloat16], [48, 130], [0.0, 0.3], [False, True])),
)
def test_looking_up_equals_scaling_placing_and_dropping(dtype, dim, probability, placed):
    tokens = torch.randint(0, 20, (3, 7), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    table = sinusoids(9, dim).to(DEVICE) if placed else None
    assert_alike(tokens, weight_of(23, dim), table, probability, dtype)


@pytest.mark.parametrize("times", [7, 8, 9, 71, 72, 73, 137, 200])
def test_a_frequent_token_gets_the_gradients_of_all_its_places(times):
    tokens = torch.cat((torch.full((times,), 6), torch.tensor([2, 9, 9, 0])))
    shuffled = tokens[torch.randperm(len(tokens), generator=torch.Generator().manual_seed(3))].to(DEVICE)
    assert_alike(shuffled, weight_of(10, 8), None, 0.3, torch.bfloat16)


def test_a_vocabulary_beyond_sixteen_bits_is_told_apart():
    tokens = torch.tensor([3, 3 + (1 << 16), 40_000, 3, 66_000, 32_768, 32_767], device=DEVICE)
    assert_alike(tokens, weight_of(66_001, 2), None, 0.0, torch.float32)


def test_the_last_token_of_a_vocabulary_of_sixteen_bits_is_known():
    tokens = torch.tensor([32_767, 0, 32_767], device=DEVICE)
    assert_alike(tokens, weight_of(32_768, 2), None, 0.0, torch.float32)


def test_the_same_generator_state_gives_the_same_bits_and_the_next_draw_others():
    tokens = torch.randint(0, 5, (60,), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    weight = weight_of(5, 16)

    def step():
        output = looked_up(tokens, weight, None, tokens, 1.0, 0.3, torch.bfloat16)
        return output, *torch.autograd.grad(output.sum(), weight)

    torch.manual_seed(1)
    first, second = step(), step()
    torch.manual_seed(1)
    assert all(torch.equal(*both) for both in zip(first, step(), strict=True))
    assert not torch.equal(first[0], second[0])


@pytest.mark.parametrize("order", [Positions(), SinusoidalPositions(16, 8), LearnedPositions(16, 8)])
def test_on_a_cpu_no_kernel_takes_part(order, monkeypatch):
    monkeypatch.setattr(doors, "element_kernels", lambda: pytest.fail("the door was open"))
    embedding, dropout = Embedding(10, 16), Dropout(0.3)
    tokens, positions = torch.tensor([[1, 2, 3]]), torch.tensor([[0, 1, 2]])
    torch.manual_seed(1)
    expected = dropout(order.embed(embedding(tokens), positions))
    torch.manual_seed(1)
    assert torch.equal(embedded(embedding, order, dropout, tokens, positions, wide=False), expected)


@pytest.mark.parametrize(
    ("kind", "served"), [(Positions, True), (SinusoidalPositions, True), (LearnedPositions, False)]
)
def test_the_kernel_serves_fixed_positions_and_gives_what_the_plain_way_gives(kind, served, monkeypatch):
    order = (kind() if kind is Positions else kind(16, 8)).to(DEVICE)
    embedding, dropout = Embedding(10, 16).to(DEVICE), Dropout(0.0)
    tokens, positions = torch.tensor([[1, 2, 3]], device=DEVICE), torch.tensor([[0, 1, 2]], device=DEVICE)
    expected = dropout(order.embed(embedding(tokens), positions))
    asked = []
    monkeypatch.setattr("headway.nn.embedding.rows_fused_here", lambda *_: True)
    monkeypatch.setattr(looking, "looked_up", lambda *given: asked.append(given) or looked_up(*given))
    torch.testing.assert_close(embedded(embedding, order, dropout, tokens, positions, wide=False), expected)
    assert bool(asked) != isinstance(order, LearnedPositions)
