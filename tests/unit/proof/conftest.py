"""Ways to break a model, each by one line that somebody might write."""

import sys
from dataclasses import replace

import pytest
import torch

from headway.data.tokenizer import JsonTokenizer
from headway.models.transformer import Transformer
from headway.nn.attention import GrowingLineage, GrowingPast, KeyValues, Visible
from headway.proof import subject
from headway.search import Scoring, beam, greedy
from headway.search.records import Records
from headway.sequences import Sequences

decode = sys.modules["headway.search.decode"]  # the package has a function of that name


def causal_mask_leaks(monkeypatch):
    between = Visible.between.__func__

    def leaking(cls, queries, keys, *, causal=False, window=None):
        return between(cls, queries, keys, causal=False, window=window)

    monkeypatch.setattr(Visible, "between", classmethod(leaking))


def cached_positions_are_one_too_high(monkeypatch):
    advance = Transformer.advance

    def late(self, tokens, parents, state):
        states, after = advance(self, tokens, parents, replace(state, length=state.length + 1))
        return states, replace(after, length=after.length - 1)

    monkeypatch.setattr(Transformer, "advance", late)


def padding_is_read_in_the_search(monkeypatch):
    monkeypatch.setattr(Visible, "ready", lambda self: Visible())


def padding_is_read_in_training(monkeypatch):
    between = Visible.between.__func__

    def careless(cls, queries, keys, *, causal=False, window=None):
        return replace(between(cls, queries, keys, causal=causal, window=window), keys=None)

    monkeypatch.setattr(Visible, "between", classmethod(careless))


def cache_forgets_the_oldest_key(monkeypatch):
    held = GrowingPast.held

    def forgetful(self):
        key, value = held(self)
        return KeyValues(key.index_fill(1, torch.tensor([0]), 0.0), value) if self.length > 3 else KeyValues(key, value)

    monkeypatch.setattr(GrowingPast, "held", forgetful)


def norm_knows_the_batch(monkeypatch):
    forward = torch.nn.LayerNorm.forward
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: forward(self, x + x.mean(0, keepdim=True)))


def rows_ignore_their_parents(monkeypatch):
    grown = GrowingLineage.grown

    def orphaned(self, parents, rows):
        return grown(self, None if parents is None else torch.zeros_like(parents), rows)

    monkeypatch.setattr(GrowingLineage, "grown", orphaned)


def outputs_ignore_their_parents(monkeypatch):
    add = Records.add
    monkeypatch.setattr(
        Records,
        "add",
        lambda self, taken, lines: add(self, replace(taken, parents=torch.zeros_like(taken.parents)), lines),
    )


def packed_positions_run_on(monkeypatch):
    positions = Sequences.positions.func
    monkeypatch.setattr(
        Sequences, "positions", property(lambda self: positions(self).flip(0) if self.packed else positions(self))
    )


def likeliest_token_is_passed_over(monkeypatch):
    monkeypatch.setattr(greedy, "top", lambda merits: tuple(each[:, 1:] for each in merits.topk(2, -1)))


def third_token_is_another(monkeypatch):
    extend = beam.Beam.extend

    def confused(self, log_probabilities, merits, **options):
        if self.length == 2:
            merits = log_probabilities = log_probabilities.roll(1, -1)
        return extend(self, log_probabilities, merits, **options)

    monkeypatch.setattr(beam.Beam, "extend", confused)


def end_symbol_does_not_count(monkeypatch):
    score = Scoring.score
    monkeypatch.setattr(
        Scoring, "score", lambda self, totals, lengths, unread=None: score(self, totals, lengths - 1, unread)
    )


def worst_comes_first(monkeypatch):
    ranked = decode.ranked
    monkeypatch.setattr(decode, "ranked", lambda found, count, *, unique: ranked(found, count, unique=unique)[::-1])


def tokenizer_loses_a_letter(monkeypatch):
    encode = JsonTokenizer._encode
    monkeypatch.setattr(
        JsonTokenizer, "_encode", lambda self, texts: encode(self, [text.replace("e", "") for text in texts])
    )


BROKEN = {
    causal_mask_leaks: "look-ahead",
    padding_is_read_in_training: "look-ahead",
    packed_positions_run_on: "layout",
    cached_positions_are_one_too_high: "cache",
    cache_forgets_the_oldest_key: "cache",
    rows_ignore_their_parents: "ancestry",
    norm_knows_the_batch: "batch",
    padding_is_read_in_the_search: "padding",
    outputs_ignore_their_parents: "search",
    third_token_is_another: "search",
    likeliest_token_is_passed_over: "greedy",
    end_symbol_does_not_count: "rescoring",
    worst_comes_first: "n-best",
    tokenizer_loses_a_letter: "tokenizer",
}
"""Every way with the check that must notice it; others may notice it too."""


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Short outputs: a proof in a moment."""
    monkeypatch.setattr(subject, "LONGEST_OUTPUT", 7)


@pytest.fixture(params=[breaks.__name__ for breaks in BROKEN])
def broken(request, monkeypatch):
    """One way after the other: the check that must fail while it is in place."""
    (found,) = [breaks for breaks in BROKEN if breaks.__name__ == request.param]
    found(monkeypatch)
    return BROKEN[found]
