"""G5: a disk that is full or read-only costs nothing but the step: one line says where, and all goes on afterwards."""

import json
import re
import shutil
import signal

import pytest
from runs import Runs, checkpoint, result

STOPPED = 6


@pytest.fixture(scope="module")
def begun(forks, small_corpus, unbroken, tmp_path_factory):
    """A run that was stopped half-way, and what it would have come to; not to be changed."""
    folder = tmp_path_factory.mktemp("begun")
    runs, begun = Runs(forks, small_corpus, folder), folder / "begun"
    given = runs.arguments(begun)
    ended = runs.watch("signalled", given, phase=f"step {STOPPED}", numbers=[signal.SIGTERM]).wait()
    assert ended.code == 143, ended.err
    return begun, result(unbroken)


def check_complaint(ended, out):
    """One line that names a place in the run folder, and nothing like a traceback."""
    *before, last = ended.lines
    assert ended.code == 1, ended.err
    assert last.startswith("headway: "), ended.err
    assert str(out) in last, ended.err
    assert not any(line.startswith(("headway: ", "Traceback", "Exception")) for line in before), ended.err


def check_left(out):
    """Whatever has its final name is whole; returns the newest step."""
    steps = [path for path in (out / "checkpoints").iterdir() if re.fullmatch(r"step-\d+", path.name)]
    for path in steps:
        checkpoint(path)
    if (out / "best").exists():
        raise AssertionError("a run that failed has written a model")
    whole = (out / "metrics.jsonl").read_text().splitlines()[:-1]  # of the last one a kill may leave half
    assert [json.loads(line)["step"] for line in whole]
    return max(int(path.name[5:]) for path in steps)


def goes_on(runs, out, whole, proven):
    """Resume where there is room and compare with the unbroken run, once for every set of files that may be left."""
    left = frozenset(str(path.relative_to(out)) for path in out.rglob("*") if path.parent.name != "events")
    if left not in proven:
        assert runs.train(out).code == 0
        assert result(out) == whole
        proven.add(left)
    shutil.rmtree(out)


def sizes(count, chance, largest):
    """From nothing to what is needed, denser where files are small."""
    return sorted(int(largest * (number / (count - 1)) ** 2) + chance.randrange(8) for number in range(count))


def test_a_file_that_can_grow_no_further_costs_no_checkpoint(runs, begun, chance, tally, tmp_path):
    (start, whole), proven = begun, set()
    largest = max(path.stat().st_size for path in start.rglob("*") if path.is_file())
    for most in sizes(tally.expect(20, 200), chance, largest):
        out = tmp_path / f"limited-{tally.passed}"
        shutil.copytree(start, out)
        logs = tmp_path / f"log-{tally.passed}"
        ended = runs.forks.run("trials.with_files_limited", logs, arguments=runs.arguments(out), most=most)
        if most < largest:
            check_complaint(ended, out)
            assert check_left(out) >= STOPPED
        goes_on(runs, out, whole, proven)
        tally.passed += 1


@pytest.fixture(scope="session")
def mounts(forks, tmp_path_factory):
    if forks.run("trials.may_mount", tmp_path_factory.mktemp("mounts")).code != 0:
        pytest.skip("this system lets no process have mounts of its own")


def test_a_disk_that_is_full_costs_no_checkpoint(mounts, runs, begun, chance, tally, tmp_path):
    (start, whole), proven = begun, set()
    taken = sum(-(-path.stat().st_size // 4096) * 4096 for path in start.rglob("*") if path.is_file())
    for number, more in enumerate(sizes(tally.expect(8, 200), chance, 160_000)):
        out, kept = tmp_path / "disk", tmp_path / f"kept-{number}"
        given = {"arguments": runs.arguments(out, resume=True), "out": str(out), "start": str(start), "kept": str(kept)}
        ended = runs.forks.run("trials.on_small_disk", tmp_path / f"log-{number}", most=taken + more, **given)
        if ended.code:
            check_complaint(ended, out)
            assert check_left(kept) >= STOPPED
        else:
            assert more > 80_000  # it did fit
        out.rmdir()
        kept.rename(out)  # more room now
        goes_on(runs, out, whole, proven)
        tally.passed += 1


def test_a_disk_that_is_full_before_training_begins_is_said_and_the_same_command_works_later(
    mounts, runs, begun, chance, tally, tmp_path
):
    whole, proven = begun[1], set()
    for number, most in enumerate(sizes(tally.expect(6, 100), chance, 60_000)):
        out, kept = tmp_path / "disk", tmp_path / f"kept-{number}"
        given = {"arguments": runs.arguments(out), "out": str(out), "start": None, "kept": str(kept)}
        ended = runs.forks.run("trials.on_small_disk", tmp_path / f"log-{number}", most=4096 + most, **given)
        check_complaint(ended, out)
        out.rmdir()
        kept.rename(out)
        goes_on(runs, out, whole, proven)
        tally.passed += 1


def test_a_disk_that_cannot_be_written_is_said(mounts, runs, begun, tmp_path):
    start, _ = begun
    out, kept = tmp_path / "disk", tmp_path / "kept"
    given = {"arguments": runs.arguments(out, resume=True), "out": str(out), "start": str(start), "kept": str(kept)}
    ended = runs.forks.run("trials.on_read_only_disk", tmp_path / "log", **given)
    assert ended.code == 2, ended.err
    assert f"{out}: cannot be written" in ended.lines[-1] and "Read-only" in ended.lines[-1]
    assert check_left(kept) >= STOPPED


RESULTS = {
    "translations": "translate MODEL --input TEXT --output out",
    "packed": "translate MODEL --input TEXT --output out.gz", "vectors": "embed MODEL --input TEXT --output out",
    "scores": "score MODEL --source TEXT --target TEXT --output out",
    "page": "attention MODEL un --out out.html", "picture": "positions --out out.png", "recipe": "init out.toml",
    "export": "export MODEL --to ctranslate2 --output out", "demo": "demo --out out --seconds 1",
    "shortlist": "shortlist MODEL --source TEXT --target TEXT --output out",
}  # fmt: skip


@pytest.mark.parametrize("case", RESULTS)
def test_a_result_for_which_there_is_no_room_leaves_nothing(case, runs, unbroken, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    known = {"MODEL": unbroken, "TEXT": runs.corpus / "source"}
    words = [place / word if word.startswith("out") else known.get(word, word) for word in RESULTS[case].split()]
    (tmp_path / "logs").mkdir()
    given = list(map(str, words))
    ended = runs.forks.run("trials.with_files_limited", tmp_path / "logs", arguments=given, most=10)
    check_complaint(ended, place / "out")
    assert [path for path in place.rglob("*") if path.is_file()] == []
    if case == "demo":
        assert runs.forks.run("trials.command", tmp_path / "logs", arguments=given).code == 0


OBSTACLES = {
    "checkpoints": "file", "events": "file", "metrics.jsonl": "folder", "data/plans": "file", "lock": "folder",
}  # fmt: skip


@pytest.mark.parametrize("place", OBSTACLES)
def test_something_in_the_way_is_said_in_one_line(place, runs, begun, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(begun[0], out)
    path = out / place
    (shutil.rmtree if path.is_dir() else lambda path: path.unlink(missing_ok=True))(path)
    (path.mkdir if OBSTACLES[place] == "folder" else lambda: path.write_bytes(b"in the way"))()
    ended = runs.train(out)
    *before, last = ended.lines
    assert ended.code in (1, 2), ended.err
    assert last.startswith("headway: ") and str(out) in last, ended.err
    assert not any(line.startswith(("headway: ", "Traceback", "Exception")) for line in before), ended.err
