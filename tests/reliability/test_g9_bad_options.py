"""G9: every option of every command with values that it cannot have costs one line, exit code 2 and nothing else."""

import errno
import os
from pathlib import Path
from typing import get_args

import pytest

from headway.cli import COMMANDS, app
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.models.language import LanguageConfig, LanguageModel
from headway.search import DecodingConfig
from headway.translator import Translator
from sentences import SENTENCES

SMALL = "--set=model.preset=mini --set=training.steps=1 --set=tokenizer.vocabulary=300"
PAIRS = "--source=source --target=target"
FOUND = {
    "demo": ("phrases", "--out=new"),
    "check": ("", "--source=table.tsv"),
    "init": ("new.toml", f"{PAIRS} --device=cpu"),
    "plan": ("", f"{PAIRS} --device=cpu {SMALL}"),
    "train": ("", f"{PAIRS} --out=new --device=cpu {SMALL}"),
    "distill": ("model", f"--source=source --out=new --device=cpu {SMALL}"),
    "backtranslate": ("model", f"--monolingual=target {PAIRS} --out=new --device=cpu {SMALL}"),
    "translate": ("model", "--input=source --output=new --rescore=language"),
    "run": ("model", ""),
    "evaluate": ("model", "--source=source --reference=target"),
    "attention": ("model sentence", "--out=new.html"),
    "positions": ("", "--out=new.png"),
    "embed": ("model", "--input=source --output=new"),
    "shortlist": ("model", f"{PAIRS} --output=new"),
    "score": ("model", f"{PAIRS} --output=new"),
    "sample": ("language", "--output=new"),
    "prove": ("model", "--sentences=1"),
    "export": ("model", "--to=ctranslate2 --output=new"),
    "bench": ("train", "--seconds=1"),
    "reproduce": ("layers", "--out=new"),
    "completion": ("bash", ""),
}
"""A command line of every command, its arguments and its options; a bad value takes the place of a good one."""
NAMES = [module.__name__.rpartition(".")[2] for members in COMMANDS.values() for module in members]
LONG = "n" * 5000
HUGE = "9" * 30
NOWHERE = ("", LONG, "/".join(["n" * 200] * 30), "source/under", "\udcff", "a\0b")
"""Names that can be those of nothing."""
BAD = {
    int: ("", "1.5", "1e99", "nan", "inf", "x", "none", "-1", "0", HUGE, "9" * 5000, "\udcff"),
    float: ("", "x", "nan", "inf", "-inf", "1e99", "-1", "\udcff"),
    "device": ("", "x", "tpu", "meta", "cuda:99", "cuda:x", "-1", "cpu:x", LONG),
    "time": ("", "-5s", "-1", "0", "0s", "nan", "inf", "1e99", "soon", f"{HUGE}h", "--json"),
    "choice": ("", "x", "none", "-1", "0", "\udcff"),
    "model": (*NOWHERE, "missing", "source", "folder", "loop"),
    "given": (*NOWHERE, "missing", "folder", "loop"),
    "written": (*NOWHERE, "folder", "missing/new", "loop"),
    "folder": (*NOWHERE, "source", "loop"),
    "data": (*NOWHERE, "missing", "source", "loop"),
    "set": ("", "x", "=1", ".=1", "nothing=1", "nothing.at.all=1", "\udcff"),
    "preset": ("", "x", "-1", "\udcff"),
    "tag": ("", "unknown", "\udcff"),
    "text": ("\udcff",),
}
FOLDERS = ("distill", "backtranslate", "train", "demo", "export", "reproduce")
"""Commands whose --out or --output is a folder; every other one writes a file."""
ZERO = {"--seed", "--mbr", "--frequent"}
"""Options that may be 0."""
NEGATIVE = {"--rescore-weight", "--rescore-own"}
"""Options that may be below 0."""


def kind(command, name, hint):
    """What an option is tried with."""
    inner = {hint, *get_args(hint), *(each for outer in get_args(hint) for each in get_args(outer))}
    word = name.removeprefix("--")
    if Path in inner and (word in ("out", "output") or (command, name) == ("init", "PATH")):
        return "folder" if command in FOLDERS else "written"
    if Path in inner and word not in BAD:
        return "model" if word in ("MODEL", "TEACHER", "REVERSE", "from", "ensemble", "rescore") else "given"
    plain = next((each for each in (int, float) if each in inner), "text" if str in inner else "choice")
    return word if word in BAD else plain


def arguments(command):
    """What a command takes, in order, without flags."""
    found = app[command].assemble_argument_collection()
    return {each.names[0]: each.hint for each in found if each.names[0] != "*" and each.hint is not bool}


def cases():
    """Every argument and option of every command with every value that it cannot have."""
    for command in FOUND:
        for name, hint in arguments(command).items():
            welcome = {"0"} if name in ZERO else {"-1"} if name in NEGATIVE else set()
            for value in BAD[kind(command, name, hint)]:
                if value not in welcome:
                    yield pytest.param(command, name, value, id=f"{command} {name} {value[:12]!r}")


def line(command, name, value):
    """A command line with a bad value."""
    given, options = (words.split() for words in FOUND[command])
    if name == "--compare":
        return [command, "--reference=target", name, value, "source"]
    if name in ("--columns", "--fields"):
        return [command, *options, name, value, "1"]
    if name.startswith("--"):
        kept = [word for word in options if name == "--set" or not word.startswith(f"{name}=")]
        return [command, *given, *kept, f"{name}={value}"]
    place = list(arguments(command)).index(name)
    return [command, *given[:place], value, *given[place + 1 :], *options]


@pytest.fixture(scope="module")
def place(tmp_path_factory, model_folder):
    """A folder with what the command lines name; not to be changed."""
    folder = tmp_path_factory.mktemp("place")
    for name, lines in {"source": SENTENCES, "target": [line.upper() for line in SENTENCES]}.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "table.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in SENTENCES), encoding="utf-8")
    (folder / "folder").mkdir()
    (folder / "folder" / "mine").write_text("kept")
    (folder / "loop").symlink_to("loop")
    (folder / "model").symlink_to(model_folder)
    tokenizer = Tokenizer.train(SENTENCES, TokenizerConfig(kind="characters"))
    config = LanguageConfig(dim=16, heads=2, hidden=16, layers=1, longest=80)
    model = LanguageModel(config, tokenizer.size, tokenizer.size).eval()
    Translator(model, tokenizer, tokenizer, DecodingConfig()).save(folder / "language")
    return folder


def seen(folder):
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.mark.parametrize(("command", "name", "value"), [*cases()])
def test_a_value_that_an_option_cannot_have_is_refused(command, name, value, headway, place, monkeypatch):
    monkeypatch.chdir(place)
    before = seen(place)
    told = headway(*line(command, name, value)).complaint
    assert len(told) < 3000
    assert "pattern" not in told
    assert seen(place) == before


def test_every_command_that_takes_something_is_tried():
    assert set(NAMES) - FOUND.keys() == {"info"}


def test_a_time_that_is_not_positive_is_refused_as_one(headway, place, monkeypatch):
    monkeypatch.chdir(place)
    for words in (["--time", "-5s"], ["--time=-5s"], ["--time", "0s"]):
        assert "write a positive one, such as 90s" in headway("train", *words, "--out", "new").only_complaint


@pytest.mark.parametrize("word", ["nonsense", "trian", "", "--nonsense"])
def test_a_command_that_does_not_exist_is_told_with_all_that_do(word, headway):
    told = headway(word).only_complaint
    names = told.partition("choose from ")[2].partition(";")[0].split(", ")
    assert names == NAMES


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("check --source=table.tsv --test-target=target", "--test-source: missing"),
        ("check --empty-columns --source=table.tsv", "--empty-columns"),
        ("evaluate source --reference=target --device=x", "is a file of outputs; leave out"),
        ("evaluate source --reference=target --beam=2", "is a file of outputs; leave out"),
        ("train one two three --out=new", "too many arguments: two three"),
        (f"train {PAIRS} --out=new --set=data.valid_target=target", "valid_source, which is missing"),
        (f"train {PAIRS} --out=new --set=data.test_target=target", "test_source, which is missing"),
        (f"train {PAIRS} --out=new --set=data.tags=[\"a<b\"]", "should be one word of at most 64 characters"),
        ("train --out=new --set=data.corpora=[{source=\"table.tsv\",name=\"a\\u0020b\"}]", "should be one word"),
        ("train --out=new --set=data.corpora=[{source=\"table.tsv\",valid_target=\"target\"}]", "which is missing"),
        (f"train {PAIRS} --out=new --set=tokenizer.file=\"\\u0000\"", "a path cannot hold NUL"),
        (f"train {PAIRS} --out=new --set=model={{architecture=\"recurrent\",attention=5}}", "attention: should be"),
        ("translate model --input=source --rescore=language --rescore-weight=1e308", "at most 1000"),
        ("translate model --input=source --rescore=language --rescore-own=-1e308", "at most 1000"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_together_or_in_a_recipe_are_refused(words, told, headway, place, monkeypatch):
    monkeypatch.chdir(place)
    before = seen(place)
    assert told in headway(*words.split()).complaint
    assert seen(place) == before


REFUSED_BY_TRAINING = {
    "one pair": (b"le chat\n", b"le chat\n"),
    "blank lines": (b" \n" * 60, b"x\n" * 60),
    "one source over and over": (b"le chat\n" * 60, b"THE CAT\n" * 60),
    "nothing": (b"", b""),
    "a line that is not UTF-8": (b"bi\xffen\n" + b"x\n" * 59, b"x\n" * 60),
    "unequal line counts": (b"x\n" * 61, b"x\n" * 60),
    "a line over the limit": (b"x" * ((1 << 20) + 1) + b"\nx\n", b"x\nx\n"),
}


@pytest.mark.parametrize("case", REFUSED_BY_TRAINING)
def test_what_training_refuses_of_a_corpus_is_refused_by_check(case, headway, train, tmp_path):
    for name, content in zip(("a", "b"), REFUSED_BY_TRAINING[case], strict=True):
        (tmp_path / name).write_bytes(content)
    told = train(source=tmp_path / "a", target=tmp_path / "b").complaint
    outcome = headway("check", "--source", tmp_path / "a", "--target", tmp_path / "b")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].partition(":")[:2] == told.partition(":")[:2]
    assert outcome.err.splitlines()[-1][:60] == told[:60]


def test_check_refuses_a_test_set_that_training_refuses_and_skips_where_it_is_told_to(headway, corpus, tmp_path):
    (tmp_path / "test").write_bytes(b"bi\xffen\n")
    words = ("check", "--source", corpus[0], "--target", corpus[1], "--test-source", tmp_path / "test")
    outcome = headway(*words)
    assert outcome.code == 2
    assert f"{tmp_path / 'test'}: line 1 is not UTF-8" in outcome.err
    assert outcome.out.startswith("pairs: 60\n")
    assert headway(*words, "--invalid", "skip").code == 0


MISTAKES = ("EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG", "EROFS", "EEXIST", "EINVAL")
FAILED = ("ENOSPC", "EDQUOT", "EIO", "EFBIG", "ENOMEM", "EMFILE", "ENFILE")


@pytest.mark.parametrize("number", [getattr(errno, name) for name in MISTAKES + FAILED])
def test_what_the_system_says_is_a_mistake_or_a_failure(number, headway, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number), "place")

    monkeypatch.setattr("headway.cli.info.version", refuse)
    outcome = headway("info")
    name = errno.errorcode[number]
    if name == "ENOMEM":
        assert outcome.code == 1 and outcome.err.count("\n") == 1
        assert outcome.err.startswith("headway: too little memory")
        return
    full = "; free space, or write elsewhere" if name in ("ENOSPC", "EDQUOT", "EFBIG") else ""
    remedy = "; check the path and its rights" if name in MISTAKES else full
    assert outcome.err == f"headway: place: {os.strerror(number)}{remedy}\n"
    assert outcome.code == (2 if name in MISTAKES else 1)
