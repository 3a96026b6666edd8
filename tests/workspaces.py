"""What a killed process leaves behind."""

from headway.disk import MARKER


def leave_workspace(parent, name):
    """A workspace for `name` whose process is gone, with something in it."""
    folder = parent / f".{name}.abcdefgh.tmp"
    folder.mkdir(parents=True)
    (folder / MARKER).touch()
    (folder / "new").mkdir()
    (folder / "new" / "junk").write_text("half")
    return folder
