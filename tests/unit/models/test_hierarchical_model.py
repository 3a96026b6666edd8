"""Hierarchical models: every weight by plain loops, where sentences end, steps, settings, and a run from end to end."""

import math

import pytest
import torch

import writers
from headway.config import validated
from headway.errors import ConfigError
from headway.models.hierarchical import Hierarchical, HierarchicalConfig
from headway.translator import load

SMALL = {"dim": 8, "attention_hidden": 6, "longest": 32, "dropout": 0.0}
STOP, MARK = 9, 10
SOURCES = [[4, 5, STOP, 6, 7, 8, STOP, MARK, 5, 2], [4, STOP, 2], [5, 5, 7, 2]]
SENTENCES = [[[4, 5, STOP], [6, 7, 8, STOP, MARK], [5, 2]], [[4, STOP, 2]], [[5, 5, 7, 2]]]


def build(**changes):
    model = writers.built(Hierarchical, HierarchicalConfig(**{**SMALL, **changes}))
    model.prepare(["", "", "", "", "a", "b", "c", "d", "e", ".", "|."])
    return model


def softmax(scores):
    powers = [math.exp(float(score)) for score in scores]
    return [power / sum(powers) for power in powers]


def mixed(weights, vectors):
    return sum(weight * vector for weight, vector in zip(weights, vectors, strict=True))


def read(encoder, vectors):
    """Both directions of one layer, a vector at a time."""
    found = []
    for layer, order in ((encoder.forwards[0], vectors), (encoder.backwards[0], vectors[::-1])):
        state, states = (torch.zeros(1, 1, layer.dim),), []
        for vector in order:
            state = layer.step(vector[None, None], state)
            states.append(state[0][0, 0])
        found.append(states)
    return [torch.cat(pair) for pair in zip(found[0], found[1][::-1], strict=True)]


def pooled(pooling, vectors):
    """Equations (5) to (7) of the paper: the vector, and the weights."""
    weights = softmax(pooling.sought @ torch.tanh(pooling.inner(vector[None])[0]) for vector in vectors)
    return mixed(weights, vectors), weights


def score(additive, query, key):
    inner = torch.tanh(additive.query.weight @ query + additive.query.bias + additive.key.weight @ key)
    return additive.weight @ inner


def understood(model, sentences, target):
    """One document, a vector at a time: states of words, pooling and cross weights, and states of the target."""
    embedding, encoder = model.source_embedding, model.encoder
    words = [read(encoder.words, list(embedding(torch.tensor(sentence)))) for sentence in sentences]
    inner = [pooled(encoder.word_pooling, each) for each in words]
    above = read(encoder.sentences, [vector for vector, _ in inner])
    document, outer = pooled(encoder.sentence_pooling, above)
    shares = [share * weight for share, (_, weights) in zip(outer, inner, strict=True) for weight in weights]
    state, states, cross = (torch.tanh(model.begin(document[None]))[None],), [], []
    for token in target:
        state = model.decoder[0].step(model.target_embedding(torch.tensor([[token]])), state)
        query = state[0][0, 0]
        if model.attention is None:
            context, weights = document, shares
        else:
            attention = model.attention
            outside = softmax(score(attention.sentence_score, query, each) for each in above)
            inside = [softmax(score(attention.word_score, query, each) for each in own) for own in words]
            weights = [share * weight for share, own in zip(outside, inside, strict=True) for weight in own]
            context = mixed(weights, [state for own in words for state in own]) + mixed(outside, above)
        states.append(torch.tanh(model.join(torch.cat((query, context))[None])[0]))
        cross.append(weights)
    return [state for own in words for state in own], [weights for _, weights in inner], shares, cross, states


@pytest.mark.parametrize("context", ["words", "document"])
@torch.no_grad()
def test_every_weight_and_state_is_that_of_plain_loops_and_weights_sum_to_one(context):
    model = build(context=context)
    encoded = model.encode(writers.padded(SOURCES), need_weights=True)
    decoded = model.decode(writers.padded(writers.TARGETS), encoded, need_weights=True)
    (cross,), (within, document) = decoded.cross_weights, encoded.weights
    assert cross.shape == (3, 1, 5, 10) and within.shape == document.shape == (3, 1, 10, 10)
    for row, (sentences, target) in enumerate(zip(SENTENCES, writers.TARGETS, strict=True)):
        size, length = sum(map(len, sentences)), len(target)
        words, inner, shares, weights, states = understood(model, sentences, target)
        torch.testing.assert_close(encoded.states[row, :size], torch.stack(words), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(cross[row, 0, :length, :size], torch.tensor(weights), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(cross[row, 0, :length].sum(-1), torch.ones(length))
        assert (cross[row, 0, :length, size:] == 0).all()
        torch.testing.assert_close(decoded.states[row, :length], torch.stack(states), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(document[row, 0, 0, :size], torch.tensor(shares), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(within[row, 0, :size].sum(-1), torch.ones(size))
        first = torch.tensor([*inner[0], *[0.0] * (size - len(inner[0]))])
        torch.testing.assert_close(within[row, 0, 0, :size], first, rtol=1e-4, atol=1e-5)


CHANGES = [{}, {"context": "document"}, {"word_layers": 2, "sentence_layers": 2, "decoder_layers": 2}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_steps_give_what_one_pass_gives_and_their_state_is_a_value(changes, monkeypatch):
    monkeypatch.setattr(writers, "SOURCES", SOURCES)
    model = build(**changes)
    writers.check_steps_give_what_one_pass_gives(model)
    writers.check_a_state_is_a_value(model)


def test_padding_changes_no_state_and_a_pass_leaves_no_trace(monkeypatch):
    monkeypatch.setattr(writers, "SOURCES", SOURCES)
    writers.check_padding_changes_nothing(build())
    writers.check_a_pass_leaves_no_trace(build(dropout=0.1))


def test_a_sentence_ends_with_a_full_stop_a_line_end_or_the_boundary_and_nowhere_else():
    model = Hierarchical(HierarchicalConfig(**SMALL, boundary="|"), 9, 9)
    model.prepare(["</s>", "a", ".", " end.", "3.1", "。", "x\n", " | ", "?!"])
    assert model.ends.tolist() == [0, 0, 1, 1, 0, 1, 1, 1, 1]
    assert not model.ends.requires_grad
    plain = Hierarchical(HierarchicalConfig(**SMALL), 2, 2)
    plain.prepare(["|", "."])
    assert plain.ends.tolist() == [0, 1]


def test_a_boundary_that_no_token_spells_is_refused():
    with pytest.raises(ConfigError, match=r"model\.boundary: no source token ends in '§'"):
        Hierarchical(HierarchicalConfig(**SMALL, boundary="§"), 2, 2).prepare(["a", "."])


@torch.no_grad()
def test_a_sentence_far_below_the_best_still_has_weights_that_sum_to_its_own():
    """Scores 200 apart: the powers of one sentence are zero beside those of the other, but not among themselves."""
    model = build()
    model.attention.word_score.weight.mul_(0).add_(200.0)
    model.attention.word_score.query.bias.zero_()
    encoded = model.encode(writers.padded(SOURCES))
    model.attention.word_score.key.weight.copy_(torch.linspace(-1, 1, 8).expand(6, 8) * 9)
    (cross,) = model.decode(writers.padded([[1, 4]] * 3), encoded, need_weights=True).cross_weights
    torch.testing.assert_close(cross.sum(-1), torch.ones(3, 1, 2))
    parts = cross[0, 0, 0].split([3, 5, 2])
    assert all(part.sum() > 0 for part in parts)


@torch.no_grad()
def test_what_was_read_of_the_source_is_the_sum_of_the_weights():
    model = build()
    encoded = model.encode(writers.padded(SOURCES))
    target = [[1, 4, 6], [1, 7, 7], [1, 8, 3]]
    weights = model.decode(writers.padded(target), encoded, need_weights=True).cross_weights[0].sum(2)[:, 0]
    _, state = writers.stepped(model, model.start(encoded, coverage=True), list(zip(*target, strict=True)))
    torch.testing.assert_close(state.coverage[:, 0], weights, rtol=1e-4, atol=1e-5)
    expected = [
        sum(math.log(min(1.0, float(each))) for each in weights[row, : len(source)])
        for row, source in enumerate(SOURCES)
    ]
    torch.testing.assert_close(model.unread(state)[:, 0], torch.tensor(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("context", ["words", "document"])
def test_a_proof_of_a_hierarchical_model_finds_nothing_wrong(context):
    config = HierarchicalConfig(dim=16, attention_hidden=8, longest=32, context=context)
    texts = ["le chat voit . un chien . la", "tout", "Zoë mange . le pain .", "la reine garde l'arbre . tout . le chat"]
    assert writers.proved(Hierarchical, config, texts=texts) == {"folder", "layout"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dim": 7}, "dim 7 is odd"),
        ({"boundary": "a b"}, "boundary 'a b' has a blank in it"),
        ({"context": "sentence"}, "context"),
        ({"word_layers": 0}, "word_layers: should be greater than 0"),
        ({"encoder_layers": 2}, "encoder_layers"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(wrong, said):
    with pytest.raises(ConfigError) as refusal:
        validated(HierarchicalConfig, wrong, "recipe")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("context", ["words", "document"])
def test_the_fewest_parameters_are_nearly_all(context):
    config = HierarchicalConfig(context=context)
    with torch.device("meta"):
        count = sum(weight.numel() for weight in Hierarchical(config, 4000, 4000).parameters())
    assert 0.98 * count < config.fewest_parameters(4000) <= count
    assert 2e6 < count < 5e6


RUN = {"model.architecture": "hierarchical", "model.dim": 16, "model.attention_hidden": 8, "training.ema": 0.9}


def test_a_run_trains_translates_keeps_its_sentence_ends_and_is_gone_on_with(headway, corpus, tmp_path, tiny):
    keep = {name: value for name, value in tiny.items() if not name.startswith("model.")}
    sets = [part for name, value in (keep | RUN).items() for part in ("--set", f"{name}={value}")]
    files = ["--source", corpus[0], "--target", corpus[1], "--device", "cpu"]
    dry = headway("train", *files, "--dry-run", *sets, "--set", "model.dim=32")
    assert "masks: no position sees a later one" in dry.err and "sane" in dry.err
    assert headway("train", *files, "--out", tmp_path / "run", *sets).code == 0
    source = b"le chat voit . un chien mange .\ntout\n"
    lines = headway("translate", tmp_path / "run", "--beam", 3, "--nbest", 2, "--device", "cpu", stdin=source).lines
    assert {line.split(" ||| ")[0] for line in lines} == {"0", "1"}
    page = tmp_path / "page.html"
    assert headway("attention", tmp_path / "run", "le chat . un", "--out", page, "--device", "cpu").code == 0
    assert "cross" in page.read_text(encoding="utf-8")
    saved = load(tmp_path / "run")
    spelled = map(saved.source.spelling, range(saved.source.size))
    expected = [float(text.rstrip(" ").endswith((".", "!", "?", "\n"))) for text in spelled]
    assert saved.model.ends.tolist() == expected and sum(expected) >= 1
    more = ["--set", f"start.model={tmp_path / 'run'}", "--set", "start.extend=5", "--set", "training.steps=2"]
    more += ["--set", "training.batch_tokens=256", "--set", "training.validation_sentences=2"]
    assert headway("train", *files, "--out", tmp_path / "more", *more).code == 0
    again = load(tmp_path / "more")
    assert again.source.size > saved.source.size
    assert set(again.model.ends.tolist()) == {0.0, 1.0}


def test_a_boundary_that_no_text_holds_is_refused_before_training(headway, corpus, tmp_path):
    files = ["--source", corpus[0], "--target", corpus[1], "--out", tmp_path / "run", "--device", "cpu"]
    sets = [
        "--set",
        "model.architecture=hierarchical",
        "--set",
        "model.boundary=§",
        "--set",
        "tokenizer.vocabulary=300",
    ]
    assert "model.boundary: no source token ends in '§'" in headway("train", *files, *sets).complaint
