import os
import resource
import signal
import stat
import threading

import pytest

from headway import disk
from headway.disk import (
    LOCK,
    LOCK_TEXT,
    lock_folder,
    output,
    owned,
    plain_file,
    remove_folder,
    sweep,
    workspace,
    write_output,
    write_text,
)
from headway.errors import ConfigError, FolderError, HeadwayError
from workspaces import leave_workspace


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_workspace_is_gone_afterwards_whatever_happened(tmp_path):
    with workspace(tmp_path / "out") as room:
        assert room.parent == tmp_path
        (room / "new").mkdir()
    with pytest.raises(ValueError, match="stop"), workspace(tmp_path / "out") as room:
        (room / "junk").write_text("x")
        raise ValueError("stop")
    assert names(tmp_path) == []


def test_a_workspace_in_use_is_never_swept(tmp_path):
    with workspace(tmp_path / "out") as room:
        sweep(tmp_path)
        with workspace(tmp_path / "out") as second:
            assert room.is_dir() and second.is_dir()
        assert room.is_dir()


def test_only_abandoned_workspaces_of_the_same_name_are_swept(tmp_path):
    leave_workspace(tmp_path, "out")
    other = leave_workspace(tmp_path, "other")
    for theirs in (".out.abcdefgi.tmp", ".out.tmp", "out.tmp"):  # names like ours, without our marker
        (tmp_path / theirs).mkdir()
        (tmp_path / theirs / "precious").write_text("mine")
    with workspace(tmp_path / "out"):
        pass
    assert names(tmp_path) == [other.name, ".out.abcdefgi.tmp", ".out.tmp", "out.tmp"]
    sweep(tmp_path)
    assert names(tmp_path) == [".out.abcdefgi.tmp", ".out.tmp", "out.tmp"]


@pytest.mark.parametrize("swept", ["best", None])
def test_a_replacement_cut_in_half_is_undone(swept, tmp_path):
    room = leave_workspace(tmp_path, "best")
    (room / "old").mkdir()
    (room / "old" / "model").write_text("good")
    sweep(tmp_path, swept)
    assert (tmp_path / "best" / "model").read_text() == "good"
    assert names(tmp_path) == ["best"]


@pytest.mark.parametrize("name", ["x" * 200, "é" * 120, "a.b c"])
def test_names_of_any_length_have_workspaces_of_their_own(name, tmp_path):
    write_text(tmp_path / name, "one")
    leave_workspace(tmp_path, name if len(name) < 60 else disk._key(name))
    write_text(tmp_path / name, "two")
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "two"


def test_a_folder_with_anything_else_in_it_is_never_removed(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "a").write_text("ours")
    (folder / "b").symlink_to("a")
    for known in ({"a"}, {"a", "b"}):  # a link is not what we wrote, whatever its name
        with pytest.raises(FolderError, match=r"made/b: was not written by Headway"):
            remove_folder(folder, known)
    (folder / "b").unlink()
    remove_folder(folder, {"a"})
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_only_a_plain_file_is_replaced(kind, tmp_path):
    path = tmp_path / "config.toml"
    (tmp_path / "precious").write_text("mine")
    {"link": lambda: path.symlink_to("precious"), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises(FolderError, match="is not a plain file"):
        write_text(path, "x")
    assert (tmp_path / "precious").read_text() == "mine"


# Files that users name.


def test_a_file_with_content_is_replaced_only_if_told_to(tmp_path):
    path = tmp_path / "out"
    path.touch()
    write_output(path, b"one")  # nothing was in it
    with pytest.raises(ConfigError, match=r"out: already exists; add --overwrite to replace it, or choose another"):
        write_output(path, b"two")
    assert path.read_bytes() == b"one"
    write_output(path, b"two", overwrite=True)
    assert path.read_bytes() == b"two"
    assert names(tmp_path) == ["out"]


def test_a_link_stays_a_link_and_keeps_the_rights_of_new_files(tmp_path):
    (tmp_path / "link").symlink_to("real")
    write_output(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "other").write_text("")
    assert (tmp_path / "real").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    with output(tmp_path / "out") as first:
        first.write(b"first")
        with pytest.raises(ConfigError, match="out: another process is writing it"):
            write_output(tmp_path / "out", b"second")
    assert (tmp_path / "out").read_bytes() == b"first"


def test_a_file_that_appears_meanwhile_stays_and_the_result_is_kept_beside_it(tmp_path):
    with pytest.raises(HeadwayError, match="another program created it in the meantime; the result is in") as caught:  # noqa: SIM117  # the file is written inside
        with output(tmp_path / "out") as file:
            file.write(b"ours")
            (tmp_path / "out").write_text("theirs")
    assert (tmp_path / "out").read_text() == "theirs"
    (kept,) = tmp_path.glob("out.*/out")
    assert kept.read_bytes() == b"ours" and str(kept) in str(caught.value)


def test_a_pipe_and_a_device_are_written_to_in_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    heard = []
    reader = threading.Thread(target=lambda: heard.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_output(tmp_path / "pipe", b"through")
    reader.join(10)
    assert heard == [b"through"]
    (tmp_path / "null").symlink_to("/dev/null")
    write_output(tmp_path / "null", b"gone")
    assert stat.S_ISCHR(disk.Path("/dev/null").stat().st_mode)
    assert names(tmp_path) == ["null", "pipe"]


def test_a_slow_reader_of_a_pipe_gets_everything(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    content, found, begun = b"a line\n" * 100_000, [], threading.Event()

    def read():
        with (tmp_path / "pipe").open("rb") as file:
            begun.wait()
            found.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    with output(tmp_path / "pipe", option="--output", overwrite=False) as file:
        assert os.get_blocking(file.fileno())  # more than a pipe holds must wait for the reader
        begun.set()
        file.write(content)
    reader.join()
    assert found == [content]


def test_a_pipe_that_nobody_reads_is_refused_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "PIPE_PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: cannot be written"):
        write_output(tmp_path / "pipe", b"x")


def test_standard_output_by_its_name_is_not_emptied_first(tmp_path):
    handle = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, b"before\n")
    write_output(disk.Path(f"/dev/fd/{handle}"), b"after\n")
    os.close(handle)
    assert (tmp_path / "log").read_bytes() == b"before\nafter\n"


@pytest.mark.parametrize("place", ["folder", "absent/out", "file/out", "socket"])
def test_a_place_that_cannot_be_written_is_refused(place, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mknod(tmp_path / "socket", 0o600 | stat.S_IFSOCK)
    with pytest.raises(ConfigError, match=r"choose another --out$"):
        write_output(tmp_path / place, b"x")
    with pytest.raises(ConfigError, match=r"choose another --output$"):
        disk.check_output(tmp_path / place)


def test_a_full_disk_leaves_no_half_file_and_what_was_there(tmp_path):
    (tmp_path / "out").write_text("before")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        for name in ("out", "new"):
            with pytest.raises(HeadwayError, match=f"{name}: cannot be written") as caught:
                write_output(tmp_path / name, b"x" * 2000, overwrite=True)
            assert caught.value.exit_code == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(tmp_path) == ["out"] and (tmp_path / "out").read_text() == "before"


# Run folders.


def test_a_lock_tells_whose_folder_it_is(tmp_path):
    assert not owned(tmp_path)
    with lock_folder(tmp_path):
        assert owned(tmp_path)
    assert (tmp_path / LOCK).read_bytes() == LOCK_TEXT


@pytest.mark.parametrize("kind", ["link", "file", "pipe", "folder"])
def test_a_lock_that_is_none_of_ours_is_refused_and_stays(kind, tmp_path):
    (tmp_path / "precious").write_text("mine")
    path = tmp_path / "run" / LOCK
    path.parent.mkdir()
    {
        "link": lambda: path.symlink_to("../precious"), "file": lambda: path.write_text("mine"),
        "pipe": lambda: os.mkfifo(path), "folder": path.mkdir,
    }[kind]()  # fmt: skip
    with pytest.raises(FolderError, match="lock: was not written by Headway"), lock_folder(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"
    assert plain_file(path) == (kind == "file")
