"""Laws of the model and its objective over random sentences and settings."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.sequences import Sequences

VOCABULARY, START, END = 12, 1, 2
POSITIONS = ["sinusoidal", "learned", "rotary", "relative", "alibi"]
sentences = st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=9)
pairs = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5)
seldom = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def models(draw):
    config = TransformerConfig(
        dim=8,
        heads=2,
        hidden=12,
        encoder_layers=draw(st.integers(1, 2)),
        decoder_layers=draw(st.integers(1, 2)),
        longest=12,
        positions=draw(st.sampled_from(POSITIONS)),
        feedforward=draw(st.sampled_from(["relu", "gelu", "gated", "convolutional"])),
        norm=draw(st.sampled_from(["pre", "post"])),
        window=draw(st.sampled_from([None, None, 1, 4])),
        tie=draw(st.sampled_from(["three-way", "two-way", "none"])),
    )
    torch.manual_seed(draw(st.integers(0, 1000)))
    return Transformer(config, VOCABULARY, VOCABULARY).double().eval()


def layout(rows, packed, padding=0):
    return Sequences.pack(rows) if packed else Sequences.pad(rows, padding)


def batch_of(chosen, packed):
    labels = [[*target, END] for _, target in chosen]
    return Batch(
        layout([[*source, END] for source, _ in chosen], packed),
        layout([[START, *target] for _, target in chosen], packed),
        layout(labels, packed).tokens,
        sum(map(len, labels)),
    )


def gradients(model, losses):
    model.zero_grad()
    for loss in losses:
        loss.total.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@seldom
@given(models(), pairs, st.booleans())
def test_cached_decoding_equals_the_full_pass(model, chosen, shuffled):
    source = Sequences.pad([source for source, _ in chosen], 0)
    length = max(len(target) for _, target in chosen)
    rows = [[START, *target, *([3] * (length - len(target)))] for _, target in chosen]
    encoded = model.encode(source)
    full = model.output(model.decode(Sequences.pad(rows, 0), encoded).states).float().log_softmax(-1)
    state, order = model.start(encoded), torch.arange(len(rows))
    for time in range(length + 1):
        if shuffled and time % 2:
            state, order = model.keep(state, torch.arange(len(rows)).flip(0)), order.flip(0)
        scores, state = model.step(torch.tensor(rows)[order, time, None], None, state)
        torch.testing.assert_close(scores[:, 0], full[order, time], rtol=1e-5, atol=1e-5)


@seldom
@given(models(), pairs, st.integers(3, VOCABULARY - 1))
def test_neighbours_padding_and_layout_never_change_a_sentence(model, chosen, padding):
    sources, targets = [source for source, _ in chosen], [target for _, target in chosen]
    alone = torch.cat([model(Sequences.pad([s], 0), Sequences.pad([t], 0))[0] for s, t in chosen])
    padded = layout(targets, False, padding)
    together = model(layout(sources, False, padding), padded)[padded.present]
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(model(layout(sources, True), layout(targets, True)), alone)


@seldom
@given(models(), pairs, st.data(), st.sampled_from([0.0, 0.1]))
def test_splitting_a_batch_never_changes_the_gradient(model, chosen, data, smoothing):
    objective = LabelSmoothedLikelihood(smoothing)
    whole = objective(model, batch_of(chosen, data.draw(st.booleans())))
    expected = gradients(model, [whole])
    marks = data.draw(st.lists(st.integers(0, 2), min_size=len(chosen), max_size=len(chosen)))
    groups = [[pair for pair, mark in zip(chosen, marks, strict=True) if mark == each] for each in range(3)]
    parts = [objective(model, batch_of(group, data.draw(st.booleans()))) for group in groups if group]
    assert sum(part.units for part in parts) == whole.units
    torch.testing.assert_close(sum(part.total for part in parts), whole.total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sum(part.surprise for part in parts), whole.surprise, rtol=1e-5, atol=1e-5)
    got = gradients(model, parts)
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-4, atol=1e-5)


@seldom
@given(models(), pairs, st.randoms(use_true_random=False))
def test_the_order_of_sentences_in_a_batch_is_of_no_consequence(model, chosen, chance):
    order = list(range(len(chosen)))
    chance.shuffle(order)
    before = model(*(Sequences.pad([pair[side] for pair in chosen], 0) for side in (0, 1)))
    after = model(*(Sequences.pad([chosen[row][side] for row in order], 0) for side in (0, 1)))
    present = Sequences.pad([chosen[row][1] for row in order], 0).present
    torch.testing.assert_close(after[present], before[order][present])
