"""What the Transformer promises: no look-ahead, no trace, states as values, weights on request."""

from itertools import product

import pytest
import torch

from headway.models.transformer import Transformer, TransformerConfig
from headway.sequences import Sequences

POSITIONS = ["sinusoidal", "learned", "rotary", "relative", "alibi"]
FEED_FORWARDS = ["relu", "gelu", "gated", "convolutional"]
COMBINATIONS = [
    *product(["sinusoidal"], FEED_FORWARDS, ["pre", "post"]),
    *product(POSITIONS[1:], ["convolutional"], ["post"]),
]
SOURCES, TARGETS = [[4, 5, 6], [7], [8, 9, 4, 5, 6]], [[1, 5, 6, 7, 8], [1, 9, 4], [1]]
every_position = pytest.mark.parametrize("positions", POSITIONS)
every_layout = pytest.mark.parametrize("packed", [False, True])


def build(**options):
    torch.manual_seed(1)
    sizes = {"dim": 8, "heads": 2, "hidden": 12, "encoder_layers": 2, "decoder_layers": 2, "longest": 16}
    model = Transformer(TransformerConfig(**{**sizes, **options}), 12, 12).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def layout(sentences, packed):
    return Sequences.pack(sentences) if packed else Sequences.pad(sentences, 0)


def embedded(model):
    """The embedded source and target of the next pass, as it goes by."""
    seen = []
    model.dropout.register_forward_hook(lambda module, inputs, output: seen.append(output))
    return seen


def cell(row, time, packed):
    return sum(map(len, TARGETS[:row])) + time if packed else (row, time)


@every_position
@every_layout
@pytest.mark.parametrize("feedforward", ["relu", "convolutional"])
def test_no_position_depends_on_a_later_token_or_on_another_sentence(positions, packed, feedforward):
    model = build(positions=positions, feedforward=feedforward)
    seen = embedded(model)
    states = model(layout(SOURCES, packed), layout(TARGETS, packed))
    direction = torch.randn(8, dtype=torch.float64)
    for row, target in enumerate(TARGETS):
        for time in range(len(target)):
            source, gradient = torch.autograd.grad(states[cell(row, time, packed)] @ direction, seen, retain_graph=True)
            allowed = torch.zeros(gradient.shape[:-1], dtype=torch.bool)
            for earlier in range(time + 1):
                allowed[cell(row, earlier, packed)] = True
            assert (gradient[~allowed] == 0).all()
            assert (gradient[allowed] != 0).any(-1).all()
            own = layout([[int(r == row)] * len(s) for r, s in enumerate(SOURCES)], packed).tokens.bool()
            assert (source[~own] == 0).all()
            assert (source[own] != 0).any(-1).all()


@every_position
def test_a_cached_step_reaches_back_to_every_earlier_token(positions):
    model = build(positions=positions)
    state = model.start(model.encode(Sequences.pad([[4, 5]], 0)))
    seen = embedded(model)
    for token in [1, 6, 7, 8]:
        scores, state = model.step(torch.tensor([[token]]), None, state)
    for gradient in torch.autograd.grad(scores[0, 0, 3], seen):
        assert (gradient != 0).any()


@every_position
def test_a_later_token_never_changes_an_earlier_state(positions):
    model = build(positions=positions)
    source = Sequences.pad([SOURCES[0]], 0)
    before = model(source, Sequences.pad([[1, 4, 5, 6]], 0))
    after = model(source, Sequences.pad([[1, 4, 9, 8]], 0))
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2:], after[:, 2:])


@pytest.mark.parametrize(("positions", "feedforward", "norm"), list(product(POSITIONS, FEED_FORWARDS, ["pre", "post"])))
def test_padded_and_packed_batches_give_the_states_and_gradients_of_single_sentences(positions, feedforward, norm):
    model = build(positions=positions, feedforward=feedforward, norm=norm)
    direction = torch.randn(8, dtype=torch.float64)

    def gradients(states):
        parameters = list(model.parameters())
        return torch.autograd.grad((states @ direction).square().sum(), parameters, allow_unused=True)

    singles = [
        model(Sequences.pad([source], 0), Sequences.pad([target], 0))[0]
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    wanted = gradients(torch.cat(singles))
    padded = model(layout(SOURCES, False), layout(TARGETS, False))[layout(TARGETS, False).present]
    for states in (padded, model(layout(SOURCES, True), layout(TARGETS, True))):
        torch.testing.assert_close(states, torch.cat(singles))
        for got, gradient in zip(gradients(states), wanted, strict=True):
            assert (got is None) == (gradient is None)
            if gradient is not None:
                torch.testing.assert_close(got, gradient)


@pytest.mark.parametrize("token", [0, 3, 11])
def test_what_stands_in_a_padding_cell_is_of_no_consequence(token):
    model = build(feedforward="convolutional")
    expected = model(Sequences.pad(SOURCES, 0), Sequences.pad(TARGETS, 0))
    present = Sequences.pad(TARGETS, 0).present
    got = model(Sequences.pad(SOURCES, token), Sequences.pad(TARGETS, token))
    torch.testing.assert_close(got[present], expected[present], rtol=0, atol=0)


@every_position
@every_layout
def test_asking_for_weights_changes_no_state_and_gives_one_matrix_a_layer_head_and_sentence(positions, packed):
    model = build(positions=positions, encoder_layers=3, decoder_layers=1)
    source, target = layout(SOURCES, packed), layout(TARGETS, packed)
    plain, asked = model.encode(source), model.encode(source, need_weights=True)
    here = source.present
    torch.testing.assert_close(asked.states[here], plain.states[here])
    without, decoded = model.decode(target, plain), model.decode(target, asked, need_weights=True)
    torch.testing.assert_close(decoded.states[target.present], without.states[target.present])
    assert (plain.weights, without.self_weights, without.cross_weights) == ((), (), ())
    sides = {"encoder": (SOURCES, SOURCES), "self": (TARGETS, TARGETS), "cross": (TARGETS, SOURCES)}
    given = {"encoder": asked.weights, "self": decoded.self_weights, "cross": decoded.cross_weights}
    assert {name: len(weights) for name, weights in given.items()} == {"encoder": 3, "self": 1, "cross": 1}
    for name, (queries, keys) in sides.items():
        for weights in given[name]:
            assert weights.shape == (3, 2, max(map(len, queries)), max(map(len, keys)))
            for row, (query, key) in enumerate(zip(queries, keys, strict=True)):
                own = weights[row, :, : len(query)]
                torch.testing.assert_close(own.sum(-1), torch.ones(2, len(query), dtype=torch.float64))
                assert (own[..., len(key) :] == 0).all()
                if name == "self":
                    assert (own.triu(1) == 0).all()


@every_position
def test_the_encoder_tells_one_order_of_the_same_tokens_from_another(positions):
    model = build(positions=positions)
    states = model.encode(Sequences.pad([[4, 5, 6]], 0)).states
    swapped = model.encode(Sequences.pad([[5, 4, 6]], 0)).states
    assert not torch.allclose(swapped[:, [1, 0, 2]], states, rtol=1e-2)


def snapshot(model):
    """Every attribute of every module, by identity, with the entries of its dictionaries."""
    return {
        (name, key): (id(value), [*map(id, value.values())] if isinstance(value, dict) else repr(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


@every_position
@pytest.mark.parametrize("training", [False, True])
def test_a_pass_leaves_no_trace_on_any_module(positions, training):
    model = build(positions=positions, dropout=0.1, attention_dropout=0.1, feedforward="convolutional").train(training)
    before, weights = snapshot(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for packed in (False, True):
        model(layout(SOURCES, packed), layout(TARGETS, packed))
    encoded = model.encode(layout(SOURCES, False), need_weights=True)
    model.decode(layout(TARGETS, False), encoded, need_weights=True)
    _, state = model.step(torch.tensor([[1], [1], [1]]), None, model.start(encoded))
    _, state = model.step(torch.full((3, 2), 4), torch.zeros(3, 2, dtype=torch.int64), state)
    model.keep(state, torch.tensor([2, 0]))
    assert snapshot(model) == before
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def decoded(model, state, steps):
    """Log-probabilities step by step."""
    found = []
    for tokens in steps:
        scores, state = model.step(torch.tensor(tokens)[:, None], None, state)
        found.append(scores[:, 0])
    return torch.stack(found, 1), state


@every_position
def test_kept_sentences_go_on_as_they_would_have_in_their_old_place(positions):
    model = build(positions=positions)
    state = model.start(model.encode(layout(SOURCES, False)))
    _, state = decoded(model, state, [[1, 1, 1], [4, 5, 6]])
    chosen = torch.tensor([2, 0, 0])
    whole, _ = decoded(model, state, [[7, 8, 9], [9, 8, 7]])
    rows = [2, 0, 0]
    selected, _ = decoded(
        model, model.keep(state, chosen), [[[7, 8, 9][r] for r in rows], [[9, 8, 7][r] for r in rows]]
    )
    torch.testing.assert_close(selected, whole[chosen])


def test_keeping_some_leaves_the_old_state_as_it_was():
    model = build()
    _, state = decoded(model, model.start(model.encode(layout(SOURCES, False))), [[1, 1, 1]])
    before, _ = decoded(model, state, [[4, 5, 6]])
    decoded(model, model.keep(state, torch.tensor([1])), [[9], [9]])
    after, _ = decoded(model, state, [[4, 5, 6]])
    assert torch.equal(before, after)


def test_one_model_serves_two_decodings_at_once():
    model = build(positions="relative")
    alone = [decoded(model, model.start(model.encode(Sequences.pad([s], 0))), [[1], [5], [6]])[0] for s in SOURCES[:2]]
    states = [model.start(model.encode(Sequences.pad([s], 0))) for s in SOURCES[:2]]
    for time, token in enumerate([1, 5, 6]):
        for which in (0, 1):
            scores, states[which] = model.step(torch.tensor([[token]]), None, states[which])
            assert torch.equal(scores[:, 0], alone[which][:, time])


def test_a_step_gives_log_probabilities_that_sum_to_one():
    scores, _ = decoded(build(), build().start(build().encode(layout(SOURCES, False))), [[1, 1, 1]])
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(3, 1))


@every_position
def test_rows_of_a_sentence_go_on_from_their_parents(positions):
    model = build(positions=positions)
    start = model.start(model.encode(layout(SOURCES, False)))
    # Per sentence: three rows after the first token; then row 0 continues row 2, and rows 1 and 2 continue row 1.
    steps = [([1], None), ([4, 5, 6], [0, 0, 0]), ([7, 8, 9], [2, 1, 1]), ([3, 4], [1, 0])]
    paths = [[1, 5, 8, 3], [1, 6, 7, 4]]
    state = start
    for tokens, parents in steps:
        rows = None if parents is None else torch.tensor([parents] * 3)
        scores, state = model.step(torch.tensor([tokens] * 3), rows, state)
    for row, path in enumerate(paths):
        alone, _ = decoded(model, start, [[token] * 3 for token in path])
        torch.testing.assert_close(scores[:, row], alone[:, -1])


def test_a_state_may_be_continued_twice():
    model = build()
    _, state = decoded(model, model.start(model.encode(layout(SOURCES, False))), [[1, 1, 1], [4, 4, 4]])
    first, _ = decoded(model, state, [[5, 5, 5], [6, 6, 6]])
    decoded(model, state, [[9, 9, 9], [9, 9, 9]])
    again, _ = decoded(model, state, [[5, 5, 5], [6, 6, 6]])
    assert torch.equal(first, again)


@every_position
def test_a_step_in_fixed_room_is_a_step(positions):
    model = build(positions=positions)
    with torch.inference_mode():
        encoded = model.encode(layout(SOURCES, False))
        state, fixed = model.start(encoded), model.fixed(encoded, rows=2, longest=4)
        _, state = model.step(torch.tensor([[1]] * 3), None, state)
        steps = [([1, 1], [0, 0]), ([4, 5], [0, 0]), ([6, 7], [1, 0]), ([8, 9], [0, 0])]
        for tokens, parents in steps:
            rows = torch.tensor([parents] * 3)
            scores, _ = model.step(torch.tensor([tokens] * 3), rows, fixed)
            fixed.length.add_(1)
            fixed.lineage.slots.add_(2)
            if tokens != [1, 1]:
                expected, state = model.step(torch.tensor([tokens] * 3), rows, state)
                torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("straight", [False, True])
def test_heads_may_be_wider_or_narrower_than_their_share_of_the_features(straight):
    for width in (2, 6):
        model = build(head_dim=width).float()
        assert model.encoder.layers[0].attention.inputs.weight.shape == (3 * 2 * width, 8)
        if straight:
            model.straighten()
        source, target = layout(SOURCES, False), layout([[1, 5, 6], [1, 9, 4], [1, 4, 4]], False)
        encoded = model.encode(source)
        whole = model.output(model.decode(target, encoded).states).log_softmax(-1)
        state = model.start(encoded)
        for time in range(3):
            got, state = model.step(target.tokens[:, time : time + 1], None, state)
            torch.testing.assert_close(got[:, 0], whole[:, time])
        assert model.fixed(encoded, rows=1, longest=4).past[0].key.shape == (3, 4, 2, width)
        assert sum(weight.numel() for weight in model.parameters()) >= model.config.fewest_parameters(12)
