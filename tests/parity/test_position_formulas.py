"""Every position kind against its paper's formula, written independently."""

import math

import pytest
import torch

from headway.nn.attention import Visible, attend
from headway.nn.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    distances,
    sinusoids,
)

WIDTH = 6


def test_sinusoids_are_the_waves_of_the_paper_with_the_sines_before_the_cosines():
    table, dim = sinusoids(40, 8), 8
    for place in range(40):
        for pair in range(dim // 2):
            angle = place / 10_000 ** (2 * pair / dim)
            assert table[place, pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[place, dim // 2 + pair].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("shift", [1, 5, 30])
def test_a_shift_of_a_sinusoidal_position_is_one_linear_map_for_all_positions(shift):
    table = sinusoids(80, 8).double()
    angles = [shift / 10_000 ** (2 * pair / 8) for pair in range(4)]
    cosine, sine = torch.diag(torch.tensor(angles).cos()), torch.diag(torch.tensor(angles).sin())
    turn = torch.cat((torch.cat((cosine, sine), 1), torch.cat((-sine, cosine), 1))).double()
    torch.testing.assert_close(table[:-shift] @ turn.T, table[shift:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_added_positions_add_the_row_of_each_token_wherever_it_stands(kind):
    torch.manual_seed(1)
    positions, embedded = kind(8, 10), torch.randn(4, 8)
    places = torch.tensor([0, 1, 0, 7])
    marked = positions.embed(embedded, places)
    for row, place in enumerate(places.tolist()):
        torch.testing.assert_close(marked[row], embedded[row] + positions.table[place])


def test_rotary_turns_each_pair_of_features_as_a_complex_number():
    positions, heads = RotaryPositions(WIDTH), torch.randn(1, 9, 2, WIDTH, generator=torch.Generator().manual_seed(1))
    turned = positions.turn(heads, torch.arange(9)[None])
    half = WIDTH // 2
    for place in range(9):
        for pair in range(half):
            before = complex(heads[0, place, 1, pair], heads[0, place, 1, half + pair])
            after = before * complex(math.cos(angle := place / 10_000 ** (2 * pair / WIDTH)), math.sin(angle))
            assert turned[0, place, 1, pair].item() == pytest.approx(after.real, abs=1e-5)
            assert turned[0, place, 1, half + pair].item() == pytest.approx(after.imag, abs=1e-5)


def test_the_product_of_rotary_queries_and_keys_depends_on_their_distance_only():
    generator = torch.Generator().manual_seed(1)
    query, key = (torch.randn(WIDTH, generator=generator).expand(1, 60, 1, WIDTH) for _ in range(2))
    positions, places = RotaryPositions(WIDTH), torch.arange(60)[None]
    turned_query, turned_key = positions.turn(query, places)[0, :, 0], positions.turn(key, places)[0, :, 0]
    products = turned_query @ turned_key.T
    by_distance = [products.diagonal(distance) for distance in range(-20, 21)]
    for diagonal in by_distance:
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-4)
    assert len({round(diagonal[0].item(), 3) for diagonal in by_distance}) > 20


def test_rotary_keeps_the_length_of_every_vector_and_leaves_position_zero_alone():
    positions, heads = RotaryPositions(WIDTH), torch.randn(1, 5, 2, WIDTH, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(positions.turn(heads, torch.zeros(1, 5, dtype=torch.int64)), heads)
    turned = positions.turn(heads, torch.arange(5)[None] * 100)
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))


@pytest.mark.parametrize("queries", [1, 4, 9])
def test_relative_positions_equal_a_vector_added_to_every_key_as_each_query_sees_it(queries):
    """Shaw et al., equation 5: e = q·(k + a)/√width, with a table entry for every clipped distance."""
    torch.manual_seed(1)
    keys, furthest = 9, 3
    positions = RelativePositions(WIDTH, furthest)
    query, key, value = (
        torch.randn(2, queries, 2, WIDTH),
        torch.randn(2, keys, 2, WIDTH),
        torch.randn(2, keys, 2, WIDTH),
    )
    got = attend(query, key, value, Visible(), positions.bias, need_weights=True)
    for i in range(queries):
        place = i + keys - queries
        rows = [positions.table[min(max(j - place, -furthest), furthest) + furthest] for j in range(keys)]
        marked = key + torch.stack(rows)[:, None]
        scores = torch.einsum("bhw,bkhw->bhk", query[:, i], marked) / math.sqrt(WIDTH)
        torch.testing.assert_close(got.weights[:, :, i], scores.softmax(-1), rtol=1e-5, atol=1e-6)


def test_alibi_slopes_halve_from_head_to_head_and_its_penalty_grows_with_distance():
    positions = AlibiPositions(8)
    assert positions.slopes.tolist() == [2.0**-power for power in range(1, 9)]
    bias = positions.bias(torch.zeros(1, 3, 8, 4), distances(3, 5, torch.device("cpu")))
    for head in range(8):
        for i in range(3):
            for j in range(5):
                assert bias[0, head, i, j].item() == -(2.0 ** -(head + 1)) * abs(j - (i + 2))


@pytest.mark.parametrize(
    ("heads", "powers"),
    [
        (1, [8]), (2, [4, 8]), (3, [4, 8, 2]), (4, [2, 4, 6, 8]), (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]), (16, [place / 2 for place in range(1, 17)]),
    ],
)  # fmt: skip
def test_slopes_of_any_number_of_heads_are_those_of_the_papers_code(heads, powers):
    """For n that is no power of two: the slopes of the one below, then every other slope of the one above."""
    assert AlibiPositions(heads).slopes.tolist() == pytest.approx([2.0**-power for power in powers])


def test_the_last_query_stands_at_the_last_key():
    assert distances(2, 4, torch.device("cpu")).tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]


def test_relative_positions_have_a_vector_for_every_distance_and_begin_as_large_as_a_unit():
    torch.manual_seed(1)
    table = RelativePositions(64, 200).table
    assert table.shape == (401, 64)
    assert table.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.05)
