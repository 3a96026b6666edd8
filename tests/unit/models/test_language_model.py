"""The language model: what it computes, and what it refuses."""

import math
import random

import pytest
import torch
from pydantic import ValidationError

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError
from headway.models.language import PRESETS, LanguageConfig, LanguageModel
from headway.proof import prove
from headway.search import DecodingConfig
from headway.sequences import Sequences
from headway.translator import Translator

VOCABULARY = 17
POSITIONS = ["sinusoidal", "learned", "rotary", "relative", "alibi"]
TEXTS = [[1, 4, 5, 6, 7, 9], [1, 3], [1, 8, 8, 3, 16]]


def built(seed=1, **settings):
    torch.manual_seed(seed)
    sizes = {"dim": 8, "heads": 2, "hidden": 12, "layers": 2, "longest": 24, "dropout": 0.0}
    model = LanguageModel(LanguageConfig(**sizes | settings), VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5) if weight.ndim > 1 else weight.add_(0.1 * torch.randn_like(weight))
    return model


def sourceless(count):
    return Sequences.pad([[2]] * count, 0)


def states_of(model, target):
    return model.decode(target, model.encode(sourceless(len(target.lengths)))).states


def normed(row, norm):
    mean = sum(row) / len(row)
    spread = math.sqrt(sum((each - mean) ** 2 for each in row) / len(row) + norm.eps)
    return [
        (each - mean) / spread * gain + offset
        for each, gain, offset in zip(row, norm.weight.tolist(), norm.bias.tolist(), strict=True)
    ]


def mapped(row, weight, bias):
    return [sum(a * b for a, b in zip(row, line, strict=True)) + c for line, c in zip(weight, bias, strict=True)]


def looked(query, keys, values):
    """What one query of one head finds, and its weights: softmax(q·k / √width) over the keys up to its own."""
    scores = [math.exp(sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query))) for key in keys]
    weights = [score / sum(scores) for score in scores]
    return [sum(w * value[i] for w, value in zip(weights, values, strict=True)) for i in range(len(query))], weights


def naive(model, tokens):
    """Log-probabilities of every next token, and the weights of layer 0, in plain loops; pre-norm, relu, sinusoidal."""
    dim, heads = model.config.dim, model.config.heads
    table = model.target_embedding.weight.tolist()
    rows = []
    for place, token in enumerate(tokens):
        angles = [place / 10_000 ** (2 * i / dim) for i in range(dim // 2)]
        wave = [*map(math.sin, angles), *map(math.cos, angles)]
        rows.append([value * math.sqrt(dim) + added for value, added in zip(table[token], wave, strict=True)])
    shown = []
    for layer in model.decoder.layers:
        own, width, collected = layer.attention, dim // heads, []
        entered = [normed(row, layer.attention_residual.norm) for row in rows]
        projected = [mapped(row, own.inputs.weight.tolist(), own.inputs.bias.tolist()) for row in entered]
        query, key, value = ([row[part * dim : (part + 1) * dim] for row in projected] for part in range(3))
        for time, row in enumerate(rows):
            mixed, weights = [], []
            for head in range(heads):
                cut = slice(head * width, (head + 1) * width)
                seen = range(time + 1)
                found, each = looked(query[time][cut], [key[k][cut] for k in seen], [value[k][cut] for k in seen])
                mixed, weights = mixed + found, [*weights, each]
            collected.append(weights)
            output = mapped(mixed, own.output.weight.tolist(), own.output.bias.tolist())
            rows[time] = [a + b for a, b in zip(row, output, strict=True)]
        for time, row in enumerate(rows):
            inner, outer = layer.feedforward.inner, layer.feedforward.outer
            hidden = mapped(normed(row, layer.feedforward_residual.norm), inner.weight.tolist(), inner.bias.tolist())
            output = mapped([max(0.0, each) for each in hidden], outer.weight.tolist(), outer.bias.tolist())
            rows[time] = [a + b for a, b in zip(row, output, strict=True)]
        shown.append(collected)
    found = []
    for row in rows:
        logits = mapped(normed(row, model.decoder.norm), model.output.weight.tolist(), model.output.bias.tolist())
        total = math.log(sum(map(math.exp, logits)))
        found.append([each - total for each in logits])
    return found, shown


def test_probabilities_and_attention_are_those_of_plain_loops():
    model = built(tie="none")
    target = Sequences.pad(TEXTS, 0)
    decoded = model.decode(target, model.encode(sourceless(3)), need_weights=True)
    got = model.output(decoded.states).log_softmax(-1)
    for number, tokens in enumerate(TEXTS):
        wanted, weights = naive(model, tokens)
        torch.testing.assert_close(got[number, : len(tokens)], torch.tensor(wanted), atol=1e-4, rtol=1e-4)
        for layer, of_layer in enumerate(weights):
            for time, heads in enumerate(of_layer):
                shown = decoded.self_weights[layer][number, :, time, : time + 1]
                torch.testing.assert_close(shown, torch.tensor(heads), atol=1e-5, rtol=1e-4)
                assert not decoded.self_weights[layer][number, :, time, time + 1 :].any()
    assert decoded.cross_weights == ()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_step_by_step_is_as_in_one_go_whatever_row_goes_on_from_which(positions, norm):
    model, chance = built(positions=positions, norm=norm, feedforward="gated"), random.Random(1)
    state, written = model.start(model.encode(sourceless(2))), [[[]], [[]]]
    for time, rows in enumerate((1, 3, 2, 4, 1, 3)):
        parents = [[chance.randrange(len(past)) for _ in range(rows)] for past in written]
        newest = [[chance.randrange(VOCABULARY) for _ in range(rows)] for _ in written]
        written = [
            [[*past[parent], token] for parent, token in zip(own, new, strict=True)]
            for past, own, new in zip(written, parents, newest, strict=True)
        ]
        got, state = model.step(torch.tensor(newest), torch.tensor(parents) if time else None, state)
        whole = states_of(model, Sequences.pad([row for past in written for row in past], 0))[:, -1]
        wanted = model.output(whole).log_softmax(-1)
        torch.testing.assert_close(got.flatten(0, 1), wanted, atol=1e-5, rtol=1e-4)
        if time == 3:
            state, written = model.keep(state, torch.tensor([1])), written[1:]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_packed_texts_have_the_states_and_the_gradient_of_padded_ones(positions):
    found = []
    for packed in (False, True):
        model = built(positions=positions)
        target = Sequences.pack(TEXTS) if packed else Sequences.pad(TEXTS, 0)
        source = Sequences.pack([[2]] * 3) if packed else sourceless(3)
        states = model(source, target)
        states = states if packed else states[target.present]
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        found.append((states, [weight.grad for weight in model.decoder.parameters()]))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)
    assert built(positions=positions).config.packable


@pytest.mark.parametrize("positions", ["relative", "alibi"])
def test_positions_in_the_scores_cannot_be_packed(positions):
    assert not LanguageConfig(positions=positions).packable


def test_no_source_is_read():
    model, target = built(), Sequences.pad(TEXTS, 0)
    others = Sequences.pad([[5, 6, 7], [8], [9, 9]], 0)
    assert torch.equal(model(others, target), model(sourceless(3), target))
    assert model.encode(others).states.shape == (3, 3, 8)


def test_the_tables_of_tokens_are_one_or_two():
    for tie, tables in (("two-way", 1), ("three-way", 1), ("none", 2)):
        model = built(tie=tie)
        weights = [weight for weight in model.parameters() if weight.shape == (VOCABULARY, 8)]
        assert len(weights) == tables
        assert (model.output.weight is model.target_embedding.weight) == (tables == 1)
        assert model.source_embedding is model.target_embedding


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_sizes_and_gives_way_to_what_is_set(preset):
    config = LanguageConfig(preset=preset, layers=3)
    assert (config.dim, config.hidden, config.layers) == (PRESETS[preset]["dim"], PRESETS[preset]["hidden"], 3)
    assert config.shape_in_words == f"3 layers of {config.dim}"
    with torch.device("meta"):
        held = sum(weight.numel() for weight in LanguageModel(config, 100, 100).parameters())
    assert config.fewest_parameters(100) <= held < 1.1 * config.fewest_parameters(100)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"dim": 10, "heads": 4}, "not divisible"),
        ({"dim": 9, "heads": 3}, "odd number"),
        ({"dim": 6, "heads": 2, "positions": "rotary"}, "odd number"),
        ({"dim": 16384, "longest": 65536}, "lower longest"),
        ({"feedforward": "convolutional"}, "relu"),
        ({"encoder_layers": 2}, "Extra inputs"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(settings, told):
    with pytest.raises(ValidationError, match=told):
        LanguageConfig(**settings)


def test_a_source_cannot_be_covered():
    model = built()
    with pytest.raises(ConfigError, match="coverage_penalty"):
        model.start(model.encode(sourceless(1)), coverage=True)


def test_every_proof_holds_for_a_language_model():
    texts = ["le chat voit", "la reine mange", "un chien garde tout le pain"]
    tokenizer = Tokenizer.train(texts, TokenizerConfig(kind="words"))
    torch.manual_seed(2)
    config = LanguageConfig(dim=16, heads=2, hidden=16, layers=2, longest=16)
    model = LanguageModel(config, tokenizer.size, tokenizer.size).eval()
    with torch.no_grad():
        model.output.bias[tokenizer.end] += 2.0  # outputs that end
    proof = prove(Translator(model, tokenizer, tokenizer, DecodingConfig()), texts, sentences=3)
    assert proof.passed, proof.lines()
    assert [name for name, finding in proof.findings.items() if finding.passed is None] == ["folder"]
