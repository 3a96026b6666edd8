"""G16: whatever stands where a command is told to write, nothing that Headway did not write is changed or removed."""

import hashlib
import os
import random
import re
import shutil
import socket
import stat
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headway.disk import LOCK, MARKER

TINY = {
    "tokenizer.vocabulary": 300, "model.dim": 16, "model.heads": 2, "model.hidden": 16, "model.encoder_layers": 1,
    "model.decoder_layers": 1, "model.longest": 64, "training.steps": 3, "training.batch_tokens": 256,
    "training.validation_sentences": 2, "training.samples": 0,
}  # fmt: skip
SOURCE = Path(__file__).parents[2] / "src" / "headway"
NAMES = (
    "best", "best/config.json", "best/MANIFEST.json", "best/notes", "checkpoints", "checkpoints/step-000000001",
    "checkpoints/step-000000003/model.safetensors", "checkpoints/step-000000003/MANIFEST.json", "data", "data/store",
    "data/store/source.tokens", "data/store/MANIFEST.json", "data/plans/plan-0", "data/split.json",
    "data/tokenizer.json", "data/alignment/links", "events", "events/events.out.tfevents.1", "metrics.jsonl", LOCK,
    "pairs/source", "pairs/target", "pairs/train.fr", "valid/source", "translations/piece-000000/output", "corpus",
    "corpus/test.source", "corpus/train.source", "attention.html", "config.toml", "extrapolation", "layers.html",
    "extrapolation/extrapolation.html", "MANIFEST.json", "best.tmp", "best.tmp/config.json", "best.old/x",
    "checkpoints/step-000000003.tmp/x", "checkpoints/step-000000001.old/x", "data/store.tmp-host-1/x", ".out.tmp",
    ".best.abcdefgh.tmp/x", ".out.abcdefgh.tmp", "out.tmp", "model.bin", "notes", "a/b/c", "é", "x" * 60,
)  # fmt: skip
"""Names of our own, of earlier versions, and of anybody's."""
CONTENTS = (b"", b"mine\n", b"{}", b'{"format": 1, "files": {}}', b"\xff\0" * 40, b"[data]\nsource = 'x'\n")


def digest(folder: Path) -> dict[str, str]:
    """What stands in a folder: every name with its kind and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            told = f"link to {path.readlink()}"
        elif stat.S_ISREG(mode):
            told = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            told = str(stat.S_IFMT(mode))
        found[str(path.relative_to(folder))] = told
    return found


def put(path: Path, draw: random.Random, elsewhere: Path) -> None:
    """Something of the user's at a path: a file, folder, link, named pipe or socket."""
    if any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in path.parents):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() or path.is_symlink():
        return
    kind = draw.choices(("file", "folder", "link", "pipe", "socket", "copy"), (10, 3, 3, 1, 1, 2))[0]
    if kind == "file":
        path.write_bytes(draw.choice(CONTENTS))
    elif kind == "folder":
        path.mkdir()
        (path / draw.choice(("notes", "MANIFEST.json", MARKER, "model.safetensors"))).write_bytes(draw.choice(CONTENTS))
    elif kind == "link":
        path.symlink_to(draw.choice((elsewhere / "precious", elsewhere, "nowhere", "/dev/null")))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "copy":
        shutil.copytree(elsewhere / "model", path)
        (path / "notes").write_text("mine")
    elif len(str(path)) < 100:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


@pytest.fixture
def commands(headway, model_folder, corpus, monkeypatch) -> dict[str, Callable[[Path], object]]:
    """Every command that writes, to be told where."""
    from headway import disk
    from headway.data.demos import DEMOS, dates
    from headway.reproduce import EXPERIMENTS
    from headway.reproduce.report import Report

    small = partial(dates, train=60, valid=5, test=5)
    report = Report("extrapolation", "A trial", "Why?", "Because.", [], [], "headway reproduce", 1.0)
    monkeypatch.setattr(disk, "PIPE_PATIENCE", 0.01)
    monkeypatch.setitem(DEMOS, "dates", small)
    monkeypatch.setitem(EXPERIMENTS, "extrapolation", lambda *given: report)
    source, target = corpus
    tiny = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    tiny += ["--set", "training.steps=1", "--device", "cpu"]
    both, one, beam = ("--source", source, "--target", target), ("--source", source), ("--beam", 1)
    reverse = ("backtranslate", model_folder, "--monolingual", target, *beam)

    def run(*words: object, option: str = "--out", suffix: str = "") -> Callable[[Path], object]:
        return lambda out: headway(*words, option, f"{out}{suffix}")

    return {
        "train": run("train", *both, *tiny),
        "resume": run("train", *both, *tiny, "--resume"),
        "distill": run("distill", model_folder, *one, *tiny, *beam),
        "distill again": run("distill", model_folder, *one, *tiny, *beam, "--resume"),
        "backtranslate": run(*reverse, "--device", "cpu"),
        "backtranslate and train": run(*reverse, *both, *tiny),
        "attention": run("attention", model_folder, "le chat"),
        "attention page": run("attention", model_folder, "le chat", suffix=".html"),
        "positions": run("positions", "--length", 4, "--dim", 4, suffix=".png"),
        "init": lambda out: headway("init", out),
        "translate": run("translate", model_folder, *beam, "--input", source, option="--output"),
        "translate packed": run("translate", model_folder, *beam, "--input", source, option="--output", suffix=".gz"),
        "score": run("score", model_folder, *both, option="--output"),
        "embed": run("embed", model_folder, "--input", source, option="--output"),
        "shortlist": run("shortlist", model_folder, *both, option="--output"),
        "export": run("export", model_folder, "--to", "ctranslate2", option="--output"),
        "reproduce": run("reproduce", "extrapolation", "--seeds", 1, "--effort", 0.01),
        "demo": run("demo", "dates", "--seconds", 1),
        "demo again": run("demo", "dates", "--seconds", 1, "--again"),
    }


@pytest.fixture
def bases(headway, corpus, model_folder, tmp_path) -> dict[str, Path | None]:
    """Folders that Headway wrote: to each something of the user's is added. None: there was nothing before."""
    source, target = corpus
    tiny = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    finished, killed, distilled = (tmp_path / "bases" / name for name in ("finished", "killed", "distilled"))
    given = ("--source", source, *tiny, "--device", "cpu")
    assert headway("train", *given, "--target", target, "--out", finished).code == 0
    assert headway("distill", model_folder, *given, "--beam", 1, "--out", distilled).code == 0
    shutil.copytree(finished, killed)
    for name in ("best", "checkpoints", "events"):
        shutil.rmtree(killed / name)
    for name in ("config.toml", "metrics.jsonl"):
        (killed / name).unlink()
    return {"": None, "finished": finished, "killed": killed, "distilled": distilled}


def test_nothing_that_headway_did_not_write_is_changed(commands, bases, tally, chance, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("mine")
    shutil.copytree(bases["finished"] / "best", elsewhere / "model")
    names, outcomes = list(commands), Counter()
    for number in range(tally.expect(150, 1000)):
        place = tmp_path / f"case-{number}"
        name, base = names[number % len(names)], chance.choice([*bases] if number % 3 else [""])
        out = place / "out"
        place.mkdir()
        own = set()
        if bases[base] is not None:
            shutil.copytree(bases[base], out)
            own = set(digest(place))
        inside = chance.random() < 0.8 or base
        for _ in range(chance.randint(1, 4)):
            put(out / chance.choice(NAMES) if inside else place / chance.choice(("out", "out.html")), chance, elsewhere)
        target = out if chance.random() < 0.8 or not inside else out / chance.choice(NAMES)
        before, around = digest(place), digest(elsewhere)
        outcome = commands[name](target)
        after = digest(place)
        story = f"case {number}: {name} to {target.relative_to(place)}, {base or 'nothing'} before: {outcome}"
        assert outcome.code in (0, 1, 2) and "Traceback" not in outcome.err, story
        assert around.items() <= digest(elsewhere).items(), story  # a run may begin where a link leads
        changed = {path for path in before.keys() - own if after.get(path) != before[path]}
        empty = hashlib.sha256(b"").hexdigest()
        changed -= {path for path in changed if before[path] == empty and (place / path).is_file()}  # nothing was in it
        assert not changed, (story, changed)
        outcomes[outcome.code] += 1
        tally.passed += 1
        shutil.rmtree(place)
    assert outcomes[2] > tally.count / 4 and outcomes[0] > tally.count / 20, outcomes


@pytest.fixture
def tiny():
    """The settings of a run that takes no time."""
    settings = TINY | {"training.steps": 1}
    return ["--device", "cpu", *(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))]


@pytest.mark.parametrize("place", ["pairs/train.fr", "valid/v.fr", "best/c.fr", "data/store/c.fr", "checkpoints/c.fr"])
def test_a_corpus_in_the_folder_it_is_to_be_learnt_in_stays(place, tiny, headway, model_folder, corpus, tmp_path):
    source, target = corpus
    given = tmp_path / "p" / place
    given.parent.mkdir(parents=True)
    shutil.move(source, given)
    before = digest(tmp_path)
    pairs = ("--source", given, "--target", target, *tiny, "--out", tmp_path / "p")
    for words in (
        ("distill", model_folder, *pairs, "--beam", 1),
        ("backtranslate", model_folder, "--monolingual", target, *pairs),
        ("train", *pairs),
    ):
        told = headway(*words).only_complaint
        assert f"{tmp_path / 'p' / Path(place).parts[0]}: was not written by Headway; move it elsewhere" in told
        assert digest(tmp_path) == before


@pytest.mark.parametrize("place", ["best", "data/store", "pairs", "translations/piece-000000"])
def test_a_file_put_into_a_folder_of_a_run_is_refused_by_name_before_work(
    place, tiny, headway, model_folder, corpus, tmp_path
):
    given = ("distill", model_folder, "--source", corpus[0], "--out", tmp_path / "run", "--beam", 1, *tiny)
    assert headway(*given).code == 0
    (tmp_path / "run" / place / "notes").write_text("mine")
    before = digest(tmp_path)
    assert f"{place}/notes: was not written by Headway" in headway(*given, "--resume").only_complaint
    assert digest(tmp_path) == before


def test_files_beside_those_of_a_run_and_in_old_checkpoints_are_no_obstacle(tiny, headway, corpus, tmp_path):
    run, more = tmp_path / "run", ("--set", "training.steps=3", "--set", "training.validate_every=1")
    given = ("train", "--source", corpus[0], "--target", corpus[1], "--out", run, *tiny)
    run.mkdir()
    (run / "notes").write_text("mine")
    assert headway(*given).code == 0
    (old,) = (run / "checkpoints").iterdir()
    for place in (run / "data" / "notes", run / "checkpoints" / "notes", old / "notes"):
        place.write_text("mine")
    assert headway(*given, *more, "--resume").code == 0
    assert sum(path.read_text() == "mine" for path in run.rglob("notes")) == 4
    assert (old / "model.safetensors").is_file()  # somebody needs it
    assert len(list((run / "checkpoints").iterdir())) > 2


@pytest.mark.parametrize("lost", ["all checkpoints", "their folder", "the bytes of the last one"])
def test_a_run_that_lost_its_checkpoints_is_refused_and_stays_as_it_is(lost, tiny, headway, corpus, tmp_path):
    run = tmp_path / "run"
    given = ("train", "--source", corpus[0], "--target", corpus[1], "--out", run, *tiny)
    assert headway(*given).code == 0
    (step,) = (run / "checkpoints").iterdir()
    if lost == "the bytes of the last one":
        (step / "model.safetensors").write_bytes(b"damaged")
    else:
        shutil.rmtree(step if lost == "all checkpoints" else run / "checkpoints")
    before = digest(tmp_path)
    told = headway(*given, "--set", "training.steps=2", "--resume").complaint
    assert f"the run cannot be resumed, begin another run with --from {run} in another --out" in told
    assert ("model.safetensors: 7 bytes" in told) == (lost == "the bytes of the last one")
    assert digest(tmp_path) == before


def test_a_demo_is_begun_again_only_where_headway_wrote_all_of_it(headway, tmp_path):
    demo = ("demo", "dates", "--seconds", 1, "--out", tmp_path / "proj")
    (tmp_path / "proj" / "corpus").mkdir(parents=True)
    (tmp_path / "proj" / "corpus" / "test.source").write_text("mine")
    before = digest(tmp_path)
    assert "already there" in headway(*demo, "--again").only_complaint
    assert digest(tmp_path) == before
    shutil.rmtree(tmp_path / "proj")
    assert headway(*demo).code == 0
    (tmp_path / "proj" / "notes").write_text("mine")
    assert headway(*demo, "--again").code == 0
    assert (tmp_path / "proj" / "notes").read_text() == "mine"
    for place in ("corpus/test.source", "attention.html", "best/README.md"):
        path = tmp_path / "proj" / place
        content = path.read_bytes()
        path.write_text("mine")
        before = digest(tmp_path)
        assert f"{path}: " in headway(*demo, "--again").only_complaint
        assert digest(tmp_path) == before
        path.write_bytes(content)
    for place in ("corpus/notes", "best/notes", "checkpoints/notes", "data/notes", "events/notes", "data/plans/notes"):
        path = tmp_path / "proj" / place
        path.write_text("mine")
        assert f"{path}: was not written by Headway" in headway(*demo, "--again").only_complaint
        path.unlink()


CHANGING = r"""\.unlink\(|\brmtree\(|\.rename\(|\.rmdir\(|os\.(?:remove|unlink|rename|replace|rmdir|truncate)\(|
    shutil\.(?:move|copy\w*)\(|\.replace\(\w*(?:path|final|folder|file|name)\w*\)|\.symlink_to\(|\.hardlink_to\("""


def test_one_module_alone_removes_and_replaces_files():
    for path in SOURCE.rglob("*.py"):
        found = re.findall(CHANGING, path.read_text(encoding="utf-8"), re.VERBOSE)
        assert bool(found) == (path.name == "disk.py"), (path, found)
