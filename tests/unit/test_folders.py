"""Folders that are whole or not there."""

import fcntl
import json
import os

import pytest

from headway.disk import lock_folder, plain_file, write_text
from headway.errors import FolderError, HeadwayError
from headway.folders import MANIFEST, read_manifest, verify_folder, write_folder
from workspaces import leave_workspace


def fill(folder):
    (folder / "a.txt").write_text("alpha")
    (folder / "b.txt").write_text("beta")


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "whole", fill, {"kind": "test", "step": 3})
    return tmp_path / "whole"


def test_a_written_folder_verifies_and_tells_its_facts(folder):
    manifest = verify_folder(folder)
    assert (manifest["kind"], manifest["step"], manifest["format"]) == ("test", 3, 1)
    assert manifest["files"]["a.txt"]["bytes"] == 5
    assert [path.name for path in folder.parent.iterdir()] == ["whole"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_files_have_the_rights_that_the_user_gives_new_ones(mask, mode, tmp_path):
    def private(folder):
        fill(folder)
        (folder / "a.txt").chmod(0o600)

    before = os.umask(mask)
    try:
        write_folder(tmp_path / "whole", private, {})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "whole").glob("*.txt")} == {mode}


def test_a_folder_that_is_there_is_never_overwritten(folder):
    with pytest.raises(FolderError, match="already there"):
        write_folder(folder, fill, {})
    verify_folder(folder)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("bad"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_folder_that_could_not_be_filled(error, tmp_path):
    def stop(folder):
        fill(folder)
        raise error

    with pytest.raises((HeadwayError, ValueError, KeyboardInterrupt)):
        write_folder(tmp_path / "parent" / "half", stop, {})
    assert list((tmp_path / "parent").iterdir()) == []


def test_a_full_disk_is_told_with_the_path_and_is_no_fault_of_the_user(tmp_path):
    def stop(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(HeadwayError, match=r"half: cannot be written \(No space left on device\)") as caught:
        write_folder(tmp_path / "half", stop, {})
    assert caught.value.exit_code == 1


def test_what_an_earlier_crash_left_aside_is_no_obstacle(tmp_path):
    leave_workspace(tmp_path, "whole")
    (tmp_path / ".whole.abcdefgi.tmp").mkdir()  # killed before it had its marker
    write_folder(tmp_path / "whole", fill, {})
    assert "junk" not in verify_folder(tmp_path / "whole")["files"]
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_file_of_another_size_or_content_is_named(folder):
    (folder / "a.txt").write_text("alphabet")
    with pytest.raises(FolderError, match=r"a\.txt: 8 bytes, should be 5"):
        verify_folder(folder)
    (folder / "a.txt").write_text("Alpha")
    with pytest.raises(FolderError, match=r"a\.txt: its contents do not match"):
        verify_folder(folder)
    (folder / "a.txt").unlink()
    with pytest.raises(FolderError, match=r"a\.txt: missing or not a plain file"):
        verify_folder(folder)


@pytest.mark.parametrize("name", ["../a", "/a", "a/b", "", ".", ".."])
def test_a_manifest_may_name_only_files_of_its_own_folder(name, folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = {"bytes": 1, "sha256": "0"}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(FolderError, match="names a file outside the folder"):
        read_manifest(folder)


def test_a_link_is_not_a_plain_file_whatever_it_points_to(folder):
    (folder / "link").symlink_to("a.txt")
    assert plain_file(folder / "a.txt")
    assert not plain_file(folder / "link")
    assert not plain_file(folder)
    assert not plain_file(folder / ("x" * 5000))


def test_a_small_file_is_replaced_whole(tmp_path):
    write_text(tmp_path / "note", "one")
    write_text(tmp_path / "note", "two")
    assert (tmp_path / "note").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_held_folder_is_refused_until_it_is_let_go(tmp_path):
    with lock_folder(tmp_path / "run"):
        with (tmp_path / "run" / "lock").open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(FolderError, match="another process is training there"), lock_folder(tmp_path / "run"):
            pass
    with lock_folder(tmp_path / "run"):
        pass


def test_a_lock_in_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="cannot be written"), lock_folder(tmp_path / "file"):
        pass
