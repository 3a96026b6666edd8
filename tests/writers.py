"""What every model must do that writes one token after the other: checks that the tests of several models share."""

from unittest.mock import patch

import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.proof import CHECKS, prove, subject
from headway.search import DecodingConfig
from headway.sequences import Sequences
from headway.translator import Translator
from sentences import SENTENCES

SOURCES = [[4, 5, 6, 7, 8, 2], [9, 4, 2], [5, 5, 7, 2]]
TARGETS = [[1, 4, 6, 5, 9], [1, 7, 7], [1, 8]]
VOCABULARY = 11


def padded(rows):
    return Sequences.pad(rows, 0)


def lively(model, strength=0.3):
    """The same model with weights large enough to tell tokens apart."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(strength * torch.randn_like(weight))
    return model.eval()


def built(architecture, config, strength=0.3):
    torch.manual_seed(3)
    return lively(architecture(config, VOCABULARY, VOCABULARY), strength)


def stepped(model, state, steps):
    """Log-probabilities token by token, one row a sentence, and the state after them."""
    found = []
    for tokens in steps:
        scores, state = model.step(torch.tensor(tokens)[:, None], None, state)
        found.append(scores[:, 0])
    return torch.stack(found, 1), state


@torch.inference_mode()
def check_steps_give_what_one_pass_gives(model):
    targets = [[1, 4, 6, 5, 9, 3, 8, 4, 10, 7], [1, 7, 7, 3, 5, 9, 9, 6, 4, 8], [1, 8, 4, 4, 10, 5, 6, 3, 7, 9]]
    encoded = model.encode(padded(SOURCES))
    whole = model.output(model.decode(padded(targets), encoded).states).log_softmax(-1)
    steps, _ = stepped(model, model.start(encoded), list(zip(*targets, strict=True)))
    torch.testing.assert_close(steps, whole, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def check_a_state_is_a_value(model):
    """It may be continued twice, some sentences of it may be kept, and rows go on from their parents."""
    start = model.start(model.encode(padded(SOURCES)))
    _, state = stepped(model, start, [[1, 1, 1], [4, 5, 6]])
    first, _ = stepped(model, state, [[7, 8, 9], [9, 8, 7]])
    stepped(model, state, [[3, 3, 3], [3, 3, 3]])
    again, _ = stepped(model, state, [[7, 8, 9], [9, 8, 7]])
    assert torch.equal(first, again)
    kept, _ = stepped(model, model.keep(state, torch.tensor([2, 0])), [[9, 7], [7, 9]])
    torch.testing.assert_close(kept, first[[2, 0]], rtol=1e-4, atol=1e-4)
    # Three rows after the first token; then row 0 continues row 2, rows 1 and 2 continue row 1; then two are left.
    state = start
    for tokens, parents in [([1], None), ([4, 5, 6], [0, 0, 0]), ([7, 8, 9], [2, 1, 1]), ([3, 4], [1, 0])]:
        rows = None if parents is None else torch.tensor([parents] * 3)
        scores, state = model.step(torch.tensor([tokens] * 3), rows, state)
    for row, path in enumerate([[1, 5, 8, 3], [1, 6, 7, 4]]):
        alone, _ = stepped(model, start, [[token] * 3 for token in path])
        torch.testing.assert_close(scores[:, row], alone[:, -1], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def check_padding_changes_nothing(model):
    together = model.encode(padded(SOURCES))
    states = model.decode(padded(TARGETS), together).states
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        encoded = model.encode(padded([source]))
        torch.testing.assert_close(encoded.states[0], together.states[row, : len(source)])
        alone = model.decode(padded([target]), encoded).states[0]
        torch.testing.assert_close(alone, states[row, : len(target)])


def snapshot(model):
    """Every attribute of every module, by identity, with the entries of its dictionaries."""
    return {
        (name, key): (id(value), [*map(id, value.values())] if isinstance(value, dict) else repr(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


def check_a_pass_leaves_no_trace(model):
    for training in (True, False):
        model.train(training)
        before, weights = snapshot(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model(padded(SOURCES), padded(TARGETS))
        encoded = model.encode(padded(SOURCES), need_weights=True)
        model.decode(padded(TARGETS), encoded, need_weights=True)
        _, state = model.step(torch.tensor([[1], [1], [1]]), None, model.start(encoded))
        model.keep(state, torch.tensor([2, 0]))
        assert snapshot(model) == before
        assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def proved(architecture, config, *, strength=0.3, texts=()):
    """The proof of such a model with random weights and a vocabulary of its own, and which checks found nothing."""
    tokenizer = Tokenizer.train(SENTENCES, TokenizerConfig(vocabulary=300))
    torch.manual_seed(3)
    model = architecture(config, tokenizer.size, tokenizer.size)
    model.prepare(map(tokenizer.spelling, range(tokenizer.size)))
    translator = Translator(lively(model, strength), tokenizer, tokenizer, DecodingConfig(beam=2, longest=12))
    with patch.object(subject, "LONGEST_OUTPUT", 7):
        proof = prove(translator, texts, sentences=8)
    assert proof.failed == [], proof.lines()
    assert len(proof.findings) == len(CHECKS)
    return {name for name, finding in proof.findings.items() if finding.passed is None}
