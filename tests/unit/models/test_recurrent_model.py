"""Recurrent models: whole targets and single steps agree, padding changes nothing, what does not fit is refused."""

import pytest
import torch

from headway.config import validated
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.nn.recomputing import recomputing
from headway.proof import CHECKS, Subject, look, subject
from headway.search import DecodingConfig
from headway.sequences import Sequences
from headway.translator import Translator
from sentences import SENTENCES

SMALL = {"dim": 8, "encoder_layers": 2, "decoder_layers": 2, "attention_hidden": 6, "longest": 32, "window_size": 2}
SOURCE = Sequences.pad([[3, 4, 5, 6, 7, 2], [5, 2], [7, 8, 9, 2]], 0)
TARGET = Sequences.pad([[1, 4, 5, 6, 7, 9, 3, 4, 5], [1, 5, 6], [1, 8, 9, 7]], 0)
KINDS = {
    "fixed": {"attention": "none"},
    "fixed, one direction": {"attention": "none", "bidirectional": False, "cell": "lstm"},
    "additive": {"cell": "lstm"},
    "additive, current": {"query": "current", "bidirectional": False},
    "dot": {"attention": "dot", "cell": "lstm"},
    "scaled dot, fed": {"attention": "scaled-dot", "input_feeding": True},
    "multiplicative": {"attention": "multiplicative", "cell": "rnn"},
    "multiplicative, previous": {"attention": "multiplicative", "query": "previous"},
    "function, fed": {"attention": "function", "input_feeding": True, "cell": "lstm"},
    "window that moves on": {"attention": "multiplicative", "window": "local-m"},
    "window that is predicted": {"attention": "dot", "window": "local-p", "input_feeding": True},
    "window before the step": {"window": "local-p"},
}
PARALLEL = {"fixed", "fixed, one direction", "additive, current", "dot", "multiplicative", "window that moves on"}


def built(kind, **settings):
    torch.manual_seed(1)
    model = Recurrent(RecurrentConfig(**{**SMALL, "dropout": 0.0, **KINDS[kind], **settings}), 12, 12)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embedding" not in name and "output" not in name:
                weight.add_(torch.randn_like(weight) * 0.3)  # nothing is zero or orthogonal by chance
    return model.eval()


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_step_by_step_the_states_and_weights_are_those_of_whole_targets(kind):
    model = built(kind)
    encoded = model.encode(SOURCE)
    whole = model.decode(TARGET, encoded, need_weights=True)
    state = model.start(encoded, coverage=bool(whole.cross_weights))
    for time in range(TARGET.longest):
        states, state = model.advance(TARGET.tokens[:, time : time + 1], None, state)
        torch.testing.assert_close(states, whole.states[:, time : time + 1])
    if whole.cross_weights:
        (weights,) = whole.cross_weights
        torch.testing.assert_close(state.coverage, weights.sum(2))
        unread = [
            weights[row, 0, :, :length].sum(0).clamp(1e-9, 1.0).log().sum() for row, length in enumerate((6, 2, 4))
        ]
        torch.testing.assert_close(model.unread(state)[:, 0], torch.stack(unread))


def test_steps_that_read_nothing_of_the_one_before_can_go_together(kind):
    assert built(kind).decoder.parallel == (kind in PARALLEL)


@pytest.mark.parametrize("kind", sorted(PARALLEL))
def test_all_positions_at_once_are_one_after_the_other_and_so_are_their_gradients(kind):
    model = built(kind)
    gradients = []
    for read in (model.decoder.whole, model.decoder.stepwise):
        model.zero_grad()
        encoded = model.encode(SOURCE)
        x = model.target_embedding(TARGET.tokens)
        states, weights = read(x, model.decoder.remember(encoded), model.decoder.start(encoded))
        (states * torch.arange(8)).square().sum().backward()
        gradients.append([states, weights, *(each.grad for each in model.parameters() if each.grad is not None)])
    for once, stepwise in zip(*gradients, strict=True):
        assert (once is None) == (stepwise is None)
        if once is not None:
            torch.testing.assert_close(once, stepwise, atol=1e-4, rtol=1e-4)


def test_padding_and_other_sentences_change_no_state(kind):
    model = built(kind)
    whole = model.decode(TARGET, model.encode(SOURCE)).states
    for row in range(3):
        source = Sequences.pad([SOURCE.tokens[row, : int(SOURCE.lengths[row])].tolist()], 0)
        target = Sequences.pad([TARGET.tokens[row, : int(TARGET.lengths[row])].tolist()], 0)
        alone = model.decode(target, model.encode(source)).states
        torch.testing.assert_close(alone[0], whole[row, : target.longest])


def test_every_weight_learns_also_in_low_precision_and_computed_again(kind):
    model = built(kind, dropout=0.2).train()
    gradients = []
    for again in (False, True):
        model.zero_grad()
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16), recomputing(again):
            states = model(SOURCE, TARGET)
        (states.float() * torch.arange(8)).sum().backward()
        gradients.append({name: each.grad for name, each in model.named_parameters() if name != "output.bias"})
    for name, gradient in gradients[0].items():
        assert gradient is not None and bool(gradient.isfinite().all()) and float(gradient.abs().max()) > 0, name
        assert torch.equal(gradient, gradients[1][name]), name


def test_the_query_of_bahdanau_is_the_state_before_and_that_of_luong_the_state_of_now():
    for kind, time in (("additive", 2), ("additive, current", 3)):
        model = built(kind)
        encoded = model.encode(SOURCE)
        state, tops = model.start(encoded), []
        for place in range(4):
            tops.append(state.carried.layers[-1][0])
            _, state = model.advance(TARGET.tokens[:, place : place + 1], None, state)
        tops.append(state.carried.layers[-1][0])
        wanted = model.decoder.attention(tops[time + 1], model.decoder.remember(encoded), torch.tensor([3])).weights
        found = model.decode(TARGET, encoded, need_weights=True).cross_weights[0][:, 0, 3:4]
        torch.testing.assert_close(found, wanted)


def test_input_feeding_hands_on_the_state_that_predicted():
    model = built("scaled dot, fed")
    state = model.start(model.encode(SOURCE))
    assert float(state.carried.fed.abs().max()) == 0.0
    states, after = model.advance(TARGET.tokens[:, :1], None, state)
    assert torch.equal(after.carried.fed, states)


def test_a_fixed_context_has_no_weights_and_no_coverage():
    model = built("fixed")
    encoded = model.encode(SOURCE, need_weights=True)
    decoded = model.decode(TARGET, encoded, need_weights=True)
    assert encoded.weights == decoded.self_weights == decoded.cross_weights == ()
    with pytest.raises(ConfigError, match="coverage_penalty: a model of one fixed context has no attention"):
        model.start(encoded, coverage=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dim": 7}, "dim 7 is odd: two directions need an even one, or set bidirectional = false"),
        ({"attention": "none", "window": "local-m"}, "looks at nothing"),
        ({"attention": "none", "input_feeding": True}, "looks at nothing"),
        ({"attention": "none", "query": "current"}, "looks at nothing"),
        ({"input_feeding": True}, 'set query = "current"'),
        ({"cell": "sru"}, "cell"),
        ({"attention": "cosine"}, "attention"),
        ({"window_size": 0}, "window_size: should be greater than 0"),
        ({"encoder_layers": 0}, "encoder_layers: should be greater than 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        validated(RecurrentConfig, wrong, "model")


@pytest.mark.parametrize("settings", [{}, {"cell": "lstm", "bidirectional": False}, {"attention": "none"}])
def test_the_fewest_parameters_are_no_more_and_hardly_fewer_than_there_are(settings):
    config = RecurrentConfig(**settings)
    with torch.device("meta"):
        count = sum(weight.numel() for weight in Recurrent(config, 4000, 4000).parameters())
    assert 0.85 * count < config.fewest_parameters(4000) <= count
    assert 2e6 < count < 5e6


@pytest.mark.parametrize(
    "kind", ["fixed", "additive", "function, fed", "window that moves on", "window before the step"]
)
def test_a_model_that_was_never_trained_is_proven(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "LONGEST_OUTPUT", 7)
    tokenizer = Tokenizer.train(SENTENCES, TokenizerConfig(vocabulary=300))
    torch.manual_seed(1)
    model = Recurrent(RecurrentConfig(**{**SMALL, **KINDS[kind]}), tokenizer.size, tokenizer.size).eval()
    Translator(model, tokenizer, tokenizer, DecodingConfig(beam=2, longest=12)).save(tmp_path / "model")
    looked_at = Subject.of(tmp_path / "model", count=4)
    findings = {name: look(name, looked_at) for name in CHECKS}
    assert {name for name, finding in findings.items() if not finding.passed} == {"layout"}
    assert findings["layout"].passed is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_begins_with_no_offset_of_its_own(kind):
    torch.manual_seed(1)
    model = Recurrent(RecurrentConfig(**{**SMALL, **KINDS[kind]}), 12, 12)
    for linear in (model.decoder.begin, model.decoder.join):
        assert not linear.bias.any()
        assert linear.weight.abs().max() <= (6 / sum(linear.weight.shape)) ** 0.5
