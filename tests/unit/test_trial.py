"""A sample that stands for a corpus."""

import gzip
import json

import numpy as np
import pytest
import torch

from headway import trial
from headway.data.arrays import maximum
from headway.data.config import CorpusConfig, DataConfig
from headway.data.pairs import Files
from headway.errors import DataError
from headway.recipe import Recipe
from headway.trial import count_pairs, sample

CPU = torch.device("cpu")


class Screen:
    def say(self, line):
        pass

    def working(self, what, done, total):
        pass

    def updated(self, update):
        pass


@pytest.fixture
def files(tmp_path):
    """A parallel corpus of 3,000 lines, longer and longer."""
    source, target = tmp_path / "long.source", tmp_path / "long.target"
    texts = [f"line {number} {'word ' * (number // 300)}." for number in range(3000)]
    source.write_text("".join(f"{text}\n" for text in texts))
    target.write_text("".join(f"{text.upper()}\n" for text in texts))
    return source, target


def recipe(files, **training):
    data = DataConfig(source=files[0], target=files[1])
    return Recipe.model_validate({"data": data, "model": {"dim": 16, "heads": 2, "hidden": 16}, "training": training})


@pytest.mark.parametrize("ending", ["\n", ""])
def test_pairs_are_counted_in_plain_and_packed_shards(tmp_path, ending):
    text = ("a line\n" * 700).removesuffix("\n") + ending
    (tmp_path / "a-1.en").write_text(text)
    (tmp_path / "a-2.en").write_bytes(gzip.compress(text.encode()))
    for number in (1, 2):
        (tmp_path / f"a-{number}.de").write_text(text)
    assert count_pairs(Files(tmp_path / "a-*.en", tmp_path / "a-*.de"), "refuse") == 1400


def test_a_file_too_long_to_be_read_is_estimated(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "COUNTED", 1 << 20)
    lines = "".join(f"{json.dumps({'source': f'{n:09d}', 'target': 'b' * 40})}\n" for n in range(60_000))
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.jsonl").write_bytes(gzip.compress(lines.encode()))
    assert count_pairs(Files(tmp_path / "a.jsonl"), "refuse") == pytest.approx(60_000, rel=0.01)
    assert count_pairs(Files(tmp_path / "b.jsonl"), "refuse") == pytest.approx(60_000, rel=0.2)


def test_a_corpus_that_does_not_exist_is_said_in_one_line(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        count_pairs(Files(tmp_path / "a.tsv"), "refuse")


def test_a_small_corpus_is_its_own_sample(files, tmp_path):
    taken = sample(recipe(files), tmp_path / "trial", most=5000, device=CPU, screen=Screen())
    assert taken.whole
    assert taken.pairs == len(taken.prepared.store) == 2850
    assert taken.valid == len(taken.prepared.split.valid) == 150


def test_a_sample_is_spread_over_the_corpus_and_speaks_for_all_of_it(files, tmp_path):
    taken = sample(recipe(files), tmp_path / "trial", most=300, device=CPU, screen=Screen())
    assert not taken.whole
    assert (taken.pairs, taken.valid) == (2850, 150)
    lengths = np.asarray(taken.prepared.store.source_lengths)
    assert len(lengths) < 300
    assert lengths.max() > 3 * lengths.min()  # short lines stand first, long ones last


def test_the_first_pairs_alone_are_taken_where_that_is_asked_for(files, tmp_path):
    taken = sample(recipe(files), tmp_path / "trial", most=300, device=CPU, screen=Screen(), spread=False)
    assert taken.pairs == 2850
    assert maximum(taken.prepared.store.source_lengths) < 8


def test_choices_are_made_for_the_whole_corpus(files, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "count_pairs", lambda files, invalid: 600_000)
    data = DataConfig(source=files[0], target=files[1])
    taken = sample(Recipe(data=data), tmp_path / "trial", most=3000, device=CPU, screen=Screen())
    assert taken.recipe.tokenizer.vocabulary == 440  # few different words, however many pairs
    assert taken.recipe.training.epochs < 30
    assert taken.notes[0].startswith("chosen for 599,000 pairs")


def test_every_corpus_of_several_has_its_part(files, tmp_path):
    twice = (CorpusConfig(source=files[0], target=files[1], tags=("x",)),) * 2
    chosen = recipe(files).model_copy(update={"data": DataConfig(corpora=twice)})
    taken = sample(chosen, tmp_path / "trial", most=400, device=CPU, screen=Screen())
    assert taken.pairs == pytest.approx(5700, rel=0.02)
    assert [each.tags for each in taken.recipe.data.corpora] == [("x",), ("x",)]


def test_word_alignments_go_with_their_pairs(files, tmp_path):
    (tmp_path / "links").write_text("".join(f"0-0 {number // 300}-1\n" for number in range(3000)))
    chosen = recipe(files)
    chosen = chosen.model_copy(update={"data": chosen.data.model_copy(update={"alignment": tmp_path / "links"})})
    sample(chosen, tmp_path / "trial", most=300, device=CPU, screen=Screen())
    texts = (tmp_path / "trial" / "sample-0.jsonl").read_text().splitlines()
    links = (tmp_path / "trial" / "sample-0.links").read_text().splitlines()
    assert [f"0-0 {json.loads(text)['source'].count('word')}-1" for text in texts] == links


def test_files_of_different_length_are_refused(files, tmp_path):
    files[1].write_text("one line only\n")
    with pytest.raises(DataError, match="has 3000 lines and"):
        sample(recipe(files), tmp_path / "trial", most=300, device=CPU, screen=Screen())
