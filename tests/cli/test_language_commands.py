"""Language models from the command line: train, score, sample, rescore, and what they refuse."""

import json
import math
import re
import shutil

import pytest

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.models.language import LanguageConfig, LanguageModel
from headway.rescoring import Rescorer, rescore
from headway.scoring import score, tally
from headway.search import DecodingConfig
from headway.translator import Translator, load
from lively import save_lively
from sentences import SENTENCES

SETTINGS = {
    "tokenizer.vocabulary": 300, "model.dim": 16, "model.heads": 2, "model.hidden": 16, "model.layers": 1,
    "model.longest": 64, "training.steps": 4, "training.validate_every": 2, "training.batch_tokens": 256,
    "training.samples": 2,
}  # fmt: skip


def sets(**changed):
    named = SETTINGS | {name.replace("__", "."): value for name, value in changed.items()}
    return [part for name, value in named.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def language_folder(tmp_path_factory):
    """A language model that was never trained; its vocabulary is not that of other models."""
    import torch

    tokenizer = Tokenizer.train(SENTENCES, TokenizerConfig(kind="characters"))
    torch.manual_seed(7)
    config = LanguageConfig(dim=16, heads=2, hidden=16, layers=1, longest=80)
    model = LanguageModel(config, tokenizer.size, tokenizer.size).eval()
    with torch.no_grad():
        model.output.weight.mul_(2.0)
    folder = tmp_path_factory.mktemp("models") / "language"
    Translator(model, tokenizer, tokenizer, DecodingConfig(limit_extra=30)).save(folder)
    return folder


def test_a_language_model_is_trained_from_one_text(headway, text, tmp_path):
    outcome = headway("train", "--text", text, "--out", tmp_path / "run", "--device", "cpu", *sets())
    assert outcome.code == 0, outcome.err
    assert "57 training texts, 3 for validation" in outcome.err
    assert re.search(r"step 4: validation loss \d\.\d+, perplexity \d+", outcome.err)
    assert "beginning  " in outcome.err and "bleu" not in outcome.err.lower()
    assert f"headway sample {tmp_path / 'run'}" in outcome.err
    card = json.loads((tmp_path / "run/best/config.json").read_text())
    assert card["model"]["architecture"] == "language" and card["decoding"]["sample"]
    assert set(card["scores"]) == {"loss", "perplexity"}
    assert card["scores"]["perplexity"] == pytest.approx(math.exp(card["scores"]["loss"]))
    told = headway("score", tmp_path / "run", "--target", text)
    found = tally(load(tmp_path / "run"), SENTENCES)
    assert [float(line) for line in told.lines] == pytest.approx(
        [each.log_probability for each in score(load(tmp_path / "run"), [("", line) for line in SENTENCES])], abs=1e-4
    )
    assert f"60 texts, {found.tokens} tokens" in told.err
    assert f"perplexity {found.perplexity:.4g}, {found.word_perplexity:.4g} a word" in told.err
    assert f"{found.bits_per_character:.4f} bits a character" in told.err
    drawn = headway("sample", tmp_path / "run", "--count", 3, "--seed", 5).lines
    assert len(drawn) == 3
    assert headway("sample", tmp_path / "run", "--count", 2, "--seed", 5).lines == drawn[:2]


def test_a_killed_run_goes_on_as_if_nothing_had_happened(headway, text, tmp_path):
    for name in ("whole", "broken"):
        outcome = headway("train", "--text", text, "--out", tmp_path / name, "--device", "cpu", *sets())
        assert outcome.code == 0, outcome.err
    shutil.rmtree(tmp_path / "broken/best")
    shutil.rmtree(tmp_path / "broken/checkpoints/step-000000004")
    resumed = headway("train", "--out", tmp_path / "broken", "--resume", "--device", "cpu")
    assert "resuming at step 2" in resumed.err, resumed.err
    models = [tmp_path / name / "best/model.safetensors" for name in ("whole", "broken")]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_a_recipe_names_the_text_and_a_dry_run_rehearses_it(headway, text, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[data]\ntext = "{text}"\n[tokenizer]\nvocabulary = 300\n'
        '[model]\ndim = 32\nheads = 2\nhidden = 32\nlayers = 1\npositions = "rotary"\n',
        encoding="utf-8",
    )
    outcome = headway("train", recipe, "--dry-run", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    assert "no position sees a later one" in outcome.err and "sane" in outcome.err


def test_texts_begin_as_they_are_told_and_json_says_what_they_are_worth(headway, language_folder, tmp_path):
    lines = headway("sample", language_folder, "--count", 5, "--prefix", "le chat", "--set", "top_k=3").lines
    assert len(lines) == 5 and all(line.startswith("le chat") for line in lines)
    out = tmp_path / "texts"
    assert headway("sample", language_folder, "--count", 70, "--json", "--output", out).lines == []
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(records) == 70 and all(record["tokens"] <= 31 for record in records)
    assert len({record["text"] for record in records}) > 60
    ended = [record for record in records if record["finished"] and record["text"] == record["text"].strip()]
    scored = score(load(language_folder), [("", record["text"]) for record in ended])
    same = [abs(each.log_probability - record["logprob"]) < 1e-3 for each, record in zip(scored, ended, strict=True)]
    assert sum(same) > 0.5 * len(same)  # blanks at the ends of a text are not shown


def test_a_list_of_outputs_is_scored_without_a_source(headway, language_folder, tmp_path):
    (tmp_path / "list").write_text("0 ||| le chat ||| F0= -1\n0 ||| le pain\n2 ||| tout ||| F0= -2\n", encoding="utf-8")
    lines = headway("score", language_folder, "--nbest", tmp_path / "list").lines
    values = [each.log_probability for each in score(load(language_folder), [("", t) for t in ("le chat", "le pain")])]
    assert lines[0] == f"0 ||| le chat ||| F0= -1 Headway= {values[0]:.6f}"
    assert lines[1] == f"0 ||| le pain ||| Headway= {values[1]:.6f}"
    (tmp_path / "texts").write_text("le chat\n\nle pain\n", encoding="utf-8")
    outcome = headway("score", language_folder, "--target", tmp_path / "texts", "--json")
    records = [json.loads(line) for line in outcome.lines]
    assert [record["target"] for record in records] == ["le chat", "", "le pain"]
    assert [record["tokens"] for record in records] == [8, 1, 8]
    assert all(record.keys() == {"target", "logprob", "tokens", "score"} for record in records)


def test_outputs_are_chosen_with_the_help_of_a_language_model(headway, language_folder, tmp_path):
    folder, lines = save_lively(tmp_path / "lively"), SENTENCES[:6]
    given = "".join(f"{line}\n" for line in lines).encode()
    plain = headway("translate", folder, "--beam", 5, stdin=given).lines
    options = ("--beam", 5, "--rescore", language_folder, "--rescore-weight", 4.0)
    helped = headway("translate", folder, *options, stdin=given).lines
    assert len(helped) == 6 and helped != plain
    translator = load(folder)
    found = translator(lines, beam=5, nbest=5)
    rescorers = [Rescorer(load(language_folder), 4.0)]
    wanted = rescore(found, rescorers, length_penalty=translator.decoding.length_penalty)
    assert helped == [str(each) for each in wanted]
    listed = headway("translate", folder, *options, "--nbest", 2, stdin=given).lines
    assert len(listed) == 12
    assert listed[0].split(" ||| ")[1] == helped[0]
    assert float(listed[0].split(" ||| ")[3]) == pytest.approx(wanted[0].score, abs=1e-4)
    same = headway("translate", folder, "--beam", 5, "--rescore", folder, "--rescore-own", 0.0, stdin=given)
    assert len(same.lines) == 6


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--rescore-weight", 2.0), "--rescore: missing"),
        (("--rescore", "MODEL", "--rescore-weight", 1.0, "--rescore-weight", 2.0), "2 for 1 models"),
        (("--rescore", "MODEL", "--mbr", 2), "--mbr"),
        (("--ensemble", "MODEL"), "another vocabulary"),
    ],
)
def test_options_of_rescoring_that_cannot_be_are_refused(headway, model_folder, language_folder, options, told):
    given = [language_folder if each == "MODEL" else each for each in options]
    assert told in headway("translate", model_folder, *given, stdin=b"le chat\n").only_complaint


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate", "MODEL"),
        ("run", "MODEL"),
        ("embed", "MODEL"),
        ("evaluate", "MODEL", "--source", "TEXT", "--reference", "TEXT"),
        ("shortlist", "MODEL", "--source", "TEXT", "--target", "TEXT", "--output", "OUT"),
        ("export", "MODEL", "--to", "ctranslate2", "--output", "OUT"),
        ("distill", "MODEL", "--source", "TEXT", "--out", "OUT"),
        ("backtranslate", "MODEL", "--monolingual", "TEXT", "--out", "OUT"),
        ("score", "MODEL", "--source", "TEXT", "--target", "TEXT"),
        ("score", "MODEL", "--target", "TEXT", "--tag", "en"),
        ("score", "MODEL"),
        ("attention", "MODEL", "le chat", "--target", "un chien"),
        ("sample", "MODEL", "--count", 0),
        ("sample", "MODEL", "--set", "nbest=3"),
        ("sample", "MODEL", "--prefix", "☃"),
        ("sample", "MODEL", "--set", "coverage_penalty=1.0"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:4:2])),
)
def test_what_makes_no_sense_is_refused_in_one_line(headway, language_folder, text, tmp_path, arguments):
    named = {"MODEL": language_folder, "TEXT": text, "OUT": tmp_path / "out"}
    assert headway(*(named.get(each, each) for each in arguments), stdin=b"le chat\n").only_complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--source", "TEXT", "--target", "TEXT"), "text has no other side"),
        (("--set", "model.architecture=transformer"), "data.text has no source"),
        (("--set", "model.encoder_layers=2"), "unknown key model.encoder_layers"),
        (("--set", "data.valid_source=x"), "leave out valid_source"),
        (("--set", "training.metric=chrf"), "use loss"),
    ],
)
def test_a_text_and_what_does_not_go_with_it_are_refused(headway, text, tmp_path, options, told):
    given = [text if each == "TEXT" else each for each in options]
    assert told in headway("train", "--text", text, "--out", tmp_path / "run", *given).complaint
    assert not (tmp_path / "run").exists()


def test_a_translation_model_draws_no_texts_and_needs_its_source(headway, model_folder, text, tmp_path):
    assert "language model" in headway("sample", model_folder).only_complaint
    assert "--source: missing" in headway("score", model_folder, "--target", text).only_complaint
    files = ("--source", text, "--target", text, "--out", tmp_path / "run")
    told = headway("train", *files, "--set", "model.architecture=language").complaint
    assert "--text" in told


def test_what_a_language_model_looks_at_can_be_seen(headway, language_folder, tmp_path):
    page = tmp_path / "page.html"
    assert headway("attention", language_folder, "le chat voit", "--out", page).lines == ["le chat voit"]
    assert page.stat().st_size > 1000
    translator = load(language_folder)
    found = translator.attention("", translator.target.encode(["le chat"])[0])
    assert found.kinds() == ("decoder",)
    assert found.decoder.shape == (1, 2, 8, 8)
