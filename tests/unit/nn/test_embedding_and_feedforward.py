"""Embedding, projection and the feed-forward networks against their formulas."""

import math

import torch

from headway.nn.attention import Visible
from headway.nn.embedding import Embedding, Projection
from headway.nn.feedforward import ConvolutionalFeedForward, FeedForward
from headway.sequences import Sequences


def test_an_embedded_token_is_its_row_times_the_root_of_dim():
    embedding = Embedding(10, 16)
    tokens = torch.tensor([[3, 0], [9, 3]])
    torch.testing.assert_close(embedding(tokens), embedding.weight[tokens] * 4.0)


def test_an_embedded_token_starts_with_features_of_about_unit_size():
    torch.manual_seed(1)
    assert abs(Embedding(1000, 64)(torch.arange(1000)).std().item() - 1.0) < 0.02


def test_a_projection_multiplies_by_the_matrix_it_was_given_and_starts_with_no_bias():
    embedding = Embedding(10, 16)
    projection = Projection(embedding.weight)
    states = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(projection(states), states @ embedding.weight.T)
    with torch.no_grad():
        projection.bias.copy_(torch.arange(10.0))
    torch.testing.assert_close(projection(states), states @ embedding.weight.T + torch.arange(10.0))


def test_a_gated_network_multiplies_its_first_half_by_the_swish_of_its_second():
    torch.manual_seed(1)
    network, x = FeedForward(4, 6, kind="gated"), torch.randn(2, 3, 4)
    first, second = network.inner(x).split(6, -1)
    expected = network.outer(first * second / (1 + torch.exp(-second)))
    torch.testing.assert_close(network(x, Visible()), expected)


def test_a_convolutional_network_sees_each_position_and_its_neighbours_and_zeros_beyond_the_sentence():
    torch.manual_seed(1)
    network, lengths = ConvolutionalFeedForward(4, 6), [3, 1, 5]
    sentences = Sequences.pad([[7] * length for length in lengths], 0)
    x = torch.randn(3, 5, 4)
    output = network(x, Visible.between(sentences, sentences))
    kernel, bias = network.inner.weight, network.inner.bias
    for row, length in enumerate(lengths):
        for time in range(length):
            hidden = bias + sum(
                (
                    kernel[:, :, place] @ x[row, time + place - 1]
                    for place in range(3)
                    if 0 <= time + place - 1 < length
                ),
                start=torch.zeros(6),
            )
            expected = network.outer(hidden.clamp_min(0))
            torch.testing.assert_close(output[row, time], expected, rtol=1e-5, atol=1e-6)


def test_weights_start_within_the_bounds_of_xavier_and_biases_at_zero():
    torch.manual_seed(1)
    network = FeedForward(16, 48)
    bound = math.sqrt(6 / (16 + 48))
    assert 0.9 * bound < network.inner.weight.abs().max().item() <= bound
    assert (network.inner.bias == 0).all()
    assert (network.outer.bias == 0).all()
