"""G9: bad data and settings end in exit code 2 and one line, leave nothing behind, and lines in are lines out."""

import gzip
import os
import random
import subprocess
from pathlib import Path

import pytest

# Files to train on.


def plain(content: bytes):
    return lambda path: path.write_bytes(content)


def cut_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(random.Random(1).randbytes(4000).hex().encode())[:2000])


def broken_gzip(path: Path) -> None:
    content = bytearray(gzip.compress(b"un\ndeux\n" * 500))
    content[20] ^= 0xFF
    path.write_bytes(content)


GOOD = b"une ligne\n" * 60
BAD_FILES = {
    "unequal line counts": ("a.txt", plain(GOOD + b"encore\n"), "has 61 lines and"),
    "not UTF-8": ("a.txt", plain(b"bon\nbi\xffen\n" + GOOD), "line 2 is not UTF-8 at byte 3"),
    "a line over the limit": ("a.txt", plain(b"x" * ((1 << 20) + 1) + b"\n" + GOOD), "line 1 is longer than 1048576"),
    "an empty file": ("a.txt", plain(b""), "0 lines"),
    "a byte order mark alone": ("a.txt", plain(b"\xef\xbb\xbf"), "0 lines"),
    "a folder": ("a.txt", Path.mkdir, "is a folder"),
    "a missing file": ("a.txt", lambda path: None, "no such file"),
    "a link to nowhere": ("a.txt", lambda path: path.symlink_to("nowhere"), "no such file"),
    "a link to itself": ("a.txt", lambda path: path.symlink_to(path), "cannot be read"),
    "a file that cannot be read": ("a.txt", lambda path: path.symlink_to("/proc/self/mem"), "cannot be read"),
    "a cut gzip": ("a.gz", cut_gzip, "breaks off"),
    "a broken gzip": ("a.gz", broken_gzip, "damaged"),
    "plain text named gz": ("a.gz", plain(GOOD), "not a gzip file"),
    "UTF-16": ("a.txt", plain("un été\n".encode("utf-16") * 60), "looks like UTF-16; convert it with iconv -f UTF-16 "),
    "UTF-16 without its mark": ("a.txt", plain("été\n".encode("utf-16-le") * 60), "looks like UTF-16; convert it with"),
    "UTF-16 the other way round": ("a.txt", plain("à\n".encode("utf-16-be") * 60), "with iconv -f UTF-16BE -t UTF-8"),
    "UTF-32": ("a.txt", plain("été\n".encode("utf-32") * 60), "looks like UTF-32; convert it with iconv -f UTF-32 "),
    "one file without target": ("a.csv", plain(GOOD), ".tsv"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_cannot_be_learnt_from_is_refused_by_name(case, train, headway, corpus, tmp_path):
    name, make, told = BAD_FILES[case]
    make(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    if case == "one file without target":
        outcome = headway("train", "--source", tmp_path / name, "--out", tmp_path / "run")
    else:
        outcome = train(source=tmp_path / name)
    assert name in outcome.only_complaint
    assert told in outcome.only_complaint
    assert sorted(tmp_path.rglob("*")) == before


TWICE = [
    "train --source {given} --target {other} --out {out}",
    "train --source {other} --target {given} --out {out}",
    "train --text {given} --out {out}",
    "train --source {other} --target {other} --out {out} --set data.valid_source={given}",
    "train --source {other} --target {other} --out {out} --set data.test_source={given} {tiny}",
    "train --source {other} --target {other} --out {out} --set data.alignment={given}",
    "train --source {other} --target {other} --out {out} --set tokenizer.file={given} {tiny}",
    "train --source {other} --target {other} --out {out} --set data.source_vectors={given} {tiny}",
    "check --source {given} --target {other}",
    "check --source {other} --target {other} --test-source {given}",
    "plan --source {given} --target {other}",
    "init --source {given} --target {other}",
    "distill {model} --source {given} --out {out}",
    "backtranslate {model} --monolingual {given} --out {out}",
    "backtranslate {model} --monolingual {other} --source {given} --target {other} --out {out}",
    "translate {model} --shortlist {given} --input {other}",
]
"""Commands that read a file more than once."""


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "a pipe"])
@pytest.mark.parametrize("line", TWICE)
def test_a_pipe_or_a_device_is_refused_where_a_file_is_read_twice(
    line, device, headway, corpus, model_folder, tiny, tmp_path
):
    given = tmp_path / "pipe" if device == "a pipe" else device
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.rglob("*"))
    settings = " ".join(f"--set {name}={value}" for name, value in tiny.items())
    names = {"given": given, "other": corpus[0], "out": tmp_path / "out", "model": model_folder, "tiny": settings}
    told = headway(*line.format(**names).split()).complaint
    assert told == f"headway: {given}: is a pipe or a device, which can be read only once; write its content to a file"
    assert sorted(tmp_path.rglob("*")) == before


def test_unequal_line_counts_name_both_files(train, corpus, tmp_path):
    (tmp_path / "short").write_bytes(b"une ligne\n" * 59)
    told = train(target=tmp_path / "short").only_complaint
    assert f"{corpus[0]} has 60 lines and {tmp_path / 'short'} has 59" in told


def test_both_files_empty_is_refused(train, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"")
    assert "no lines" in train(source=tmp_path / "a", target=tmp_path / "b").only_complaint


@pytest.mark.parametrize("content", [b"un\n", b"\n \n\t\n" * 30, b"le chat\n" * 60], ids=["one", "blank", "alike"])
def test_a_corpus_with_nothing_to_learn_from_is_refused(content, train, tmp_path):
    (tmp_path / "a").write_bytes(content)
    train(source=tmp_path / "a", target=tmp_path / "a").complaint  # noqa: B018  # asserts
    assert not (tmp_path / "run").exists()


def test_lines_that_are_not_utf8_can_be_skipped_and_are_counted(train, corpus, tmp_path):
    source, _ = corpus
    source.write_bytes(b"bi\xffen\n" + source.read_bytes().partition(b"\n")[2])
    outcome = train(data__invalid="skip")
    assert outcome.code == 0
    assert "1 left out (not UTF-8)" in outcome.err


def test_odd_characters_marks_and_missing_line_ends_are_data_like_any_other(train, corpus, tmp_path):
    source, target = corpus
    odd = ["a\0b", "a\rb", "a\u2028b", "a\x85b", "a\x0bb", "a\x0cb", "<s> <pad> </s> ▁", "c\ufeffd"]
    content = "\r\n".join([*odd, *source.read_text().splitlines()[len(odd) :]])
    source.write_bytes(b"\xef\xbb\xbf" + content.encode())
    target.write_bytes(content.encode())
    outcome = train()
    assert outcome.code == 0, outcome.err
    assert "57 training pairs, 3 for validation\n" in outcome.err


def test_a_line_of_a_megabyte_is_left_out_for_its_length(train, corpus):
    for path in corpus:
        path.write_bytes(b"x y " * (1 << 18) + b"\n" + path.read_bytes())
    outcome = train(training__steps=1)
    assert outcome.code == 0, outcome.err
    assert "1 left out (over 63 tokens)" in outcome.err


@pytest.mark.parametrize("during", ["counting", "tokenizing"])
def test_a_file_that_changes_during_the_run_is_detected(during, train, corpus, monkeypatch, tmp_path):
    from headway.cli.terminal import Terminal

    def working(self, what, done, total):
        if what == during:
            with corpus[0].open("a") as first, corpus[1].open("a") as second:
                first.write("encore\n"), second.write("ENCORE\n")

    monkeypatch.setattr(Terminal, "working", working)
    told = train().complaint
    assert f"{corpus[0]}: changed while it was read" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("both", [True, False])
def test_training_sentences_in_the_test_set_are_counted_in_a_warning(both, train, corpus, tmp_path):
    lines = corpus[0].read_text().splitlines()
    (tmp_path / "test").write_text("\n".join([*lines[:5], "inconnu"]))
    outcome = train(data__test_source=tmp_path / "test", **({"data__test_target": tmp_path / "test"} if both else {}))
    assert outcome.code == 0, outcome.err
    assert f"warning: the sources of 5 training pairs stand in {tmp_path / 'test'} too" in outcome.err


# Settings.

REFUSED_SETTINGS = {
    "unknown key": ("model.dmi=16", "unknown key model.dmi; did you mean model.dim?"),
    "unknown group": ("modle.dim=16", "unknown key modle; did you mean model?"),
    "text for an integer": ('model.dim="16"', 'model.dim: should be a valid integer, not "16"'),
    "true for an integer": ("model.dim=true", "model.dim: should be a valid integer, not true"),
    "a fraction for an integer": ("model.dim=16.5", "model.dim"),
    "an integer for a truth value": ("tokenizer.joint=1", "tokenizer.joint: should be a valid boolean"),
    "a list for a number": ("model.dim=[1, 2]", "model.dim"),
    "a date for a number": ("model.dim=2020-01-01", "model.dim"),
    "a number for a group": ("model=5", "model"),
    "dim not divisible by heads": ("model.heads=3", "dim 16 is not divisible by heads 3"),
    "odd dim": ("model.dim=17", "17"),
    "zero heads": ("model.heads=0", "model.heads: should be greater than 0, not 0"),
    "negative layers": ("model.encoder_layers=-1", "model.encoder_layers"),
    "zero batch": ("training.batch_tokens=0", "training.batch_tokens"),
    "zero steps": ("training.steps=0", "training.steps"),
    "learning rate NaN": ("training.learning_rate=nan", "training.learning_rate: should be a finite number"),
    "learning rate infinite": ("training.learning_rate=inf", "training.learning_rate: should be a finite number"),
    "learning rate negative": ("training.learning_rate=-1e-3", "training.learning_rate: should be greater than 0"),
    "dropout over one": ("model.dropout=1.5", "model.dropout: should be less than 1"),
    "dropout of tokens": ("tokenizer.dropout=1.5", "tokenizer.dropout"),
    "a position table of 4 TB": ("model.longest=68719476736", "model.longest"),
    "a position table of 4 GB": ("model.dim=16384 model.longest=65536 model.heads=16", "position table"),
    "a model of terabytes": ("model.dim=16384 model.hidden=65536 model.encoder_layers=256", "GiB to train"),
    "batch smaller than a sentence": ("training.batch_tokens=5", "batch tokens fewer than the longest sentence"),
    "vocabulary below the bytes": ("tokenizer.vocabulary=100", "tokenizer.vocabulary: 100 cannot hold the 256 bytes"),
    "a huge vocabulary": (f"tokenizer.vocabulary={10**30}", "tokenizer.vocabulary"),
    "a huge number of batches": (f"training.accumulate={10**30}", "training.accumulate"),
    "a huge warm-up": (f"training.warmup={10**400}", "training.warmup"),
    "a huge batch": (f"training.batch_tokens={10**30}", "training.batch_tokens"),
    "a duration that is none": ("training.time=soon", "'soon' is not a duration"),
    "a duration of ages": (f"training.time={'9' * 400}h", "is not a duration"),
    "no such choice": ("model.positions=circular", "model.positions"),
    "no value": ("model.dim", "not of the form a.b=value"),
    "no name": ("=5", "not of the form a.b=value"),
    "a value used as a group": ("model.dim=16 model.dim.size=3", "dim holds a value"),
    "a value nested deep": ("model.dim=" + "[" * 5000, "model.dim"),
    "a name of thousands of parts": ("model" + 3000 * ".a" + "=1", "over 10 deep"),
    "NUL in a path to learn from": (r'data.test_source="a\u0000b"', "data.test_source: a path cannot hold NUL"),
    "NUL in the path of a tokenizer": (r'tokenizer.file="a\u0000b"', "tokenizer.file: a path cannot hold NUL"),
    "NUL in the path of a model": (r'start.model="a\u0000b"', "start.model: a path cannot hold NUL"),
    "not UTF-8": ("data.test_source=a\udcff", "is not UTF-8"),
    "a value of many digits": ("model.dim=" + "9" * 5000, "model.dim"),
    "columns from zero": ("data.columns=[0,1]", "columns count from 1"),
    "a tokenizer that is missing": ("tokenizer.file=absent.json", "absent.json"),
    "vectors that are missing": ("data.source_vectors=absent.vec", "absent.vec"),
    "a folder that is missing": ("data.folder=absent data.source=a data.target=b", "absent/a: no such file"),
}


@pytest.mark.parametrize("case", REFUSED_SETTINGS)
def test_a_setting_that_cannot_be_is_refused_by_its_name(case, train, tmp_path):
    settings, told = REFUSED_SETTINGS[case]
    before = sorted(tmp_path.rglob("*"))
    words = [
        word for setting in settings.split(" ") if "=" in setting or case == "no value" for word in ("--set", setting)
    ]
    if case == "a list for a number":
        words = ["--set", settings]
    outcome = train(*words)
    assert told in outcome.complaint
    assert len(outcome.complaint) < 3000
    assert sorted(tmp_path.rglob("*")) == before


def test_a_schedule_that_cannot_know_its_end_is_refused(headway, corpus, tmp_path):
    files = ("--source", corpus[0], "--target", corpus[1], "--out", tmp_path / "run")
    settings = ("--set", "training.schedule=linear", "--set", "training.curriculum=2")
    assert "set steps or time" in headway("train", *files, *settings).only_complaint


def test_a_tokenizer_of_another_size_than_the_recipe_says_is_refused(train, model_folder, tmp_path):
    told = train(tokenizer__file=model_folder / "tokenizer.json", tokenizer__vocabulary=500).complaint
    assert "300 tokens, tokenizer.vocabulary is 500" in told
    assert not (tmp_path / "run").exists()


BAD_RECIPES = {
    "missing": (None, "cannot be read"),
    "empty": (b"", "the recipe is empty"),
    "only a comment": (b"# nothing\n", "the recipe is empty"),
    "a list": (b"[1, 2]", "not valid TOML"),
    "JSON": (b'{"data": {}}', "not valid TOML"),
    "not UTF-8": (b"[data]\nsource = '\xff'", "not UTF-8 at byte"),
    "a group that is a number": (b"data = 5", "data"),
    "a group that is a list": (b"[[data]]\nsource = 'a'", "data"),
    "nothing to learn from": (b"[model]\ndim = 16", "nothing to learn from"),
    "a key twice": (b"[data]\nsource = 'a'\nsource = 'b'", "not valid TOML"),
    "nested deep": (b"a = " + b"[" * 20_000, "not valid TOML"),
    "a dotted name nested deep": (b"a" + 3000 * b".a" + b" = 1", "over 10 deep"),
    "a table nested deep": (b"[a" + 3000 * b".a" + b"]\nb = 1", "over 10 deep"),
    "NUL in a path": (b'[data]\nsource = "a\\u0000b"\ntarget = "b"', "data.source: a path cannot hold NUL"),
    "NUL in a path of a corpus": (b'[[data.corpora]]\nsource = "a\\u0000b"\ntarget = "b"', "a path cannot hold NUL"),
    "many digits": (b"a = " + b"9" * 5000, "not valid TOML"),
    "a date": (b"[data]\nsource = 2020-01-01\ntarget = 1\n", "data.target"),
    "unknown key": (b"[data]\nsource = 'a'\ntargett = 'b'", "unknown key data.targett; did you mean data.target?"),
    "unknown group": (b"[data]\nsource = 'a'\n[trainin]\n", "unknown key trainin; did you mean training?"),
    "several faults": (b"[data]\nsource = 'a'\n[model]\ndim = '8'\nheads = 0", "model.heads"),
}


@pytest.mark.parametrize("case", BAD_RECIPES)
def test_a_recipe_that_cannot_be_used_is_refused_with_file_and_key(case, headway, tmp_path):
    content, told = BAD_RECIPES[case]
    recipe = tmp_path / "recipe.toml"
    if content is not None:
        recipe.write_bytes(content)
    outcome = headway("train", recipe, "--out", tmp_path / "deep" / "run")
    assert told in outcome.only_complaint
    assert "recipe.toml" in outcome.only_complaint or case == "nothing to learn from"
    assert not (tmp_path / "deep").exists()


def test_a_recipe_without_end_is_refused(headway, tmp_path):
    assert "/dev/zero: larger than" in headway("train", "/dev/zero", "--out", tmp_path / "run").only_complaint


ODD = "odd\udcff"
"""A name with a byte that is not UTF-8, as Python reads it."""
ODD_NAMES = {
    "model": f"translate {ODD}", "option": f"translate --{ODD}", "command": ODD,
    "prefix": f"translate a --prefix {ODD}", "run folder": f"train --source a --target b --out {ODD}",
    "corpus": f"train --source {ODD} --out run", "page": f"attention a b --out {ODD}",
    "time": f"train --out run --time {ODD}",
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_NAMES)
def test_an_argument_that_is_not_utf8_is_refused_before_the_work(case, headway, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is not UTF-8" in headway(*ODD_NAMES[case].split()).only_complaint
    assert list(tmp_path.iterdir()) == []


def test_a_place_whose_name_is_not_utf8_is_as_good_as_any(train, headway, tmp_path, monkeypatch):
    place = tmp_path / ODD
    place.mkdir()
    monkeypatch.chdir(place)
    assert train(out="run").code == 0
    assert len(headway("translate", "run", stdin=b"le chat\n").lines) == 1
    assert "nothing to do" in train("--resume", out="run").err


VARIABLES = {
    "RANK": ("abc", "", "-1", "2", "9" * 5000), "LOCAL_RANK": ("x", "", "2"), "WORLD_SIZE": ("abc", "", "0", "9" * 12),
    "MASTER_PORT": ("abc", "", "0", "99999"), "MASTER_ADDR": ("", "a..b", "\x01"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VARIABLES.items() for value in values])
def test_a_variable_of_torchrun_that_cannot_be_is_refused_by_name(name, value, train, tmp_path, monkeypatch):
    good = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for each, given in {"TORCHELASTIC_RUN_ID": "x", **good, name: value}.items():
        monkeypatch.setenv(each, given)
    assert train().only_complaint.startswith(f"headway: {name}=")
    assert not (tmp_path / "run").exists()


def test_a_folder_recipe_is_refused(headway, tmp_path):
    assert "cannot be read" in headway("train", tmp_path, "--out", tmp_path / "run").only_complaint


# Run folders.


def test_a_run_folder_is_not_begun_twice_and_a_changed_key_is_named_at_resume(train, tmp_path):
    assert train().code == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "lock"}
    assert "already holds a run" in train().complaint
    told = train("--resume", model__dim=32, training__seed=2).complaint
    assert "changed since the run began: model.dim, training.seed;" in told
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "lock"}
    assert after == before
    finished = train("--resume")
    assert finished.code == 0
    assert "nothing to do" in finished.err


def test_data_that_changed_since_the_run_began_is_refused_at_resume(train, corpus):
    assert train().code == 0
    with corpus[0].open("a") as file:
        file.write("encore\n")
    assert f"{corpus[0]}: changed since this run began" in train("--resume").complaint


def test_a_run_that_was_moved_goes_on_from_any_place_without_its_corpus(train, headway, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train(source=corpus[0].name, target=corpus[1].name).code == 0
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "run").rename(tmp_path / "elsewhere" / "moved")
    monkeypatch.chdir(moved)
    assert "nothing to do" in headway("train", "--out", moved, "--resume").err
    again = headway("train", "--out", moved, "--resume", "--set", "training.steps=4")
    assert again.code == 0, again.err
    assert "all 4 steps are done" in again.err


def test_a_refused_run_leaves_what_was_in_its_folder_and_no_empty_folders(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("keep me")
    train(training__batch_tokens=5).complaint  # noqa: B018  # asserts
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name != "lock"] == ["notes"]
    train(training__batch_tokens=5, out=tmp_path / "a" / "b" / "c").complaint  # noqa: B018  # asserts
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("place", ["a file", "under a file", "/proc/nowhere/run"])
def test_a_run_folder_that_cannot_be_made_is_refused(place, train, corpus, tmp_path):
    out = {"a file": corpus[0], "under a file": corpus[0] / "run"}.get(place, place)
    assert str(out) in train(out=out).complaint


def test_resuming_where_no_run_is_is_refused(train, headway, tmp_path):
    assert "holds no run to resume" in train("--resume").complaint
    assert "holds no run to resume" in headway("train", "--resume", "--out", tmp_path / "run").only_complaint
    assert not (tmp_path / "run").exists()


def test_damaged_checkpoints_are_skipped_by_name_and_the_one_before_is_taken(train, tmp_path):
    from headway.training.checkpoint import Checkpoints

    kept = {"training__validate_every": 1, "training__average": 2}
    assert train(**kept).code == 0
    found = Checkpoints(tmp_path / "run" / "checkpoints", {"kind": "checkpoint"})
    newest, older = (found.path(step) for step in found.steps()[:2])
    good = {path.name: path.read_bytes() for path in newest.iterdir()}
    weights = good["model.safetensors"]
    for name, content in {
        "model.safetensors": weights[:-100],
        "optimiser.safetensors": (older / "optimiser.safetensors").read_bytes(),
        "random.safetensors": bytes(len(good["random.safetensors"])),
        "progress.json": (older / "progress.json").read_bytes(),
        "MANIFEST.json": (older / "MANIFEST.json").read_bytes(),
    }.items():
        said: list[str] = []
        (newest / name).write_bytes(content)
        assert found.latest(said.append) == int(older.name[5:])
        assert [line.startswith(f"skipped a checkpoint: {newest}") for line in said] == [True]
        (newest / name).write_bytes(good[name])
    (newest / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 4]))
    outcome = train("--resume", **kept, training__steps=4)
    assert outcome.code == 0, outcome.err
    assert f"skipped a checkpoint: {newest}" in outcome.err
    assert f"resuming at step {int(older.name[5:])}\n" in outcome.err


# Lines to translate.


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", b"\n\n\n", b" \n\t\n\xc2\xa0\n", b"le chat", b"le chat\n", b"le chat\r\nun chien\r\n",
        b"a\rb\n", "a\u2028b\x85c\x0bd\x0ce\n".encode(), b"a\0b\n", b"\xef\xbb\xbfle chat\n", b"\xef\xbb\xbf",
        b"<s> </s> <pad> <unk>\n", "▁ ▁\n".encode(), b"x" * (1 << 20) + b"\nb\n", "🙂" .encode() * 500 + b"\n",
    ],
)  # fmt: skip
def test_as_many_lines_come_out_as_went_in(content, headway, model_folder):
    wanted = content.removeprefix(b"\xef\xbb\xbf").count(b"\n") + (
        not content.endswith((b"\n", b"\xbf")) and content != b""
    )
    outcome = headway("translate", model_folder, "--beam", 1, "--long", "truncate", stdin=content)
    assert outcome.out.count("\n") == wanted
    assert len(outcome.lines) == wanted
    assert all("only its beginning was read" in line for line in outcome.err.splitlines())


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
@pytest.mark.parametrize(
    "line",
    ["translate {model} --input {device}", "embed {model} --input {device}", "evaluate {device} --reference {other}",
     "score {model} --source {other} --target {device}", "prove {model} --text {device}",
     "shortlist {model} --source {device} --target {other} --output {out}"],
)  # fmt: skip
def test_a_source_without_end_is_refused_at_its_first_line(line, device, headway, corpus, model_folder, tmp_path):
    names = {"model": model_folder, "device": device, "other": corpus[0], "out": tmp_path / "out"}
    assert f"{device}: line 1 is " in headway(*line.format(**names).split()).only_complaint
    assert not (tmp_path / "out").exists()


def test_lines_from_a_pipe_are_read_once_where_once_is_enough(headway, model_folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"echo le chat > {tmp_path / 'pipe'}"]):
        assert len(headway("translate", model_folder, "--input", tmp_path / "pipe", "--beam", 1).lines) == 1


@pytest.mark.parametrize("number", ["99999999999", "9" * 40, "-1", "1.5", "²"])
def test_an_entry_of_an_n_best_list_for_no_line_is_refused(number, headway, corpus, model_folder, tmp_path):
    (tmp_path / "list").write_text(f"0 ||| LE CHAT\n{number} ||| LE CHIEN\n")
    told = headway("score", model_folder, "--source", corpus[0], "--nbest", tmp_path / "list").complaint
    assert f"{tmp_path / 'list'}: line 2" in told


def test_blank_lines_stay_blank(headway, model_folder):
    outcome = headway("translate", model_folder, stdin=b"\nle chat\n \n")
    assert [line == "" for line in outcome.lines] == [True, False, True]


def test_random_bytes_in_give_as_many_lines_out(headway, model_folder, tmp_path):
    chance = random.Random(9)
    lines = [bytes(byte for byte in chance.randbytes(chance.randrange(40)) if byte != 10) for _ in range(200)]
    (tmp_path / "noise").write_bytes(b"".join(line + b"\n" for line in lines))
    outcome = headway("translate", model_folder, "--input", tmp_path / "noise", "--invalid", "skip", "--beam", 1)
    assert len(outcome.lines) == outcome.out.count("\n") == 200
    for line, answer in zip(lines, outcome.lines, strict=True):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            assert answer == ""


BAD_INPUTS = {name: case for name, case in BAD_FILES.items() if name not in (
    "unequal line counts", "an empty file", "a byte order mark alone", "one file without target")}  # fmt: skip


@pytest.mark.parametrize("command", ["translate", "embed"])
@pytest.mark.parametrize("case", BAD_INPUTS)
def test_an_input_that_cannot_be_read_is_refused_and_no_output_appears(case, command, headway, model_folder, tmp_path):
    name, make, told = BAD_INPUTS[case]
    make(tmp_path / name)
    (tmp_path / "out").write_text("before")
    before = sorted(tmp_path.iterdir())
    files = ("--input", tmp_path / name, "--output", tmp_path / "out")
    outcome = headway(command, model_folder, *files, "--overwrite")
    assert name in outcome.only_complaint
    assert told in outcome.only_complaint
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "out").read_text() == "before"


@pytest.mark.parametrize("command", ["translate", "embed"])
@pytest.mark.parametrize("way", ["same", "link", "hard link", "dotted"])
def test_an_output_that_is_the_input_is_refused_and_the_input_intact(command, way, headway, model_folder, tmp_path):
    given = tmp_path / "in"
    given.write_bytes(b"le chat\n")
    out = {"same": given, "dotted": tmp_path / "x" / ".." / "in"}.get(way, tmp_path / "other")
    (tmp_path / "x").mkdir()
    if way == "link":
        out.symlink_to(given)
    elif way == "hard link":
        os.link(given, out)
    assert "is also the input" in headway(command, model_folder, "--input", given, "--output", out).only_complaint
    assert given.read_bytes() == b"le chat\n"


@pytest.mark.parametrize("place", ["folder", "absent/out", "in/out"])
def test_an_output_that_cannot_be_written_is_refused(place, headway, model_folder, tmp_path):
    (tmp_path / "in").write_bytes(b"le chat\n")
    (tmp_path / "folder").mkdir()
    told = headway("translate", model_folder, "--input", tmp_path / "in", "--output", tmp_path / place).only_complaint
    assert f"{tmp_path / place}: " in told
    assert "choose another --output" in told


@pytest.mark.parametrize(
    "options",
    ["--beam 0", "--beam -1", "--beam 1000000000", "--beam x", "--nbest 0", "--nbest 100", "--buffer 0",
     "--length-penalty nan", "--length-penalty inf", "--length-penalty -1", "--beam 2 --nbest 3", "--device tpu",
     "--device meta", "--device cuda:99", "--invalid maybe", "--bogus", "more arguments"],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_in_one_line(options, headway, model_folder, tmp_path):
    (tmp_path / "in").write_bytes(b"le chat\n")
    files = ("--input", tmp_path / "in", "--output", tmp_path / "out")
    headway("translate", model_folder, *files, *options.split()).only_complaint  # noqa: B018  # asserts
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    "line",
    [b"not json", b"", b"[]", b'"text"', b"{}", b'{"source": 5}', b'{"source": null}', b'{"source": "\\ud800"}',
     b'{"source": "a"} x', b"[" * 100_000, b'{"source": "a", "n": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_a_json_line_without_a_source_is_refused_with_its_number(line, headway, model_folder, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(b'{"source": "le chat"}\n' + line + b"\n")
    outcome = headway(
        "translate", model_folder, "--json", "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out"
    )
    assert f"{tmp_path / 'in.jsonl'}: line 2:" in outcome.only_complaint
    assert not (tmp_path / "out").exists()
