import hashlib
from collections import Counter

import numpy as np
import pytest

from headway.config import read_toml, validated, write_toml
from headway.data import plan as module
from headway.data.config import DataConfig
from headway.data.mixture import Mixture, mixed
from headway.data.plan import plan_epoch
from headway.data.preparation import divide, prepare, reopen
from headway.data.tokenizer import TokenizerConfig
from headway.errors import ConfigError, DataError

LAYOUTS = ["padded", "packed"]


def lengths(count):
    number = np.arange(count, dtype=np.int64)
    source = (number * 7919 % 97) % 41
    return source.astype(np.int32), (source + number * 104729 % 7).astype(np.int32)


def planned(count, folder, **changes):
    settings = {"seed": 1, "epoch": 0, "budget": 4096, "layout": "padded"} | changes
    return plan_epoch(*lengths(count), folder=folder, **settings)


def counted(plan, sizes):
    """How often each pair is met, corpus by corpus."""
    times = np.bincount(plan.order, minlength=sum(sizes))
    return np.split(times, np.cumsum(sizes)[:-1])


@pytest.mark.parametrize(
    ("layout", "digest"),
    [
        ("padded", "999f628a05005a9a48277baafd95703b26a2d7ff347aae7ebcd71acefae971d3"),
        ("packed", "474e9bcc15043907456fea0ca7b168b9c617d14fba017b50853a246416feed64"),
    ],
)
def test_the_plan_of_one_corpus_is_what_it_was_before_there_were_mixtures(layout, digest, tmp_path):
    plan = planned(200_000, tmp_path, seed=3, epoch=2, layout=layout)
    assert hashlib.sha256(plan.order[:].tobytes() + plan.cuts[:].tobytes()).hexdigest() == digest


def test_shares_follow_the_weights_or_the_tempered_sizes():
    assert mixed((10, 90), (), 1.0) is None
    assert mixed((100,), (2.0,), 1.0) is None
    assert mixed((10, 90), (1.0, 1.0), 1.0) == Mixture((10, 90), (50, 50))
    assert mixed((100, 900), (3e300, 1e300), 1.0) == Mixture((100, 900), (750, 250))
    assert mixed((100, 900), (), 2.0) == Mixture((100, 900), (250, 750))  # 10 to 30
    assert mixed((1, 10**9), (1e-300, 1.0), 1.0).taken[0] == 1
    nearly = mixed((100, 900), (), 100.0)
    assert 490 < nearly.taken[0] < 510


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_corpus_is_met_as_often_as_its_share_says(layout, tmp_path):
    mixture = Mixture((700, 90_000, 20_000), (30_000, 30_000, 50_700))
    plan = planned(sum(mixture.sizes), tmp_path, mixture=mixture, layout=layout)
    times = counted(plan, mixture.sizes)
    assert tuple(int(each.sum()) for each in times) == mixture.taken
    for each, size, taken in zip(times, mixture.sizes, mixture.taken, strict=True):
        assert {taken // size, taken // size + 1} >= set(each.tolist())


@pytest.mark.parametrize("size", [1, 3, 511, 512, 513])
def test_a_tiny_corpus_goes_round_evenly(size, tmp_path):
    mixture = Mixture((size, 4000), (4000, size))
    tiny, large = counted(planned(size + 4000, tmp_path, mixture=mixture), mixture.sizes)
    assert int(tiny.sum()) == 4000
    assert int(tiny.max() - tiny.min()) <= 1
    assert int(large.sum()) == size
    assert int(large.max()) == 1


def test_every_pair_gets_its_turn_over_the_epochs(tmp_path):
    mixture = Mixture((300, 3000), (100, 3200))
    met = sum(counted(planned(3300, tmp_path, mixture=mixture, epoch=epoch), mixture.sizes)[0] for epoch in range(60))
    assert met.min() > 5
    assert met.max() < 40


def test_a_mixture_is_a_function_of_seed_and_epoch_and_has_its_own_plan(tmp_path):
    mixture = Mixture((5000, 20_000), (15_000, 10_000))
    first = planned(25_000, tmp_path / "a", mixture=mixture).order[:].tolist()
    assert planned(25_000, tmp_path / "b", mixture=mixture).order[:].tolist() == first
    for change in (
        {"epoch": 1},
        {"seed": 2},
        {"mixture": Mixture((5000, 20_000), (10_000, 15_000))},
        {"mixture": None},
    ):
        assert planned(25_000, tmp_path / "a", **{"mixture": mixture} | change).order[:].tolist() != first
    met = [set(planned(25_000, tmp_path, mixture=mixture, epoch=epoch).order[:].tolist()) for epoch in (0, 1)]
    assert met[0] != met[1]  # another part of the large corpus


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_batch_of_a_mixture_exceeds_the_budget(layout, tmp_path):
    source, target = lengths(3000)
    plan = planned(3000, tmp_path, mixture=Mixture((100, 2900), (2900, 100)), layout=layout, budget=256)
    for position in range(len(plan)):
        pairs = plan[position]
        for sizes in (source[pairs] + 1, target[pairs] + 1):
            assert (sizes.max() * len(sizes) if layout == "padded" else sizes.sum()) <= 256


# Curriculum.


def longer(count):
    return np.maximum(*lengths(count))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_an_epoch_of_the_curriculum_takes_the_shortest_part_ties_included(layout, epoch, tmp_path):
    plan = planned(10_000, tmp_path, curriculum=4, epoch=epoch, layout=layout)
    limit = np.sort(longer(10_000))[-(-10_000 * (epoch + 1) // 4) - 1]
    assert sorted(plan.order[:].tolist()) == np.flatnonzero(longer(10_000) <= limit).tolist()
    assert 0 < len(plan.order) < 10_000


@pytest.mark.parametrize("curriculum", [0, 1, 2, 3])
def test_after_the_curriculum_the_plan_is_the_plain_one(curriculum, tmp_path):
    plain = planned(10_000, tmp_path / "plain", epoch=3).order[:].tolist()
    assert planned(10_000, tmp_path, epoch=3, curriculum=curriculum).order[:].tolist() == plain
    assert len(plain) == 10_000


def test_batches_of_a_curriculum_are_as_full_as_others(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_RUN", 16)
    plan = planned(100_000, tmp_path, curriculum=20, budget=512)
    cells = (longer(100_000)[plan.order] + 1).sum()
    assert len(plan) <= 1.2 * cells / 512


def test_curricula_do_not_share_plans_and_are_reopened(tmp_path, monkeypatch):
    plans = {curriculum: planned(5000, tmp_path, curriculum=curriculum).order[:].tolist() for curriculum in (0, 2, 3)}
    assert len(plans[3]) < len(plans[2]) < len(plans[0])
    monkeypatch.setattr(module, "_blocks", None)
    assert planned(5000, tmp_path, curriculum=3).order[:].tolist() == plans[3]


def test_a_curriculum_holds_in_a_mixture(tmp_path):
    mixture = Mixture((1000, 9000), (5000, 5000))
    plan = planned(10_000, tmp_path, mixture=mixture, curriculum=2)
    assert longer(10_000)[plan.order].max() == np.sort(longer(10_000))[4999]
    share = (plan.order[:] < 1000).mean()
    assert 0.4 < share < 0.6


# Settings and preparation.


def quiet(*_):
    pass


def config(folder, *corpora, **settings):
    return validated(DataConfig, {"folder": str(folder), "corpora": list(corpora), **settings}, "test")


@pytest.fixture
def folder(tmp_path):
    for name, count in (("a", 40), ("b", 160)):
        lines = [f"{name} {number}" for number in range(count)]
        (tmp_path / f"{name}.en").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / f"{name}.de").write_text("".join(f"{line.upper()}\n" for line in lines))
    (tmp_path / "valid.tsv").write_text("v 1\tV 1\nv 2\tV 2\n")
    return tmp_path


A, B = ({"source": f"{name}.en", "target": f"{name}.de"} for name in "ab")


def prepared_from(settings, out):
    split = divide(settings, quiet)
    return prepare(settings, TokenizerConfig(kind="words"), out, longest=9, split=split, report=quiet)


def test_the_store_knows_the_corpora_and_pairs_are_held_out_of_each_in_proportion(folder, tmp_path):
    settings = config(folder, A, {**B, "name": "large"}, temperature=5.0)
    for prepared in (prepared_from(settings, tmp_path / "out"), reopen(settings, tmp_path / "out")):
        assert Counter(pair.corpus for pair in prepared.split.valid) == {0: 2, 1: 8}
        assert prepared.split.corpora == {"a.en": 38, "large": 152}
        assert prepared.store.corpora == (38, 152)
        assert prepared.mixture == mixed((38, 152), (), 5.0)
        firsts = [prepared.source.decode(prepared.store.source(place)) for place in (37, 38)]
        assert [text[0] for text in firsts] == ["a", "b"]


def test_cleaning_and_validation_sources_move_the_boundary(folder, tmp_path):
    (folder / "a.en").write_text("\n\n" + "".join(f"a {number}\n" for number in range(2, 40)))
    (folder / "valid.tsv").write_text("a 7\tX\n")
    prepared = prepared_from(config(folder, A, B, valid_source="valid.tsv"), tmp_path / "out")
    assert prepared.split.left_out == {"empty": 2, "source of a validation pair": 1}
    assert prepared.store.corpora == (37, 160)
    assert prepared.mixture is None


def test_every_corpus_may_bring_its_own_validation_pairs(folder, tmp_path):
    prepared = prepared_from(config(folder, A, {**B, "valid_source": "valid.tsv", "tags": ["de"]}), tmp_path / "out")
    assert [(pair.source, pair.tags) for pair in prepared.split.valid] == [("v 1", ("de",)), ("v 2", ("de",))]
    assert prepared.store.corpora == (40, 160)


def test_a_corpus_without_a_pair_is_named(folder, tmp_path):
    (folder / "a.en").write_text("\n" * 40)
    with pytest.raises(DataError, match=r"a\.en: no pair left to train on"):
        divide(config(folder, B, A), quiet)
    (folder / "a.en").write_text("much too long a sentence for so short a model to know\n" * 40)
    with pytest.raises(DataError, match=r"a\.en: no pair left to train on"):
        prepared_from(config(folder, B, A, valid_source="valid.tsv"), tmp_path / "out")


def test_repeated_pairs_are_found_across_corpora_unless_their_tags_differ(folder, tmp_path):
    cleaning = {"drop_duplicates": True}
    assert divide(config(folder, A, B, cleaning=cleaning), quiet).left_out == {}
    with pytest.raises(DataError, match="no pair left"):
        divide(config(folder, A, A, cleaning=cleaning), quiet)
    assert divide(config(folder, A, {**A, "tags": ["x"]}, cleaning=cleaning), quiet).left_out == {}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"source": "a.en", "corpora": [A]}, "source and corpora cannot be combined"),
        ({"target": "a.en", "corpora": [A]}, "source and corpora cannot be combined"),
        ({}, "nothing to learn from"),
        ({"corpora": [{**A, "weight": 1.0}, B]}, "1 of 2 corpora have a weight; give all one, or none"),
        ({"corpora": [{**A, "weight": 1.0}, {**B, "weight": 2.0}], "temperature": 2.0}, "temperature does nothing"),
        ({"corpora": [{**A, "weight": 0.0}]}, "corpora.0.weight: should be greater than 0"),
        ({"corpora": [{**A, "wieght": 1.0}]}, "unknown key corpora.0.wieght; did you mean corpora.0.weight"),
        ({"corpora": [{"target": "a"}]}, "corpora.0.source is missing"),
        ({"source": "a", "temperature": 0.5}, "temperature: should be greater than or equal to 1"),
        ({"source": "a", "tags": ["two words"]}, "tags.0"),
        ({"source": "a", "tags": ["<de>"]}, "tags.0"),
        ({"source": "a", "tags": [""]}, "tags.0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, told):
    with pytest.raises(ConfigError) as refused:
        validated(DataConfig, settings, "test")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_corpora_come_back_from_a_written_recipe(folder, tmp_path):
    settings = config(folder, {**A, "weight": 1.0, "tags": ["en", "de"]}, {**B, "name": "large", "weight": 2.5})
    for comments in (False, True):
        (tmp_path / "recipe.toml").write_text(write_toml(settings, comments=comments))
        assert validated(DataConfig, read_toml(tmp_path / "recipe.toml"), "again") == settings


def test_names_are_never_alike(folder):
    assert config(folder, A, A, {**B, "name": "b"}).names == ("a.en", "a.en (2)", "b")
