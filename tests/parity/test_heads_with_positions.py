"""`MultiHeadAttention` with every position kind against each head written out."""

import math

import pytest
import torch

from headway.nn.attention import GrowingPast, MultiHeadAttention, Visible
from headway.nn.positions import attention_positions

DIM, HEADS, TIME = 8, 2, 5
WIDTH = DIM // HEADS
KINDS = ["sinusoidal", "rotary", "relative", "alibi"]


def build(kind):
    torch.manual_seed(1)
    attention = MultiHeadAttention(DIM, HEADS, positions=attention_positions(kind, heads=HEADS, width=WIDTH)).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, TIME, DIM, dtype=torch.float64)
    return attention, x


def turned(vectors):
    """Each row turned by its place, pair by pair, as complex numbers."""
    numbers = torch.complex(*vectors.chunk(2, -1))
    speed = torch.tensor([10_000 ** (-2 * pair / WIDTH) for pair in range(WIDTH // 2)], dtype=torch.float64)
    angle = torch.arange(TIME, dtype=torch.float64)[:, None] * speed
    numbers = numbers * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((numbers.real, numbers.imag), -1)


def by_hand(attention, kind, sentence):
    """One sentence, head by head, without a mask."""
    query, key, value = (sentence @ attention.inputs.weight.T + attention.inputs.bias).split(DIM, -1)
    distance = torch.arange(TIME) - torch.arange(TIME)[:, None]
    mixed = []
    for head in range(HEADS):
        q, k, v = (each[:, head * WIDTH : (head + 1) * WIDTH] for each in (query, key, value))
        q, k = (turned(q), turned(k)) if kind == "rotary" else (q, k)
        scores = q @ k.T
        if kind == "relative":
            scores = scores + torch.einsum("iw,ijw->ij", q, attention.positions.table[distance + 16])
        scores = scores / math.sqrt(WIDTH)
        if kind == "alibi":
            scores = scores - 2.0 ** (-8 * (head + 1) / HEADS) * distance.abs()
        mixed.append(scores.softmax(-1) @ v)
    return torch.cat(mixed, -1) @ attention.output.weight.T + attention.output.bias


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("need_weights", [False, True])
def test_self_attention_takes_its_positions_into_account(kind, need_weights):
    attention, x = build(kind)
    attended, _ = attention(x, Visible(), torch.arange(TIME).expand(2, TIME), need_weights=need_weights)
    expected = torch.stack([by_hand(attention, kind, sentence) for sentence in x])
    torch.testing.assert_close(attended.output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_to_another_sequence_knows_of_no_positions(kind):
    attention, x = build(kind)
    attended = attention.cross(x, attention.remember(x), Visible())
    expected = torch.stack([by_hand(attention, "none", sentence) for sentence in x])
    torch.testing.assert_close(attended.output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_positions_given_in_two_parts_are_those_of_the_whole(kind):
    attention, x = build(kind)
    places = torch.arange(TIME).expand(2, TIME)
    whole, memory = attention(x, Visible(causal=True), places, GrowingPast())
    _, past = attention(x[:, :3], Visible(causal=True), places[:, :3], GrowingPast())
    later, remembered = attention(x[:, 3:], Visible(causal=True), places[:, 3:], past)
    torch.testing.assert_close(later.output, whole.output[:, 3:])
    torch.testing.assert_close(remembered.held(), memory.held())
