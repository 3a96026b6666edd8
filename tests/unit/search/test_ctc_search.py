"""What slots write: against every path there is, and against prefixes in a dictionary."""

import math
import random
from collections import defaultdict

import pytest
import torch
import torch.nn.functional as F

from headway.search.labelling import token_log_probabilities
from headway.search.prefixes import prefix_beam_search
from paths import all_outputs

BLANK = 3


def slots(seed, count, labels=BLANK + 1, sharp=1.5):
    torch.manual_seed(seed)
    return (sharp * torch.randn(count, labels)).log_softmax(-1)


def stretched(sentences):
    """Sentences of unequal length side by side, certain to be blank beyond their ends."""
    longest = max(map(len, sentences))
    rows = torch.full((len(sentences), longest, sentences[0].shape[1]), -torch.inf)
    rows[..., -1] = 0.0
    for row, sentence in zip(rows, sentences, strict=True):
        row[: len(sentence)] = sentence
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_the_probability_of_an_output_is_the_sum_over_all_its_paths(seed):
    given = slots(seed, 5)
    known = all_outputs(given.double().tolist(), BLANK)
    outputs = list(known)
    found = token_log_probabilities(given[None], [outputs], BLANK)[0]
    for output, parts in zip(outputs, found, strict=True):
        assert len(parts) == len(output) + 1
        assert sum(parts) == pytest.approx(known[output], abs=1e-6)


def test_the_probability_of_a_token_is_that_it_comes_next():
    given = slots(1, 5)
    known = all_outputs(given.double().tolist(), BLANK)

    def begins(prefix):
        return math.log(sum(math.exp(value) for output, value in known.items() if output[: len(prefix)] == prefix))

    for output in ((0, 1), (2, 2), (1, 0, 1), (0, 0, 2)):
        ((parts,),) = token_log_probabilities(given[None], [[output]], BLANK)
        for place in range(len(output)):
            assert parts[place] == pytest.approx(begins(output[: place + 1]) - begins(output[:place]), abs=1e-6)
        assert parts[-1] == pytest.approx(known[output] - begins(output), abs=1e-6)


def test_the_probability_of_long_outputs_is_that_of_torch():
    draw = random.Random(1)
    sentences = [slots(seed, count, labels=50, sharp=4.0) for seed, count in enumerate((200, 90, 31))]
    outputs = [[[draw.randrange(9) for _ in range(size)] for size in (12, 0, 15)] for _ in sentences]
    found = token_log_probabilities(stretched(sentences), outputs, 49)
    for sentence, own, parts in zip(sentences, outputs, found, strict=True):
        for output, each in zip(own, parts, strict=True):
            lengths = torch.tensor([len(sentence)]), torch.tensor([len(output)])
            labels = torch.tensor([output], dtype=torch.int64)
            wanted = F.ctc_loss(sentence.double()[:, None], labels, *lengths, blank=49, reduction="sum")
            assert sum(each) == pytest.approx(-float(wanted), rel=1e-9)


def test_an_output_that_has_no_path_is_next_to_impossible():
    ((parts,),) = token_log_probabilities(slots(1, 2)[None], [[(0, 0)]], BLANK)
    assert sum(parts) < -1e8


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_likeliest_of_all_outputs_in_order(seed):
    given = slots(seed, 4)
    known = all_outputs(given.double().tolist(), BLANK)
    (found,) = prefix_beam_search(given[None], torch.tensor([4]), 64)
    wanted = sorted(known, key=lambda output: -known[output])[:64]
    assert found == wanted[: len(found)]
    assert len(found) == min(64, len(known))


def dictionary_search(given, beam, limit):
    """Prefix beam search as it is told: a dictionary of prefixes, every token of every slot tried."""
    blank, beams = given.shape[1] - 1, {(): (0.0, -math.inf)}
    for slot in given.double().tolist():
        after = defaultdict(lambda: (-math.inf, -math.inf))
        for prefix, (waiting, writing) in beams.items():
            total = add(waiting, writing)
            after[prefix] = add(after[prefix][0], total + slot[blank]), after[prefix][1]
            if prefix:
                after[prefix] = after[prefix][0], add(after[prefix][1], writing + slot[prefix[-1]])
            for token in range(blank):
                if len(prefix) < limit:
                    longer = (*prefix, token)
                    going = waiting if prefix[-1:] == (token,) else total
                    after[longer] = after[longer][0], add(after[longer][1], going + slot[token])
        ranked = sorted(after.items(), key=lambda item: -add(*item[1]))
        beams = {prefix: pair for prefix, pair in ranked[:beam] if add(*pair) > -math.inf}
    return list(beams)


def add(left, right):
    high, low = max(left, right), min(left, right)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


@pytest.mark.parametrize("beam", [2, 3, 5])
def test_prefixes_of_all_sentences_at_once_are_those_of_a_dictionary_one_by_one(beam):
    sentences = [slots(seed, 3 + seed % 9, labels=7, sharp=1.0 + seed % 3) for seed in range(24)]
    limits = [2 + seed % 5 for seed in range(24)]
    found = prefix_beam_search(stretched(sentences), torch.tensor(limits), beam)
    for sentence, limit, own in zip(sentences, limits, found, strict=True):
        assert own == dictionary_search(sentence, beam, limit)
        assert all(len(output) <= limit for output in own)
        assert len(set(own)) == len(own)


def test_tokens_that_must_not_be_written_are_in_no_output():
    given = slots(2, 6)
    given[:, 1] = -torch.inf
    (found,) = prefix_beam_search(given[None], torch.tensor([6]), 16)
    assert found
    assert all(1 not in output for output in found)
