"""The kernels of a GPU against the explicit path, and a Transformer in half precision."""

from itertools import product

import pytest
import torch

from headway.data.batches import Batch
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.attention import Visible, attend
from headway.nn.attention.attend import _flash_serves
from headway.nn.positions import attention_positions
from headway.objectives import LabelSmoothedLikelihood
from headway.sequences import Sequences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LENGTHS = [37, 5, 64, 1, 20]
START, END, VOCABULARY = 1, 2, 100


def packed_of(lengths):
    return Sequences.pack([[7] * length for length in lengths]).to("cuda")


def leaves(*shape, dtype, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).to("cuda", dtype).requires_grad_() for _ in range(3)]


def distance(got, wanted):
    """How far two tensors are apart, relative to the size of the wanted one."""
    return ((got.float() - wanted.float()).norm() / wanted.float().norm()).item()


@pytest.mark.parametrize(("causal", "window"), list(product([False, True], [None, 3])))
@pytest.mark.parametrize("width", [32, 64])
def test_the_packed_kernel_in_half_precision_equals_the_explicit_path(causal, window, width):
    sentences = packed_of(LENGTHS)
    visible = Visible.between(sentences, sentences, causal=causal, window=window)
    half = leaves(sum(LENGTHS), 4, width, dtype=torch.bfloat16)
    assert _flash_serves(half[0])
    output = attend(*half, visible).output
    exact = [x.detach().float().requires_grad_() for x in half]
    expected = attend(*exact, visible, need_weights=True).output
    assert distance(output, expected) < 2e-2
    direction = torch.randn(output.shape, device="cuda")
    (output * direction).sum().backward()
    (expected * direction).sum().backward()
    for mine, wanted in zip(half, exact, strict=True):
        assert mine.grad.isfinite().all()
        assert distance(mine.grad, wanted.grad) < 3e-2


@pytest.mark.parametrize("width", [12, 20, 320])
def test_a_head_width_the_packed_kernel_may_not_take_is_served_all_the_same(width):
    sentences = packed_of(LENGTHS)
    visible = Visible.between(sentences, sentences, causal=True)
    half = leaves(sum(LENGTHS), 2, width, dtype=torch.bfloat16)
    output = attend(*half, visible).output
    expected = attend(*[x.detach().float() for x in half], visible, need_weights=True).output
    assert distance(output, expected) < 2e-2
    output.sum().backward()
    assert all(x.grad.isfinite().all() for x in half)


def test_the_packed_kernel_serves_two_sides_of_unequal_length_and_blind_queries_get_zeros():
    lengths = [3, 40, 0, 7, 2]
    queries, keys = packed_of(LENGTHS), packed_of(lengths)
    visible = Visible.between(queries, keys)
    query = leaves(sum(LENGTHS), 4, 32, dtype=torch.bfloat16)[0]
    _, key, value = leaves(sum(lengths), 4, 32, dtype=torch.bfloat16, seed=2)
    output = attend(query, key, value, visible).output
    expected = attend(query.float(), key.float(), value.float(), visible, need_weights=True).output
    assert distance(output, expected) < 2e-2
    assert (output[42:106] == 0).all()
    (output * torch.randn_like(output)).sum().backward()
    assert all(x.grad.isfinite().all() for x in (query, key, value))


@pytest.mark.parametrize("kind", ["sinusoidal", "relative", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", [False, True])
def test_the_fused_kernels_in_half_precision_equal_single_precision(kind, causal, padding):
    torch.manual_seed(1)
    positions = attention_positions(kind, heads=4, width=32).cuda()
    present = Sequences.pad([[7] * length for length in LENGTHS], 0).present.cuda()
    visible = Visible(keys=present if padding else None, causal=causal)
    half = leaves(len(LENGTHS), max(LENGTHS), 4, 32, dtype=torch.bfloat16)
    output = attend(*half, visible, positions.bias).output
    expected = attend(*[x.detach().float() for x in half], visible, positions.bias, need_weights=True).output
    assert distance(output, expected) < 2e-2
    output.sum().backward()
    assert all(x.grad.isfinite().all() for x in half)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_blind_query_gets_zeros_and_finite_gradients_from_the_fused_kernels(dtype):
    query, key, value = leaves(3, 16, 4, 32, dtype=dtype)
    present = torch.ones(3, 16, dtype=torch.bool, device="cuda")
    present[1] = False
    output = attend(query, key, value, Visible(keys=present), drop=0.1).output
    assert (output[1] == 0).all()
    output.sum().backward()
    assert all(x.grad.isfinite().all() for x in (query, key, value))


def batch_of(lengths, packed):
    generator = torch.Generator().manual_seed(3)
    sentences = [torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]

    def layout(rows):
        return Sequences.pack(rows) if packed else Sequences.pad(rows, 0)

    labels = [[*sentence, END] for sentence in sentences]
    shifted = [[START, *sentence] for sentence in sentences]
    units = sum(map(len, labels))
    return Batch(layout(labels[::-1]), layout(shifted), layout(labels).tokens, units).to("cuda")


def build(positions):
    torch.manual_seed(1)
    config = TransformerConfig(
        dim=64, heads=2, hidden=128, encoder_layers=2, decoder_layers=2, longest=80, positions=positions, dropout=0.0
    )
    return Transformer(config, VOCABULARY, VOCABULARY).cuda()


def loss_and_gradient(model, batch, *, half):
    model.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        loss = LabelSmoothedLikelihood(0.1)(model, batch)
    (loss.total / loss.units).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return loss.total.item() / loss.units, gradient


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative", "alibi"])
def test_a_packed_pass_in_half_precision_is_close_to_a_padded_one_in_single(positions):
    model = build(positions)
    exact, wanted = loss_and_gradient(model, batch_of(LENGTHS, packed=False), half=False)
    loss, gradient = loss_and_gradient(model, batch_of(LENGTHS, packed=True), half=True)
    assert gradient.isfinite().all()
    assert loss == pytest.approx(exact, rel=1e-2)
    assert distance(gradient, wanted) < 5e-2


@pytest.mark.parametrize("half", [False, True])
def test_packed_and_padded_agree_on_the_gpu_in_one_precision(half):
    model = build("sinusoidal")
    first, padded = loss_and_gradient(model, batch_of(LENGTHS, packed=False), half=half)
    second, packed = loss_and_gradient(model, batch_of(LENGTHS, packed=True), half=half)
    assert second == pytest.approx(first, rel=1e-2 if half else 1e-5)
    assert distance(packed, padded) < (5e-2 if half else 1e-4)


def test_updates_on_the_gpu_lower_the_loss():
    model, batch = build("sinusoidal"), batch_of(LENGTHS, packed=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    losses = []
    for _ in range(5):
        losses.append(loss_and_gradient(model, batch, half=True)[0])
        optimiser.step()
    assert losses[-1] < losses[0]
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_cached_steps_on_the_gpu_equal_the_full_pass_with_tokens_from_the_host():
    model = build("rotary").eval()
    batch = batch_of([6, 3, 9], packed=False)
    with torch.inference_mode():
        encoded = model.encode(batch.source)
        full = model.output(model.decode(batch.target, encoded).states).float().log_softmax(-1)
        state = model.start(encoded)
        for time in range(4):
            scores, state = model.step(batch.target.tokens[:, time, None].cpu(), None, state)
            torch.testing.assert_close(scores[:, 0], full[:, time], rtol=1e-3, atol=1e-3)
        assert len(model.keep(state, torch.tensor([2, 0])).memory[0].key) == 2
