"""`headway score`."""

import gzip
import json
import math
import re

import pytest

from headway.cli import score as command
from headway.scoring import score
from headway.translator import load

SOURCES = ["le chat voit la pomme", "", "un chien", "Zoë garde tout", "la reine"]
TARGETS = ["the cat sees", "", "", "Zoë 🎈", "the queen . the queen"]


@pytest.fixture
def files(tmp_path):
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def pair(files):
    return "--source", files / "source", "--target", files / "target"


@pytest.fixture(scope="module")
def wanted(model_folder):
    return score(load(model_folder), list(zip(SOURCES, TARGETS, strict=True)))


@pytest.mark.parametrize("together", [1, 2, 1024])
def test_every_pair_gets_its_log_probability_on_a_line(together, headway, model_folder, pair, wanted, monkeypatch):
    monkeypatch.setattr(command, "TOGETHER", together)
    outcome = headway("score", model_folder, *pair)
    assert [float(line) for line in outcome.lines] == pytest.approx([each.log_probability for each in wanted], abs=1e-4)
    assert outcome.lines[1] == "0.000000"
    assert float(outcome.lines[2]) < 0


def test_the_sums_are_told_on_standard_error(headway, model_folder, pair, wanted):
    tokens = sum(len(each.token_log_probabilities) for each in wanted)
    mean = sum(each.log_probability for each in wanted) / tokens
    told = headway("score", model_folder, *pair).err.splitlines()
    assert told == [f"5 pairs, {tokens} tokens, {mean:.4f} a token, perplexity {math.exp(-mean):.4g}"]


def test_tokens_and_means_are_written_where_they_are_asked_for(headway, model_folder, pair, wanted):
    for line, each in zip(headway("score", model_folder, *pair, "--tokens").lines, wanted, strict=True):
        total, _, parts = line.partition("\t")
        assert [float(part) for part in parts.split()] == pytest.approx(each.token_log_probabilities, abs=1e-4)
        assert float(total) == pytest.approx(sum(float(part) for part in parts.split()), abs=1e-4)
    for line, each in zip(headway("score", model_folder, *pair, "--normalise").lines, wanted, strict=True):
        count = max(len(each.token_log_probabilities), 1)
        assert float(line) == pytest.approx(each.log_probability / count, abs=1e-4)


def test_json_lines_hold_the_pair_and_its_scores(headway, model_folder, pair, files, wanted):
    records = [json.loads(line) for line in headway("score", model_folder, *pair, "--json").lines]
    for record, source, target, each in zip(records, SOURCES, TARGETS, wanted, strict=True):
        assert (record["source"], record["target"]) == (source, target)
        assert record["logprob"] == pytest.approx(each.log_probability, abs=1e-4)
        assert record["score"] == pytest.approx(each.score, abs=1e-4)
        assert record["tokens"] == len(each.token_log_probabilities)
    given = [{"id": number, **record} for number, record in enumerate(records)]
    (files / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in given))
    again = headway("score", model_folder, "--source", files / "pairs.jsonl", "--json", "--tokens").lines
    for line, record in zip(again, given, strict=True):
        found = json.loads(line)
        assert len(found.pop("token_logprobs")) == record["tokens"]
        for name in ("logprob", "score"):
            assert found.pop(name) == pytest.approx(record.pop(name), abs=1e-4)
        assert found == record


def test_files_may_be_packed_and_the_output_a_file(headway, model_folder, pair, files):
    plain = headway("score", model_folder, *pair).lines
    (files / "source.gz").write_bytes(gzip.compress((files / "source").read_bytes()))
    packed = ("--source", files / "source.gz", "--target", files / "target", "--output", files / "scores")
    assert headway("score", model_folder, *packed).out == ""
    assert (files / "scores").read_text().splitlines() == plain


def test_what_the_search_found_is_rescored_to_the_same(headway, model_folder, files):
    """The log-probability of an n-best list comes back where its text has the tokens that the search chose."""
    found = headway("translate", model_folder, "--input", files / "source", "--nbest", 2, "--output", files / "nbest")
    assert found.code == 0
    lines = (files / "nbest").read_text("utf-8").splitlines()
    rescored = headway("score", model_folder, "--source", files / "source", "--nbest", files / "nbest").lines
    assert len(rescored) == len(lines)
    same = 0
    for before, after in zip(lines, rescored, strict=True):
        number, text, features, total = (part.strip() for part in before.split("|||"))
        again = [part.strip() for part in after.split("|||")]
        assert again[:2] == [number, text] and again[3] == total
        assert again[2].startswith(features + " Headway= ")
        value = float(again[2].rpartition(" ")[2])
        (alone,) = score(load(model_folder), [(SOURCES[int(number)], text)])
        assert value == pytest.approx(alone.log_probability, abs=1e-4)
        same += abs(value - float(features.split()[1])) < 1e-4
    assert same


def test_a_list_without_a_source_may_count_as_far_as_it_likes(files):
    (files / "nbest").write_text("0 ||| the dog\n99999999999 ||| the queen\n")
    listed = list(command._listed(None, files / "nbest", "refuse"))  # what counts one by one never ends
    assert [(pair.source, pair.target) for pair in listed] == [("", "the dog"), ("", "the queen")]


def test_an_nbest_list_may_hold_texts_alone_and_leave_sources_out(headway, model_folder, files):
    (files / "nbest").write_text("2 ||| the dog\n4 ||| the queen\n4 ||| a queen ||| x= 1\n")
    options = ("--source", files / "source", "--nbest", files / "nbest", "--normalise")
    lines = headway("score", model_folder, *options).lines
    assert [line.rpartition(" ")[0] for line in lines] == [
        "2 ||| the dog ||| Headway=", "4 ||| the queen ||| Headway=", "4 ||| a queen ||| x= 1 Headway=",
    ]  # fmt: skip


def test_pairs_that_cannot_be_scored_stop_or_get_an_empty_line(headway, model_folder, files):
    (files / "source").write_bytes(b"le chat\n\xff\nun chien\n" + b"chat " * 99 + b"\n")
    (files / "target").write_bytes(b"the cat\nx\n" + b"cat " * 99 + b"\nthe cat\n")
    pair = ("--source", files / "source", "--target", files / "target")
    assert "source: line 2 is not UTF-8" in headway("score", model_folder, *pair).only_complaint
    skipped = headway("score", model_folder, *pair, "--invalid", "skip")
    assert [bool(line) for line in skipped.lines] == [True, False, False, False]
    assert "1 pairs, 3 skipped" in skipped.err
    (files / "source").write_bytes(b"le chat\nx\nun chien\nchat\n")
    told = headway("score", model_folder, *pair).only_complaint
    assert re.search(r"source: line 3: \d+ target tokens, the model knows 31; split it", told)
    assert [bool(line) for line in headway("score", model_folder, *pair, "--invalid", "skip", "--json").lines] == [
        True, True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--source source", "give --target or --nbest, or --json"),
        ("--source source --target target --nbest list", "give --target or --nbest, or --json"),
        ("--source source --nbest list --json", "--nbest: is written as an n-best list"),
        ("--source source --target target --json --normalise", "--normalise: JSON lines hold the sum"),
        ("--source source --target short", "short has 1 lines and"),
        ("--source short --target target", "short has 1 lines and"),
        ("--source absent --target target", "absent: no such file"),
        ("--source source --target absent", "absent: no such file"),
        ("--source source --target target --output target", "target: is also the input"),
        ("--source source --target target --tag fr", "it knows none"),
        ("--source source --json", "source: line 1: not JSON"),
        ("--source list --json", "list: line 1: not an object"),
        ("--source half --json", 'half: line 1: no text in a field "target"'),
        ("--source surrogate --json", 'surrogate: line 1: "target" holds half a surrogate pair'),
        ("--source source --nbest source", "source: line 1: no entry of an n-best list"),
        ("--source source --nbest beyond", "beyond: line 2: names line 5 of"),
        ("--source source --nbest fallen", "fallen: line 2: line 1 comes after line 2; sort"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(arguments, told, headway, model_folder, files, monkeypatch):
    for name, text in (("short", "one\n"), ("list", "[1]\n"), ("half", '{"source": "x"}\n'),
                       ("surrogate", '{"source": "x", "target": "\\ud800"}\n'), ("beyond", "0 ||| x\n5 ||| x\n"),
                       ("fallen", "2 ||| x\n1 ||| x\n")):  # fmt: skip
        (files / name).write_text(text)
    monkeypatch.chdir(files)
    before = sorted(files.iterdir())
    assert told in headway("score", model_folder, *arguments.split()).only_complaint
    assert sorted(files.iterdir()) == before


def test_nothing_in_is_nothing_out(headway, model_folder, files):
    (files / "none").write_text("")
    outcome = headway("score", model_folder, "--source", files / "none", "--target", files / "none")
    assert outcome.lines == []
    assert outcome.err.startswith("0 pairs, 0 tokens")
