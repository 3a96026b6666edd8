"""G3: a kill or a power cut after any single operation of a save or a prune leaves a checkpoint that loads."""

import pytest
from points import NEW, OLD
from tracing import SUPPORTED

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="system calls are followed by ptrace on Linux x86_64")


@pytest.fixture(scope="module")
def found(forks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("points")
    return forks.run("points.every_point", folder / "logs", folder=str(folder / "points"), seconds=300).found


def test_a_kill_after_any_operation_of_a_save_or_a_prune_leaves_a_checkpoint_that_loads(tally, request):
    found = request.getfixturevalue("found")  # within the time of the tally
    whole = {each["scenario"]: each["operations"] for each in found if each["kill"] is None}
    points = [each for each in found if each["kill"] is not None]
    tally.expect(len(points))
    assert sum(not each["power"] for each in points) == sum(map(len, whole.values()))
    assert sum(each["power"] for each in points) > 20
    for each in points:
        assert each["loads"], each
        assert each["latest"] in (OLD[-1], NEW), each
        assert each["latest"] >= each["before"], each
        assert each["again"], each
        assert each["left"] == [f"step-{NEW:09d}"], each
        tally.passed += 1
    for name, operations in whole.items():
        own = [each for each in points if each["scenario"] == name]
        both = [[each["latest"] for each in own if each["power"] is cut] for cut in (False, True)]
        assert both[0] == sorted(both[0])  # once the new checkpoint is there it stays
        assert set(both[0]) == {OLD[-1], NEW}
        assert set(both[1]) == {OLD[-1]}  # nothing of the new one is left unsynced under its final name
        kinds = {kind for kind, _ in operations}
        assert kinds >= {"create", "write", "fsync", "rename", "mkdir", "unlink", "rmdir"}  # we did see them all


def test_nothing_is_removed_before_the_new_checkpoint_is_on_the_disk_for_good(found):
    (whole,) = [each for each in found if each["kill"] is None and each["scenario"] == "save and prune"]
    operations = whole["operations"]
    renamed = next(n for n, (kind, path) in enumerate(operations) if kind == "rename" and path.endswith("/new"))
    synced = next(n for n, (kind, path) in enumerate(operations) if n > renamed and kind == "fsync")
    removed = [n for n, (kind, path) in enumerate(operations) if kind in ("unlink", "rmdir") or f"{OLD[0]:09d}" in path]
    assert operations[synced][1].endswith("save and prune")
    assert min(removed) > synced
