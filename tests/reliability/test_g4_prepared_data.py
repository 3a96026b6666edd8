"""G4: whatever happens to the prepared data of a run, it is built again as it was or refused by name."""

import json
import os
import shutil

import pytest
from runs import Runs, result
from test_g4_damage import MUTATIONS

BUILT_AGAIN = ("data/store", "data/plans", "metrics.jsonl")
"""What comes out of the corpus as it was, or does without the lines that are damaged."""


@pytest.fixture(scope="module")
def half_done(forks, small_corpus, tmp_path_factory):
    """The folder of a run that is to go on from step 8."""
    folder = tmp_path_factory.mktemp("half")
    ended = Runs(forks, small_corpus, folder).train(folder / "run", training__steps=8)
    assert ended.code == 0, ended.err
    return folder / "run"


@pytest.fixture(scope="module")
def whole(forks, small_corpus, half_done, tmp_path_factory):
    """The model of such a run where nothing happened."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(half_done, folder / "run")
    ended = Runs(forks, small_corpus, folder).train(folder / "run")
    assert ended.code == 0, ended.err
    return result(folder / "run")["model"]


def sealed_files(run):
    return sorted(path for path in (run / "data").rglob("*") if path.is_file())


def test_every_file_of_the_data_is_built_again_or_refused_by_name(runs, half_done, whole, chance, tally):
    files = sealed_files(half_done)
    assert len(files) >= 10
    for number in range(tally.expect(2 * len(files), 400)):
        path = files[number % len(files)].relative_to(half_done)
        out = runs.folder / f"run-{number}"
        shutil.copytree(half_done, out)
        before = (out / path).read_bytes()
        content = chance.choice(MUTATIONS)(before, (out / files[0].relative_to(half_done)).read_bytes(), chance)
        if content is None:
            (out / path).unlink()
        else:
            (out / path).write_bytes(content)
        ended = runs.train(out)
        if content == before or str(path).startswith(BUILT_AGAIN):
            assert ended.code == 0, (path, ended.err)
            assert result(out)["model"] == whole
            if content is not None:
                assert path.name.startswith("plan-") or (out / path).read_bytes() == before
        elif ended.code == 0:  # only a manifest has bytes without meaning
            assert path.name == "MANIFEST.json" and result(out)["model"] == whole, path
        else:
            told = path.name if path.name != "MANIFEST.json" else f"{out.name}/data"
            assert ended.code == 2 and told in ended.err.strip().splitlines()[-1], (path, ended.err)
        tally.passed += 1
        shutil.rmtree(out)


@pytest.mark.parametrize("place", ["data/split.json", "data/plans", "data/store/source.tokens", "metrics.jsonl"])
@pytest.mark.parametrize("damage", ["pipe", "nesting", "folder"])
def test_what_is_no_longer_a_sound_file_costs_one_line_and_no_time(place, damage, runs, half_done, whole):
    out = runs.folder / "run"
    shutil.copytree(half_done, out)
    path = out / place
    if place == "data/plans":  # the one in use
        path = max(path.iterdir(), key=lambda each: (half_done / place / each.name).stat().st_mtime_ns)
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    elif damage == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"[" * 200_000 + b"\xff\n")
    ended = runs.train(out)
    if damage == "nesting" and place != "data/split.json":
        assert ended.code == 0 and result(out)["model"] == whole
    else:
        last = ended.err.strip().splitlines()[-1]
        assert ended.code == 2 and path.name in last and "Traceback" not in ended.err, ended.err


def test_data_that_the_corpus_does_not_give_again_is_refused(runs, half_done):
    out = runs.folder / "run"
    shutil.copytree(half_done, out)
    manifest = out / "data" / "MANIFEST.json"
    content = json.loads(manifest.read_text())
    content["folders"]["store"]["source.tokens"]["sha256"] = "0" * 64
    manifest.write_text(json.dumps(content))
    ended = runs.train(out)
    assert ended.code == 2 and "the corpus does not give the same data again" in ended.err, ended.err
