import json
import os
import random

import pytest
import sacrebleu

from headway.errors import ConfigError, DataError
from headway.evaluation import compare

WORDS = ["the", "a", "cat", "dog", "house", "runs", "sleeps", "fast", "here", "there"]


def corpus(seed, sentences=60):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=10)) for _ in range(sentences)]


def damaged(lines, share, seed):
    chance = random.Random(seed)
    return [" ".join("wrong" if chance.random() < share else word for word in line.split()) for line in lines]


REFERENCES = corpus(0)
POOR, GOOD = damaged(REFERENCES, 0.4, 1), damaged(REFERENCES, 0.15, 2)


def test_a_clear_winner_is_named_with_its_lead():
    result = compare(POOR, GOOD, REFERENCES, samples=200)
    bleu = result["BLEU"]
    assert bleu.a == pytest.approx(sacrebleu.corpus_bleu(POOR, [REFERENCES]).score)
    assert bleu.b == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score)
    assert bleu.significant
    assert bleu.p_value < 0.05
    assert 0 < bleu.a_interval < bleu.delta
    assert result.lines()[0].startswith(f"BLEU: B is better by {bleu.b - bleu.a:.2f} (")
    assert compare(GOOD, POOR, REFERENCES, samples=200).lines()[1].startswith("chrF: A is better by ")
    assert "bs:200" in bleu.signature


def test_two_systems_that_err_alike_are_not_told_apart():
    alike = damaged(REFERENCES, 0.4, 3)
    result = compare(POOR, alike, REFERENCES, samples=200)
    assert not result["BLEU"].significant
    assert "no significant difference" in result.lines()[0]


def test_a_system_does_not_differ_from_itself():
    result = compare(POOR, POOR, [REFERENCES, GOOD], samples=50)
    assert [(d.delta, d.p_value, d.significant) for d in result.differences] == [(0.0, 1.0, False)] * 2


def test_the_seed_decides_the_samples_and_is_put_back(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    first, again, other = (compare(POOR, GOOD, REFERENCES, samples=50, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first["BLEU"].b_interval != other["BLEU"].b_interval
    assert first["BLEU"].a_interval != other["BLEU"].a_interval
    assert "seed:1" in first["BLEU"].signature
    assert os.environ["SACREBLEU_SEED"] == "7"


def test_it_is_json_and_says_nothing_on_the_way(caplog, capsys):
    tree = json.loads(json.dumps(compare(POOR, GOOD, REFERENCES, samples=20).to_json()))
    assert [d["metric"] for d in tree["differences"]] == ["BLEU", "chrF"]
    assert tree["differences"][0]["delta"] > 0
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_unequal_counts_are_refused_with_both_numbers():
    with pytest.raises(DataError, match="59 outputs of A but 60 lines"):
        compare(POOR[1:], GOOD, REFERENCES)
    with pytest.raises(DataError, match="59 outputs of B but 60 lines"):
        compare(POOR, GOOD[1:], REFERENCES)


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"seed": 0}])
def test_options_that_would_be_ignored_silently_are_refused(wrong):
    with pytest.raises(ConfigError):
        compare(POOR, GOOD, REFERENCES, **wrong)
