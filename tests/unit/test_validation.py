"""Which pairs a validation judges, and what is said of a model that has learned nothing."""

import pytest
import torch

from headway.data.pairs import Pair
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.finish import _warn_if_untrained
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.training.trainer import Validation
from headway.validation import Validator, spread
from toys import batch_of

torch.manual_seed(1)
MODEL = Transformer(
    TransformerConfig(dim=4, heads=1, hidden=4, encoder_layers=1, decoder_layers=1, longest=8), 9, 9
).eval()


def test_what_is_taken_is_spread_over_all():
    assert spread(range(10), 3) == [0, 3, 6]
    assert spread(range(3), 3) == spread(range(3), 9) == [0, 1, 2]
    assert spread([], 2) == []


def test_the_pairs_that_are_translated_are_of_all_parts_of_a_sorted_corpus():
    tokenizer, pairs = (
        Tokenizer.train(["a"], TokenizerConfig(vocabulary=260)),
        [Pair(letter, letter) for letter in "abcdefgh"],
    )
    validator = Validator(tokenizer, tokenizer, pairs, [], torch.device("cpu"), 4, 0, LabelSmoothedLikelihood())
    assert "".join(pair.source for pair in validator.translated_pairs) == "aceg"


def test_the_loss_is_the_mean_of_all_tokens_however_they_are_divided_into_batches():
    sources, targets = [[3, 4], [5], [3, 5, 6, 7, 8]], [[4], [5, 6], [8, 7, 6, 5, 3]]
    tokenizer = Tokenizer.train(["a"], TokenizerConfig(vocabulary=260))

    def loss(*batches):
        cpu, objective = torch.device("cpu"), LabelSmoothedLikelihood()
        with torch.no_grad():
            return Validator(tokenizer, tokenizer, [], [*batches], cpu, 0, 0, objective).loss(MODEL, lambda: None)

    apart = [batch_of([source], [target]) for source, target in zip(sources, targets, strict=True)]
    whole = loss(batch_of(sources, targets))
    assert loss(*apart) == pytest.approx(whole, rel=1e-5)
    assert sum(map(loss, apart)) / 3 != pytest.approx(whole, rel=1e-2)


def test_a_model_that_is_no_better_than_frequencies_or_always_says_the_same_is_warned_of():
    def told(loss, constant):
        lines = []
        _warn_if_untrained(MODEL, Validation({"loss": loss}, [], constant), 5.0, lines.append)
        return lines

    assert told(4.9, False) == []
    (line,) = told(5.1, False)
    assert "its loss 5.10 is no better than guessing by frequency (5.00)" in line
    (line,) = told(4.9, True)
    assert "the same translation for every input" in line
