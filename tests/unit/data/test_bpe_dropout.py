import json
import random
from collections import Counter
from itertools import pairwise

import pytest

from headway.data.dropout import BpeDropout
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError

LINES = ["banana bandana cabana", "the banana and the bandana"] * 20


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train(LINES, TokenizerConfig(vocabulary=290))


def plainly(merges, word, probability, chance):
    """Algorithm 1 of the paper, line by line."""
    split = list(word)
    while True:
        possible = [(merges[pair], place) for place, pair in enumerate(pairwise(split)) if pair in merges]
        possible = [merge for merge in possible if chance.random() >= probability]
        if not possible:
            return tuple(split)
        _, place = min(possible)
        split[place : place + 2] = [split[place] + split[place + 1]]


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_segmentations_come_as_often_as_in_the_paper(bpe, probability):
    draws = 4000
    ours, theirs = Counter(), Counter()
    merges = {tuple(pair): rank for rank, pair in enumerate(json.loads(bpe.to_json())["model"]["merges"])}
    dropout, chance = BpeDropout(bpe, probability), random.Random(1)
    for _ in range(draws):
        ids = dropout.encode("banana", chance)
        ours[tuple(bpe.backend.id_to_token(token) for token in ids)] += 1
        theirs[plainly(merges, "Ġbanana", probability, chance)] += 1
    assert len(theirs) > 3
    distance = sum(abs(ours[split] - theirs[split]) for split in ours | theirs) / (2 * draws)
    assert distance < 0.05  # two samples of the same law differ by about 0.02


def test_more_dropout_gives_more_pieces(bpe):
    counts = []
    for probability in (0.0, 0.2, 0.6, 0.95):
        dropout, chance = BpeDropout(bpe, probability), random.Random(0)
        counts.append(sum(len(dropout.encode(line, chance)) for line in LINES))
    assert counts == sorted(set(counts))


def test_one_seed_gives_one_segmentation_whatever_was_seen_before(bpe):
    fresh, used = BpeDropout(bpe, 0.5), BpeDropout(bpe, 0.5)
    for line in LINES:
        used.encode(line, random.Random(7))
    assert fresh.encode(LINES[0], random.Random(5)) == used.encode(LINES[0], random.Random(5))


def test_a_word_of_many_letters_takes_no_quadratic_time(bpe):
    text = "banana" * 5000
    ids = BpeDropout(bpe, 0.1).encode(text, random.Random(0))
    assert bpe.decode(ids) == text


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_what_is_no_probability_is_refused(bpe, probability):
    with pytest.raises(ConfigError, match=r"tokenizer\.dropout"):
        BpeDropout(bpe, probability)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_only_byte_level_bpe_has_merges_to_drop(kind):
    with pytest.raises(ConfigError, match="only byte-level BPE"):
        BpeDropout(Tokenizer.train(LINES, TokenizerConfig(kind=kind)), 0.1)
