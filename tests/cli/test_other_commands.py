"""`headway attention`, `positions`, `init`, `info`, and the command line itself."""

import shlex
import subprocess
import sys

import pytest

import headway as package
from headway.cli import COMMANDS, app, demo


@pytest.mark.parametrize(("suffix", "start"), [("html", b"<!"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_attention_is_written_in_the_format_of_the_suffix(suffix, start, headway, model_folder, tmp_path):
    out = tmp_path / f"attention.{suffix}"
    outcome = headway("attention", model_folder, "le chat", "--out", out)
    assert len(outcome.lines) == 1
    assert out.read_bytes().startswith(start)


def test_attention_of_a_blank_or_hostile_sentence_is_a_page_too(headway, model_folder, tmp_path):
    for number, sentence in enumerate(("", " ", "</script><script>alert(1)</script>", "é" * 3000)):
        assert headway("attention", model_folder, sentence, "--out", tmp_path / f"{number}.html").code == 0
        assert "<script>alert(1)" not in (tmp_path / f"{number}.html").read_text()


@pytest.mark.parametrize("name", ["attention.pdf", "attention", "absent/attention.html", "absent/attention.png"])
def test_attention_that_cannot_be_written_is_refused(name, headway, model_folder, tmp_path):
    assert name in headway("attention", model_folder, "le chat", "--out", tmp_path / name).only_complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_positions_are_drawn(suffix, headway, tmp_path):
    assert headway("positions", "--out", tmp_path / f"p.{suffix}", "--length", 8, "--dim", 4).code == 0
    assert (tmp_path / f"p.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("options", ["--out p.pdf", "--out p.png --length 0", "--out p.png --dim 3",
                                     "--out p.png --length 1000000000", "--out absent/p.png", ""])  # fmt: skip
def test_positions_that_cannot_be_drawn_are_refused(options, headway, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    headway("positions", *options.split()).only_complaint  # noqa: B018  # asserts
    assert list(tmp_path.iterdir()) == []


def test_init_writes_a_recipe_that_is_valid_and_never_overwrites_one(headway, tmp_path):
    from headway.config import read_toml, validated
    from headway.recipe import Recipe

    path = tmp_path / "recipe.toml"
    assert headway("init", path).lines == [str(path)]
    recipe = validated(Recipe, read_toml(path), str(path))
    assert recipe.data.source.name == "train.source"
    content = path.read_text()
    assert "already exists" in headway("init", path).only_complaint
    assert path.read_text() == content
    path.write_text("mine")
    assert headway("init", path, "--overwrite").lines == [str(path)]
    assert path.read_text() == content
    assert "does not exist" in headway("init", tmp_path / "absent" / "recipe.toml").only_complaint


def test_init_writes_what_is_chosen_for_data_machine_and_time(headway, corpus, tmp_path):
    from headway.config import read_toml, validated
    from headway.recipe import Recipe

    path = tmp_path / "recipe.toml"
    files = ("--source", corpus[0], "--target", corpus[1])
    found = headway("init", path, *files, "--time", "5m", "--device", "cpu")
    assert found.lines == [str(path)]
    assert "chosen for 57 pairs and 5m" in found.err and "# chosen for 57 pairs and 5m" in path.read_text()
    recipe = validated(Recipe, read_toml(path), str(path))
    assert (recipe.data.source, recipe.training.time, recipe.model.preset) == (corpus[0], "5m", "mini")
    assert recipe.training.learning_rate is not None and recipe.tokenizer.vocabulary is not None
    assert "give --source and --target" in headway("init", tmp_path / "other", "--time", "5m").only_complaint


def test_a_run_that_ended_by_epochs_goes_on_to_more_steps(train, headway, tmp_path):
    assert train(training__epochs=2, training__steps=50).code == 0
    same = headway("train", "--out", tmp_path / "run", "--resume", "--device", "cpu")
    assert "training ends: all" in same.err and "nothing to do" in same.err
    more = headway("train", "--out", tmp_path / "run", "--resume", "--device", "cpu", "--set", "training.steps=99")
    assert more.code == 0 and "all 99 steps are done" in more.err


def test_a_run_begun_by_a_recipe_is_resumed_by_the_same_recipe(headway, corpus, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[data]\nsource = "train.source"\ntarget = "train.target"\n[tokenizer]\nvocabulary = 300\njoint = false\n'
        "[model]\ndim = 16\nheads = 2\nhidden = 16\nencoder_layers = 1\ndecoder_layers = 1\n"
        "[training]\nsteps = 2\nsamples = 0\nvalidation_sentences = 1\n"
    )
    options = ("train", path, "--data", tmp_path, "--out", tmp_path / "run", "--device", "cpu")
    assert headway(*options).code == 0
    resumed = headway(*options, "--resume", "--set", "training.steps=3")
    assert resumed.code == 0, resumed.err
    assert "resuming at step 2" in resumed.err
    assert "changed since the run began: model.dim;" in headway(*options, "--resume", "--set", "model.dim=32").complaint


def test_info_names_the_versions(headway):
    lines = headway("info").lines
    assert lines[0].startswith("headway ")
    assert any(line.startswith("torch ") for line in lines)


def test_the_version_is_told(headway):
    assert headway("--version").lines == [package.__version__]


EXAMPLES = {
    module.__name__.rpartition(".")[2]: told for members in COMMANDS.values() for module, told in members.items()
}


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_command_has_help_that_ends_with_an_example_that_can_be_given(command, headway, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    outcome = headway(command, "--help")
    assert outcome.code == 0
    assert f"headway {command}" in outcome.out
    assert outcome.out.rstrip().endswith(f"Example: {EXAMPLES[command]}")
    words = shlex.split(EXAMPLES[command].partition(" > ")[0])
    assert words[:2] == ["headway", command]
    app.parse_args(words[1:], exit_on_error=False, print_error=False)  # understands it


def test_help_puts_commands_that_belong_together_side_by_side(headway):
    told = headway("--help").out
    places = [told.index(f"─ {title} ─") for title in ("Train", "Use", "Inspect", "Check", "Options")]
    assert places == sorted(places)
    assert all(f"│ {command} " in told for command in EXAMPLES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_commands_in_a_shell(shell, headway):
    script = headway("completion", shell).out
    assert all(command in script for command in EXAMPLES) and "--length-penalty" in script


def test_bash_completes_a_command(headway, tmp_path):
    (tmp_path / "script").write_text(headway("completion", "bash").out)
    typed = "COMP_WORDS=(headway tran) COMP_CWORD=1; _headway; echo ${COMPREPLY[@]}"
    done = subprocess.run(
        ["bash", "-c", f"source {tmp_path}/script; {typed}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "translate\n"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--nonsense"], ["translate"], ["train", "--out"], ["init", "a", "b"]]
)
def test_a_command_line_that_cannot_be_understood_is_refused_in_one_line(arguments, headway, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "see --help" in headway(*arguments).only_complaint
    assert list(tmp_path.iterdir()) == []


def test_a_demo_is_not_begun_where_something_stands(headway, tmp_path):
    (tmp_path / "notes").write_text("keep me")
    assert "already there" in headway("demo", "--out", tmp_path).only_complaint
    assert "already there" in headway("demo", "--again", "--out", tmp_path).only_complaint
    assert (tmp_path / "notes").exists()


def test_the_demo_of_dates_says_what_it_needs(headway, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    told = headway("demo", "dates", "--out", tmp_path / "run").complaint
    assert told == "headway: the dates demo needs babel; pip install 'headway[dates]'"
    assert list(tmp_path.iterdir()) == []


def test_a_demo_made_again_keeps_nothing_of_the_run_before(train, tmp_path):
    assert train().code == 0
    assert (tmp_path / "run" / "checkpoints").is_dir()
    demo._clear(tmp_path / "run")
    assert not [path for path in (tmp_path / "run").iterdir() if path.name != "lock"]


def test_training_needs_a_corpus_and_a_place(headway, corpus, tmp_path):
    assert "--out: missing" in headway("train", "--source", corpus[0], "--target", corpus[1]).only_complaint
    assert "nothing to learn from" in headway("train", "--out", tmp_path / "run").only_complaint


def test_help_imports_no_torch_and_takes_little_time():
    script = (
        "import resource, sys\nfrom headway.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as stopped:\n    assert not stopped.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'sacrebleu', 'tokenizers'} & sys.modules.keys()\n"
        "print(sorted(heavy), resource.getrusage(resource.RUSAGE_SELF).ru_utime, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600)
    heavy, seconds = done.stderr.strip().rsplit(" ", 1)
    assert heavy == "[]"
    assert float(seconds) < 0.5  # of CPU, whatever else the machine does
    assert "translate" in done.stdout


def test_check_reads_named_columns_and_fields(headway, tmp_path):
    (tmp_path / "a.tsv").write_text("id\tone\teins\nid\ttwo\tzwei\n")
    assert headway("check", "--source", tmp_path / "a.tsv", "--columns", 2, 3).lines[0] == "pairs: 2"
    assert "there is no column 0" in headway("check", "--source", tmp_path / "a.tsv", "--columns", 0, 1).complaint
    (tmp_path / "a.jsonl").write_text('{"en": "one two", "de": "eins"}\n{"en": "three", "de": "drei"}\n')
    report = headway("check", "--source", tmp_path / "a.jsonl", "--fields", "en", "de", "--json").json
    assert report["source"]["words"]["longest"] == 2
    assert report["target"]["words"]["longest"] == 1
    assert "has no field 'source'" in headway("check", "--source", tmp_path / "a.jsonl").complaint
