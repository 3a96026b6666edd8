"""Corpora of one side: what a language model learns from."""

import json
from collections import Counter

import numpy as np
import pytest
from pydantic import ValidationError

from headway.choices import CorpusSize, Machine, choose
from headway.data.cleaning import CleaningConfig, clean
from headway.data.config import DataConfig
from headway.data.feed import Feed
from headway.data.pairs import Files, Pair, read_pairs
from headway.data.preparation import divide, prepare, reopen
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError
from headway.recipe import Recipe
from headway.validation import validation_batches

LINES = [f"le chat voit {number} pommes" for number in range(60)] + ["merci ."] * 20


def silent(*_):
    pass


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def prepared_in(folder, config, kind="bpe"):
    split = divide(config, silent)
    tokenizer = TokenizerConfig(kind=kind, vocabulary=300 if kind == "bpe" else None)
    return prepare(config, tokenizer, folder, longest=64, split=split, report=silent)


def test_every_line_is_a_target_without_a_source(text):
    pairs = list(read_pairs(Files(text, alone=True)))
    assert [(pair.source, pair.target, pair.line) for pair in pairs] == [
        ("", line, number) for number, line in enumerate(LINES, start=1)
    ]


def test_tables_and_json_lines_give_their_target(tmp_path):
    table, lines = tmp_path / "a.tsv", tmp_path / "a.jsonl"
    table.write_text("x\tle chat\ny\tla reine\n", encoding="utf-8")
    lines.write_text("".join(json.dumps({"text": each}) + "\n" for each in ("le chat", "la reine")), encoding="utf-8")
    for files in (Files(table, alone=True), Files(lines, fields=("source", "text"), alone=True)):
        assert [pair[:2] for pair in read_pairs(files)] == [("", "le chat"), ("", "la reine")]


def test_lines_that_are_not_utf8_are_skipped_and_counted(tmp_path):
    (tmp_path / "text").write_bytes(b"le chat\n\xff\nla reine\n")
    counts = Counter()
    found = list(read_pairs(Files(tmp_path / "text", alone=True), invalid="skip", counts=counts))
    assert ([pair.target for pair in found], counts) == (["le chat", "la reine"], {"not UTF-8": 1})


def test_cleaning_looks_at_the_one_side_there_is():
    pairs = [Pair("", each) for each in ("le chat", " ", "le chat", "une tres longue phrase")]
    config = CleaningConfig(longest_words=3, longest_ratio=2.0, drop_duplicates=True)
    counts = Counter()
    assert list(clean(pairs, config, counts, alone=True)) == [Pair("", "le chat")]
    assert counts == {"empty": 1, "too long": 1, "duplicate": 1}
    assert list(clean(pairs, CleaningConfig(), Counter())) == []


def test_lines_are_held_out_and_stay_in_training_where_they_stand_again(text, tmp_path):
    prepared = prepared_in(tmp_path / "data", DataConfig(text=text))
    held = [pair.target for pair in prepared.split.valid]
    assert len(held) == 4 and "merci ." in held
    assert len(prepared.store) == len(LINES) - 4
    assert prepared.source is prepared.target
    assert not np.any(prepared.store.source_lengths)
    stored = Counter(prepared.target.decode(prepared.store.target(place).tolist()) for place in range(76))
    assert stored == Counter(LINES) - Counter(held)


@pytest.mark.parametrize("kind", ["bpe", "words", "characters"])
def test_the_vocabulary_is_that_of_the_text(text, tmp_path, kind):
    target = prepared_in(tmp_path / "data", DataConfig(text=text), kind).target
    assert target.unknown not in target.encode(["le chat voit 7 pommes"])[0]


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_batches_have_an_end_symbol_for_a_source(text, tmp_path, layout):
    prepared = prepared_in(tmp_path / "data", DataConfig(text=text))
    feed = Feed(prepared, 1, 256, layout, tmp_path / "plans", dropout=0.1, longest=63)
    count, batches = feed.epoch(0, 0)
    found = list(batches)
    assert len(found) == count > 1 and sum(batch.pairs for batch in found) == 76
    for batch in (*found, *validation_batches(prepared, 64)):
        assert batch.source.lengths.unique().tolist() == [1]
        assert batch.source.tokens.unique().tolist() == [prepared.source.end]


def test_validation_files_are_read_the_same_way(text, tmp_path):
    (tmp_path / "valid").write_text("merci .\nla reine\n\n", encoding="utf-8")
    config = DataConfig(text=text, valid_text=tmp_path / "valid")
    prepared = prepared_in(tmp_path / "data", config)
    assert [pair[:2] for pair in prepared.split.valid] == [("", "merci ."), ("", "la reine")]
    assert len(prepared.store) == len(LINES)


def test_what_was_prepared_is_found_again_but_not_with_other_lines_held_out(text, tmp_path):
    config = DataConfig(text=text)
    first = prepared_in(tmp_path / "data", config)
    again = reopen(config, tmp_path / "data")
    assert again.split.valid == first.split.valid
    (tmp_path / "one").write_text("la reine\n", encoding="utf-8")
    (tmp_path / "two").write_text("le roi\n", encoding="utf-8")
    keys = []
    for name in ("one", "two"):
        other = prepared_in(tmp_path / f"{name}.data", DataConfig(text=text, valid_text=tmp_path / name))
        keys.append(other.store.manifest["sealed"])
    assert len(set(keys)) == 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"text": "a", "source": "b"}, "leave out source"),
        ({"text": "a", "source": "b", "target": "c", "tags": ("x",)}, "leave out source, target, tags"),
        ({"text": "a", "word_dropout": 0.1}, "leave out word_dropout"),
        ({"text": "a", "corpora": ({"source": "b"},)}, "leave out corpora"),
        ({"text": "a", "valid_source": "b"}, "leave out valid_source"),
        ({"source": "a", "valid_text": "b"}, "valid_text is for language models"),
        ({}, "or text"),
    ],
)
def test_a_text_stands_alone(settings, told):
    with pytest.raises(ValidationError, match=told):
        DataConfig.model_validate(settings, strict=False)


def test_what_is_left_open_is_chosen_for_a_language_model(text):
    import torch

    size, cpu = CorpusSize(100, 900.0), Machine(torch.device("cpu"))
    vars(cpu)["speed"] = 2e11  # whatever this machine does besides
    chosen = choose(Recipe(data=DataConfig(text=text)), size, cpu).recipe
    assert (chosen.model.architecture, chosen.model.preset) == ("language", "tiny")
    assert chosen.training.label_smoothing == 0.0
    assert chosen.decoding.sample and chosen.decoding.limit(0) == chosen.model.longest - 1
    again = choose(chosen, size, cpu).recipe
    assert again == chosen
    smoothed = Recipe(data=DataConfig(text=text), training={"label_smoothing": 0.1}, decoding={"longest": 9})
    kept = choose(smoothed, size, cpu).recipe
    assert (kept.training.label_smoothing, kept.decoding.longest) == (0.1, 9)


def test_a_model_and_its_data_have_the_same_sides(text, tmp_path):
    import torch

    for data, model, told in (
        ({"text": str(text)}, {"architecture": "transformer"}, "data.text has no source"),
        ({"source": str(text), "target": str(text)}, {"architecture": "language"}, "has no source"),
    ):
        with pytest.raises(ValidationError, match=told):
            Recipe.model_validate({"data": data, "model": model}, strict=False)
    with pytest.raises(ConfigError, match=r"training\.metric"):
        bleu = Recipe(data=DataConfig(text=text), training={"metric": "bleu"})
        choose(bleu, CorpusSize(9, 90.0), Machine(torch.device("cpu")))
