"""A recurrent model from `headway train` to `translate`, `attention` and `prove`, like any other."""

import pytest

from sentences import SENTENCES

RECIPE = """
[data]
source = "train.source"
target = "train.target"
[tokenizer]
vocabulary = 300
[model]
architecture = "recurrent"
dim = 16
encoder_layers = 1
decoder_layers = 1
longest = 32
attention = "{attention}"
[training]
steps = 3
batch_tokens = 256
validation_sentences = 2
samples = 0
"""


@pytest.fixture
def recipe(corpus, tmp_path):
    def written(attention):
        path = tmp_path / "recipe.toml"
        path.write_text(RECIPE.format(attention=attention), encoding="utf-8")
        return path

    return written


def test_a_recurrent_model_is_trained_and_used_like_any_other(headway, recipe, tmp_path):
    run, lines = tmp_path / "run", "".join(f"{line}\n" for line in SENTENCES[:3]).encode()
    dry = headway("train", recipe("additive"), "--data", tmp_path, "--dry-run")
    assert dry.code == 0, dry.err
    assert headway("train", recipe("additive"), "--data", tmp_path, "--out", run, "--device", "cpu").code == 0
    options = ["--set", "longest=8"]
    assert len(headway("translate", run, *options, stdin=lines).lines) == 3
    assert len(headway("translate", run, "--beam", "3", "--nbest", "2", *options, stdin=lines).lines) == 6
    both = ["--ensemble", run, "--set", "coverage_penalty=0.2"]
    assert len(headway("translate", run, *both, *options, stdin=lines).lines) == 3
    required = headway("translate", run, "--require", "CHAT", *options, stdin=lines).lines
    assert all("CHAT" in line for line in required)
    pairs = ["--source", tmp_path / "train.source", "--target", tmp_path / "train.target"]
    shortlist = tmp_path / "shortlist.safetensors"
    assert headway("shortlist", run, *pairs, "--output", shortlist).code == 0
    assert len(headway("translate", run, "--shortlist", shortlist, *options, stdin=lines).lines) == 3
    page = tmp_path / "page.html"
    assert headway("attention", run, SENTENCES[0], "--out", page).code == 0
    shown = page.read_text("utf-8")
    assert '"cross":' in shown and '"encoder":' not in shown and '"decoder":' not in shown


def test_a_model_without_attention_says_so_where_it_is_asked_for(headway, recipe, tmp_path):
    run, line = tmp_path / "run", f"{SENTENCES[0]}\n".encode()
    assert headway("train", recipe("none"), "--data", tmp_path, "--out", run, "--device", "cpu").code == 0
    assert len(headway("translate", run, "--set", "longest=8", stdin=line).lines) == 1
    page = ("--out", tmp_path / "page.html")
    assert "attention: this recurrent model has none" in headway("attention", run, SENTENCES[0], *page).complaint
    told = headway("translate", run, "--set", "coverage_penalty=0.2", stdin=line).complaint
    assert "coverage_penalty: a model of one fixed context has no attention" in told
    assert "no attention to the source" in headway("translate", run, "--alignments", stdin=line).complaint


def test_settings_of_another_architecture_are_refused(headway, recipe, tmp_path):
    told = headway("train", recipe("additive"), "--data", tmp_path, "--dry-run", "--set", "model.heads=4").complaint
    assert "heads" in told


def test_another_architecture_is_refused_in_one_line_wherever_it_is_named(headway, recipe, tmp_path):
    run = tmp_path / "run"
    assert headway("train", recipe("additive"), "--data", tmp_path, "--out", run, "--device", "cpu").code == 0
    other = tmp_path / "other.toml"
    other.write_text(
        RECIPE.format(attention="additive").replace('"recurrent"', '"bytenet"').replace('attention = "additive"\n', "")
    )
    told = headway("train", other, "--data", tmp_path, "--resume", "--out", run).only_complaint
    assert "model.architecture" in told
    pairs = ("--source", tmp_path / "train.source", "--target", tmp_path / "train.target")
    told = headway("train", *pairs, "--from", run, "--out", tmp_path / "new", "--set", "model.heads=4").complaint
    assert "is a recurrent model; set model.architecture so" in told
    told = headway("train", *pairs, "--out", tmp_path / "new", "--set", "model.architecture=perceptron").only_complaint
    assert "model: there is no such architecture; choose of transformer, recurrent," in told


def test_a_model_without_presets_is_benchmarked(headway):
    small = [f"--set={each}" for each in ("model.architecture=recurrent", "model.dim=16", "training.batch_tokens=256")]
    done = headway("bench", "train", "--vocabulary", "64", "--seconds", "0.2", "--device", "cpu", *small, "--json")
    assert done.code == 0, done.err
    told = headway("bench", "train", "--device", "cpu", "--set", "model.architecture=language").only_complaint
    assert "random sentences have a source" in told
