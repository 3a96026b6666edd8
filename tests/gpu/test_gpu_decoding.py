import pytest
import torch

from headway.engine import Engine
from headway.engine.captured import Captured, Room
from headway.engine.readiness import ready
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.attention import Visible, attend
from headway.search import DecodingConfig, Request, Scoring, Symbols
from headway.search.beam import Beam

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SYMBOLS = Symbols(1, 2, (0, 1))


def build(vocabulary=5000, **settings):
    torch.manual_seed(3)
    config = TransformerConfig(dim=64, heads=4, hidden=128, encoder_layers=2, decoder_layers=2, **settings)
    model = Transformer(config, vocabulary, vocabulary).eval().cuda()
    model.output.bias.data[2] += 4.0
    return model


def requests(count=13, vocabulary=5000):
    numbers = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 40, (count,), generator=numbers).tolist()
    return [Request(tuple(torch.randint(3, vocabulary, (n,), generator=numbers).tolist())) for n in lengths]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative", "alibi"])
@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 4, "nbest": 3},
        {"beam": 1},
        {"beam": 5, "nbest": 2, "length_penalty": 0.0, "shortest_ratio": 0.5},
        {"beam": 3, "limit_ratio": 0.0, "limit_extra": 40},
        {"beam": 20},
    ],
)
def test_a_captured_search_finds_what_the_search_step_by_step_finds(positions, settings):
    model, config = build(positions=positions), DecodingConfig(**settings)
    captured = Engine(model, SYMBOLS).search(requests(), config)
    model.capturable = False
    plain = Engine(model, SYMBOLS).search(requests(), config)
    host = Engine(build(positions=positions).cpu(), SYMBOLS).search(requests(), config)
    for other in (plain, host):
        for found, expected in zip(captured, other, strict=True):
            assert [each.tokens for each in found] == [each.tokens for each in expected]
            assert [each.finished for each in found] == [each.finished for each in expected]
            for one, two in zip(found, expected, strict=True):
                assert one.score == pytest.approx(two.score, abs=1e-3)
                assert one.token_log_probabilities == pytest.approx(two.token_log_probabilities, abs=1e-3)


def test_a_search_captured_once_serves_other_sentences_and_changed_weights():
    model, config = build(), DecodingConfig(beam=3)
    engine = Engine(model, SYMBOLS)
    engine.search(requests(16), config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.1)
    later = requests(16)[::-1]
    again = engine.search(later, config)
    model.capturable = False
    expected = engine.search(later, config)
    assert [each[0].tokens for each in again] == [each[0].tokens for each in expected]


def test_weights_that_are_not_numbers_are_told():
    model = build()
    model.output.weight.data.fill_(torch.nan)
    with pytest.raises(Exception, match="not a number"):
        Engine(model, SYMBOLS).search(requests(), DecodingConfig())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_attention_of_few_queries_equals_the_explicit_one(kind, width):
    torch.manual_seed(1)
    query = torch.randn(3, 5, 4, width, device="cuda", dtype=kind)
    memory = torch.randn(3, 150, 2, 4, width, device="cuda", dtype=kind)
    key, value = memory.unbind(2)
    added = torch.zeros(3, 1, 5, 150, device="cuda").masked_fill_(
        torch.rand(3, 1, 5, 150, device="cuda") < 0.5, -torch.inf
    )
    added[..., 0] = 0.0
    added[0, :, 2, 1:] = -torch.inf
    for mask in (added.to(kind), added[:, :, :1].to(kind), None):
        visible = Visible(added=mask)
        with torch.inference_mode():
            got = attend(query, key, value, visible).output
        expected = attend(
            query.double(),
            key.double(),
            value.double(),
            Visible(added=None if mask is None else mask.double()),
            need_weights=True,
        ).output
        torch.testing.assert_close(got.double(), expected, rtol=0.02, atol=2e-2 if kind == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize(("batch", "beam", "vocabulary"), [(3, 4, 5000), (2, 1, 70), (5, 3, 37_000), (2, 7, 9)])
def test_the_kernels_choose_as_their_twins_do(batch, beam, vocabulary):
    from headway.engine import kernels

    torch.manual_seed(batch)
    limits = torch.randint(0, 12, (batch,), device="cuda")
    shortest = torch.randint(0, 3, (batch,), device="cuda")
    bias = torch.randn(vocabulary, device="cuda")
    barred = torch.zeros(vocabulary, device="cuda").index_fill_(0, torch.tensor([0, 1], device="cuda"), -torch.inf)
    scoring = Scoring(0.6)
    penalties = ((5.0 + torch.arange(20, dtype=torch.float64, device="cuda")) / 6.0) ** 0.6
    plain = Beam.begin(limits, beam, min(2, beam))
    first = torch.full((batch, beam), -torch.inf, dtype=torch.float64, device="cuda")
    first[:, 0] = 0.0
    from dataclasses import replace

    from headway.search.found import Found

    length = torch.zeros((), dtype=torch.int64, device="cuda")
    plain = replace(plain, totals=first, length=length)
    ours = replace(plain, totals=first.clone(), done=plain.done.clone(), found=Found.none(batch, beam, limits.device))
    newest, parents = torch.zeros(2, batch, beam, dtype=torch.int64, device="cuda")
    written, ancestors = torch.zeros(2, 20, batch, beam, dtype=torch.int64, device="cuda")
    surprises = torch.zeros(20, batch, beam, dtype=torch.float64, device="cuda")
    for time in range(14):
        # Halves make ties, which must be settled alike.
        logits = (torch.randn(batch, beam, vocabulary, device="cuda") * 4).round() / 2
        logits[..., 2] += 3.0
        short = shortest > time
        full = (logits + bias).log_softmax(-1).index_fill(-1, torch.tensor([0, 1], device="cuda"), -torch.inf)
        full[..., 2].masked_fill_(short[:, None], -torch.inf)
        after, taken = plain.extend(full, full, scoring=scoring, end=2, blind=True)
        length.fill_(time)
        values, tokens = kernels.candidates(logits, bias, barred, short.to(torch.int8), 2)
        kernels.book(ours, values, tokens, penalties, 2, newest, parents, (written, ancestors, surprises))
        plain = replace(after, length=torch.tensor(time + 1, device="cuda"))
        assert torch.equal(plain.done, ours.done)
        alive = plain.totals > -torch.inf
        torch.testing.assert_close(plain.totals, ours.totals, rtol=1e-5, atol=1e-5)
        assert torch.equal(taken.tokens[alive], newest[alive])
        assert torch.equal(taken.parents[alive], parents[alive])
        torch.testing.assert_close(taken.values[alive], surprises[time][alive], rtol=1e-5, atol=1e-5)
        assert torch.equal(plain.found.count, ours.found.count)
        shown = plain.found.scores > -torch.inf
        torch.testing.assert_close(plain.found.scores, ours.found.scores, rtol=1e-5, atol=1e-5)
        for one, two in zip(plain.found.parts()[1:5], ours.found.parts()[1:5], strict=True):
            torch.testing.assert_close(one[shown], two[shown], rtol=1e-5, atol=1e-5)
        limits_hit = plain.done.all()
    assert limits_hit


def test_half_precision_keeps_the_tables_of_positions_exact():
    model = ready(build(positions="rotary"), "bf16")
    assert model.output.weight.dtype == torch.bfloat16
    assert all(buffer.dtype == torch.float32 for buffer in model.buffers())
    found = Engine(model, SYMBOLS).search(requests(), DecodingConfig(beam=2))
    assert all(found)


def test_room_is_rounded_up_to_few_sizes():
    room = Room.fitting(requests(13), DecodingConfig(), 512)
    assert room.sentences == 16
    assert room.source % 16 == 0
    with torch.inference_mode():
        assert len(Captured(build(), SYMBOLS, room).run(requests(13), DecodingConfig())) == 13
