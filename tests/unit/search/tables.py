"""A model whose probabilities are written down: searches over it can be computed by hand."""

from math import log

import torch

from headway.search import DecodingConfig, Request, Symbols, decode

START, END, A, B, C = range(5)
SYMBOLS = Symbols(START, END, (START,))
END_ONLY = {END: 1.0}


class Tables:
    """Next-token probabilities by prefix, a tree for each sentence; a prefix without an entry can only end.

    The state is the tree of every sentence with the prefixes of its rows. `unread` gives what rows left unread.
    """

    def __init__(self, *trees, vocabulary=5, unread=None):
        self.trees, self.vocabulary, self.unread_by_prefix = trees, vocabulary, unread or {}
        self.shapes = []

    def begin(self):
        return [(tree, [()]) for tree in self.trees]

    def step(self, tokens, parents, state):
        self.shapes.append(tuple(tokens.shape))
        assert len(tokens) == len(state)
        after = []
        for line, (tree, rows) in enumerate(state):
            continued = range(tokens.shape[1]) if parents is None else parents[line].tolist()
            after.append((tree, [(*rows[row], token) for row, token in zip(continued, tokens[line].tolist())]))  # noqa: B905
        table = torch.full((*tokens.shape, self.vocabulary), -torch.inf)
        for line, (tree, rows) in enumerate(after):
            for row, prefix in enumerate(rows):
                assert prefix[0] == START
                for token, probability in tree.get(prefix[1:], END_ONLY).items():
                    table[line, row, token] = log(probability) if probability else -torch.inf
        return table, after

    def keep(self, state, sentences):
        return [state[sentence] for sentence in sentences.tolist()]

    def unread(self, state):
        return torch.tensor([[self.unread_by_prefix.get(row[1:], 0.0) for row in rows] for _, rows in state])


class Noise:
    """Random next-token tables by sentence, step and newest token; the state is the sentence and the step."""

    def __init__(self, sentences, vocabulary, seed, sharpness=2.0, longest=24):
        generator = torch.Generator().manual_seed(seed)
        shape = sentences, longest + 1, vocabulary, vocabulary
        self.tables = (sharpness * torch.randn(shape, generator=generator)).log_softmax(-1)

    def begin(self, sentences=None):
        return torch.tensor([[sentence, 0] for sentence in sentences or range(len(self.tables))])

    def step(self, tokens, parents, state):
        return self.tables[state[:, :1], state[:, 1:], tokens].clone(), state + torch.tensor([0, 1])

    def keep(self, state, sentences):
        return state[sentences]


def settings(**changes):
    """Settings under which an output may have as many tokens as its source, and scores are log-probabilities."""
    return DecodingConfig(**{"limit_ratio": 1.0, "limit_extra": 0, "length_penalty": 0.0, **changes})


def search(*trees, limits=None, requests=None, stepper=None, symbols=SYMBOLS, **changes):
    """Decode one sentence for each tree; `requests` are what is asked of them beside their limits."""
    stepper = stepper or Tables(*trees)
    limits = limits or [4] * len(stepper.trees)
    requests = requests or [{} for _ in limits]
    asked = [Request((7,) * limit, **each) for limit, each in zip(limits, requests, strict=True)]
    return decode(stepper, stepper.begin(), asked, settings(**changes), symbols)
