"""`headway export`, and CTranslate2 as the engine of other commands."""

import contextlib
import io
import re
import sys

import pytest
import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.folders import verify_folder
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig
from headway.translator import Translator, load

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

LINES = ["le chat voit la pomme .", "", "un chien mange tout .", "Zoë garde le pain ."]


@pytest.fixture(scope="module")
def separate(tmp_path_factory):
    """A model with a tokenizer for each side that never writes a control symbol."""
    source, target = (
        Tokenizer.train([text], TokenizerConfig(vocabulary=270)) for text in ("le chat voit la pomme", "the cat sees")
    )
    torch.manual_seed(4)
    shape = {"dim": 16, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 32}
    model = Transformer(TransformerConfig(**shape, tie="two-way"), source.size, target.size).eval()
    with torch.no_grad():
        model.output.bias[[target.padding, target.start]] = -30.0
    folder = tmp_path_factory.mktemp("models") / "separate"
    Translator(model, source, target, DecodingConfig(beam=1, longest=12)).save(folder)
    return folder


def example(folder, text, monkeypatch):
    """What the example of an exported folder's README prints."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.strip().splitlines()) == 5  # an import, a blank line and the three that do it
    monkeypatch.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {"text": text})
    return said.getvalue().removesuffix("\n")


def test_the_folder_is_sealed_and_its_readme_shows_how_to_use_it_alone(headway, separate, tmp_path, monkeypatch):
    (line,) = headway("export", separate, "--to", "ctranslate2", "--output", tmp_path / "out").lines
    assert line.startswith(f"{tmp_path / 'out'}: ")
    manifest = verify_folder(tmp_path / "out")
    assert (manifest["kind"], manifest["int8"]) == ("ctranslate2", False)
    files = {"source.tokenizer.json", "target.tokenizer.json", "model.bin", "config.json", "README.md"}
    assert files < set(manifest["files"])
    own = load(separate)("le chat voit", beam=1, limit_ratio=0.0, limit_extra=31, longest=31)
    assert own
    assert example(tmp_path / "out", "le chat voit", monkeypatch).startswith(own.removesuffix("\ufffd"))


def test_one_tokenizer_for_both_sides_is_written_once(headway, model_folder, tmp_path, monkeypatch):
    assert headway("export", model_folder, "--to", "ctranslate2", "--output", tmp_path / "out", "--int8").lines
    manifest = verify_folder(tmp_path / "out")
    assert manifest["int8"] is True
    assert {name for name in manifest["files"] if "tokenizer" in name} == {"tokenizer.json"}
    example(tmp_path / "out", "le chat", monkeypatch)


def test_an_existing_folder_is_never_overwritten(headway, model_folder, tmp_path):
    told = headway("export", model_folder, "--to", "ctranslate2", "--output", tmp_path).only_complaint
    assert "already there" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [({"positions": "alibi"}, "alibi"), ({"feedforward": "convolutional"}, "convolutional"), ({"window": 8}, "window")],
)
def test_a_model_that_cannot_be_exported_is_refused_in_one_line(options, told, headway, model_folder, tmp_path):
    translator = load(model_folder)
    config = TransformerConfig(**(translator.model.config.model_dump() | options))
    model = Transformer(config, translator.source.size, translator.target.size).eval()
    Translator(model, translator.source, translator.target, translator.decoding).save(tmp_path / "model")
    complaint = headway("export", tmp_path / "model", "--to", "ctranslate2", "--output", tmp_path / "out")
    assert told in complaint.only_complaint
    assert not (tmp_path / "out").exists()


def test_without_the_package_one_line_says_so(headway, model_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    options = ("--to", "ctranslate2", "--output", tmp_path / "out")
    assert "pip install 'headway[ctranslate2]'" in headway("export", model_folder, *options).only_complaint
    assert not (tmp_path / "out").exists()


def test_evaluate_and_translate_take_the_engine_by_name(headway, separate, tmp_path):
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    options = ("--reference", text, "--source", text, "--json", "--device", "cpu")
    own, other, eighth = (
        headway("evaluate", separate, *options, *engine).json["scores"]
        for engine in ((), ("--engine", "ctranslate2"), ("--engine", "ctranslate2", "--int8"))
    )
    assert own == other
    assert len(eighth) == len(own)
    outputs = [
        headway("translate", separate, "--input", text, "--device", "cpu", *engine).lines
        for engine in ((), ("--engine", "ctranslate2"))
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(LINES)


def test_int8_without_its_engine_is_refused(headway, separate, tmp_path):
    (tmp_path / "text").write_text("le chat\n")
    options = ("--reference", tmp_path / "text", "--source", tmp_path / "text", "--int8", "--device", "cpu")
    assert "--int8: is for --engine ctranslate2" in headway("evaluate", separate, *options).only_complaint
