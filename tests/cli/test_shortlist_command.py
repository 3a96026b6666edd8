"""`headway shortlist`: which target tokens a source needs."""

import re

import pytest

from headway.cli import shortlist as command
from headway.data.lexicon import Lexicon
from headway.translator import load


@pytest.fixture
def shortlist(headway, model_folder, corpus, tmp_path):
    def run(*options, model=model_folder, source=corpus[0], target=corpus[1], output=tmp_path / "list.safetensors"):
        files = ["--source", source, *(() if target is None else ("--target", target))]
        return headway("shortlist", model, *files, "--output", output, *options)

    return run


def test_the_file_serves_the_model_it_was_made_for(shortlist, model_folder, corpus, tmp_path):
    assert shortlist().code == 0
    lexicon, translator = Lexicon.load(tmp_path / "list.safetensors"), load(model_folder)
    lexicon.check(translator.source, translator.target, "list")
    for source, target in zip(*(path.read_text(encoding="utf-8").splitlines() for path in corpus), strict=True):
        (ids,), (made,) = translator.source.encode([source]), translator.target.encode([target])
        assert set(made) <= set(lexicon.allowed(ids).tolist())


def test_the_options_bound_the_shortlists(shortlist, tmp_path):
    assert shortlist("--candidates", 2, "--frequent", 5).code == 0
    lexicon = Lexicon.load(tmp_path / "list.safetensors")
    assert lexicon.candidates.shape[1] == 2
    assert len(lexicon.always) == 5


def test_it_tells_how_much_is_covered(shortlist, model_folder, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "HELD_OUT", 7)
    first, learnt, held_out = shortlist("--candidates", 1, "--frequent", 3).lines
    lexicon, translator = Lexicon.load(tmp_path / "list.safetensors"), load(model_folder)
    known = (lexicon.candidates >= 0).any(axis=1).sum()
    size = translator.target.size
    assert first == f"{tmp_path / 'list.safetensors'}: candidates for {known} of {size} source tokens, 3 always"
    sources, targets = (
        tokenizer.encode(path.read_text(encoding="utf-8").splitlines())
        for tokenizer, path in zip((translator.source, translator.target), corpus, strict=True)
    )
    for line, begin, count in ((learnt, 0, 9), (held_out, 6, 8)):
        found = lexicon.coverage(zip(sources[begin::7], targets[begin::7], strict=True))
        share, mean = 100 * found.covered / found.tokens, found.allowed / found.pairs
        told = re.fullmatch(
            r"(\d+) pairs .*: ([\d.]+) % of target tokens are .*, (\d+) of (\d+) tokens on average", line
        )
        assert told, line
        assert told.groups() == (str(count), f"{share:.2f}", f"{mean:.0f}", str(size))
        assert 0 < share < 100


def test_pairs_held_out_are_not_learnt_from(shortlist, tmp_path, monkeypatch):
    """Every second line has words of its own."""
    for name, words in (("source", ("chat", "xyz")), ("target", ("CHAT", "XYZ"))):
        (tmp_path / name).write_text("".join(f"{word}\n" for word in words * 10), encoding="utf-8")
    given = {"source": tmp_path / "source", "target": tmp_path / "target"}
    monkeypatch.setattr(command, "HELD_OUT", 2)
    told = shortlist(**given).lines[2]
    assert told.startswith("10 pairs held out: 25.00 %")  # the blank before X, Y and Z
    monkeypatch.setattr(command, "MEASURED", 3)
    told = shortlist("--overwrite", **given).lines[2]
    assert told.startswith("3 pairs held out: 100.00 %")


def test_one_file_may_hold_both_sides(shortlist, corpus, tmp_path):
    sides = [path.read_text(encoding="utf-8").splitlines() for path in corpus]
    table = tmp_path / "train.tsv"
    table.write_text("".join(f"{left}\t{right}\n" for left, right in zip(*sides, strict=True)), encoding="utf-8")
    shortlist(output=tmp_path / "two")
    shortlist(source=table, target=None, output=tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_that_was_there_is_replaced_whole_if_told_to(shortlist, tmp_path):
    (tmp_path / "list.safetensors").write_text("old")
    assert "already exists; add --overwrite" in shortlist().only_complaint
    assert (tmp_path / "list.safetensors").read_text() == "old"
    assert shortlist("--overwrite").code == 0
    assert Lexicon.load(tmp_path / "list.safetensors").source_size > 0
    assert [path.name for path in tmp_path.iterdir() if "list" in path.name] == ["list.safetensors"]


def test_a_link_stays_a_link(shortlist, tmp_path):
    (tmp_path / "link").symlink_to("real")
    assert shortlist(output=tmp_path / "link").code == 0
    assert (tmp_path / "link").is_symlink()
    assert Lexicon.load(tmp_path / "real").source_size > 0


def test_mistakes_are_told_in_one_line(shortlist, corpus, tmp_path):
    assert "--candidates 0" in shortlist("--candidates", 0).only_complaint
    assert "'10.7' is not a whole number" in shortlist("--frequent", 10.7).only_complaint
    assert "'1.5' is not a whole number" in shortlist("--candidates", 1.5).only_complaint
    assert "--frequent -1" in shortlist("--frequent", -1).only_complaint
    assert "choose another --output" in shortlist(output=tmp_path).only_complaint
    assert "choose another --output" in shortlist(output=tmp_path / "no" / "where").only_complaint
    assert "is also the input" in shortlist(output=corpus[1]).only_complaint
    assert "no such folder" in shortlist(model=tmp_path / "none").only_complaint
    assert "no such file" in shortlist(source=tmp_path / "none").complaint
    (tmp_path / "short").write_text("one line\n")
    assert "has 60 lines" in shortlist(target=tmp_path / "short").complaint
    (tmp_path / "blank").write_text("\n" * 60)
    assert "none has tokens on both sides" in shortlist(target=tmp_path / "blank").complaint
    assert not (tmp_path / "list.safetensors").exists()
    assert corpus[1].read_text(encoding="utf-8").startswith("LE CHAT")
