"""Translations in sealed pieces, and the pairs made of them."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from headway import synthesis
from headway.data.text import read_lines
from headway.errors import DataError, FolderError, Interrupted
from headway.synthesis import translations, write_pairs
from headway.translator import Translator, load

LONG = "le chat " * 40
LINES = ["le chat", "", "un chien", LONG, "la reine garde tout .", "Zoë", "la pomme"]


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    monkeypatch.setattr(synthesis, "PIECE", 2)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return tmp_path / "text"


@pytest.fixture
def work(text, model_folder, tmp_path):
    return translations(load(model_folder), model_folder, (text,), lambda: read_lines(text), tmp_path / "translations")


@pytest.fixture
def searched(monkeypatch):
    """How many sentences every search was asked for."""
    found, search = [], Translator.search

    def counted(self, sentences, **options):
        found.append(len(sentences))
        return search(self, sentences, **options)

    monkeypatch.setattr(Translator, "search", counted)
    return found


def silent(*told):
    pass


def made(work):
    return {path.name: path.stat().st_mtime_ns for path in sorted(work.folder.iterdir())}


def test_every_line_gets_the_translation_the_model_gives(work, model_folder):
    work.make(silent)
    counts = Counter()
    short = [line for line in LINES if line.strip() and line != LONG]
    assert list(work.pairs(counts)) == [(line, str(load(model_folder)(line))) for line in short]
    assert +counts == {"blank lines": 1, "longer than the model knows": 1}


def test_progress_is_told_with_the_number_of_lines(work):
    told = []
    work.make(lambda *each: told.append(each))
    assert told == [("translating", done, 7) for done in (2, 4, 6, 7)]


def test_what_was_made_before_is_not_made_again(work, searched):
    work.make(silent)
    before = made(work)
    work.make(silent)
    assert searched == [2, 2, 2, 1]
    assert made(work) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_keeps_the_finished_pieces_and_the_work_goes_on(work, searched, monkeypatch, number):
    with monkeypatch.context() as patched:
        seal = synthesis.write_folder

        def sealed(folder, *given):
            seal(folder, *given)
            if folder.name == "piece-000001":
                os.kill(os.getpid(), number)

        patched.setattr(synthesis, "write_folder", sealed)
        with pytest.raises(Interrupted, match="stopped after 4 of 7 lines; the same command goes on") as stopped:
            work.make(silent)
    assert stopped.value.exit_code == 128 + number
    assert list(made(work)) == ["piece-000000", "piece-000001"]
    work.make(silent)
    assert searched == [2, 2, 2, 1]


KILLED = """
import os, signal, sys
from pathlib import Path
from headway import synthesis
from headway.data.text import read_lines
from headway.translator import load

model, text, folder = map(Path, sys.argv[1:])
synthesis.PIECE = 2
seal = synthesis.write_folder

def killed(folder, fill, facts):
    def dying(aside):
        fill(aside)
        if folder.name == "piece-000002":
            os.kill(os.getpid(), signal.SIGKILL)
    seal(folder, dying, facts)

synthesis.write_folder = killed
work = synthesis.translations(load(model), model, (text,), lambda: read_lines(text), folder)
work.make(lambda *told: None)
"""


def test_a_kill_loses_no_finished_piece(work, text, model_folder, searched):
    done = subprocess.run([sys.executable, "-c", KILLED, model_folder, text, work.folder], check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL
    left, *finished = made(work)
    assert re.fullmatch(r"\.piece-000002\..+\.tmp", left)
    assert finished == ["piece-000000", "piece-000001"]
    work.make(silent)
    assert searched == [2, 1]
    assert len(list(work.pairs(Counter()))) == 5
    assert list(made(work)) == [f"piece-{number:06d}" for number in range(4)]


def test_a_piece_that_somebody_changed_is_refused_by_name_and_stays(work, searched):
    work.make(silent)
    (work.folder / "piece-000001" / "output").write_text("my own\n" * 2)
    with pytest.raises(FolderError, match=r"piece-000001/output: .*would have to replace it; move .*elsewhere"):
        work.make(silent)
    assert (work.folder / "piece-000001" / "output").read_text() == "my own\n" * 2
    assert searched == [2, 2, 2, 1]


def test_a_file_that_somebody_put_into_a_piece_is_refused_by_name_and_stays(work):
    work.make(silent)
    (work.folder / "piece-000001" / "notes").write_text("keep me")
    with pytest.raises(FolderError, match=r"piece-000001/notes: was not written by Headway"):
        work.make(silent)
    assert (work.folder / "piece-000001" / "notes").read_text() == "keep me"


def test_pieces_of_another_text_model_or_search_are_refused(work):
    work.make(silent)
    other = replace(work, origin=dict(work.origin) | {"text": ["x"], "decoding": {}})
    with pytest.raises(FolderError, match="made from another text, decoding; choose another --out"):
        other.make(silent)


def test_a_text_without_lines_is_refused(tmp_path, model_folder):
    (tmp_path / "empty").touch()
    empty = tmp_path / "empty"
    with pytest.raises(DataError, match="empty: no lines"):
        translations(load(model_folder), model_folder, (empty,), lambda: read_lines(empty), tmp_path / "out")


def pairs(*given, counted=()):
    def read(counts):
        counts.update(counted)
        yield from given

    return read


def test_pairs_are_written_line_by_line_and_counted(tmp_path):
    counts = write_pairs(tmp_path / "pairs", pairs(("a", "b"), ("c\r", "d"), counted=["blank lines"]), {"seed": 1})
    assert counts == {"pairs": 2, "blank lines": 1}
    assert list(read_lines(tmp_path / "pairs" / "source")) == ["a", "c"]
    assert list(read_lines(tmp_path / "pairs" / "target")) == ["b", "d"]


def test_pairs_are_written_again_only_if_they_come_from_something_else(tmp_path):
    first = write_pairs(tmp_path / "pairs", pairs(("a", "b")), {"seed": 1})
    assert write_pairs(tmp_path / "pairs", pairs(), {"seed": 1}) == first
    assert write_pairs(tmp_path / "pairs", pairs(), {"seed": 2}) == {}
    assert write_pairs(tmp_path / "pairs", pairs(("a", "b")), {"seed": 1}) == first
    (tmp_path / "pairs" / "source").write_text("my own")
    with pytest.raises(FolderError, match=r"pairs/source: .*move .*pairs elsewhere"):
        write_pairs(tmp_path / "pairs", pairs(("a", "b")), {"seed": 2})
    with pytest.raises(FolderError, match=r"pairs/source: .*move .*pairs elsewhere"):  # not taken for what it was
        write_pairs(tmp_path / "pairs", pairs(("a", "b")), {"seed": 1})
    assert (tmp_path / "pairs" / "source").read_text() == "my own"
