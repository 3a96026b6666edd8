"""Beginning where another model ended."""

from pathlib import Path

import numpy as np
import pytest
import torch

from headway.config import validated
from headway.data.config import DataConfig
from headway.data.extension import pieces_of_new
from headway.data.preparation import divide, prepare
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError, FolderError
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import LabelSmoothedLikelihood
from headway.search import DecodingConfig
from headway.start import StartConfig, initialise_tables, open_start
from headway.translator import Translator, load
from headway.validation import Validator, validation_batches

SHAPE = {"dim": 16, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 64}
OLD = ["le chat voit la pomme .", "un chien mange le pain ."] * 10
NEW = [f"{which} myocardite infectieuse {number}" for number in range(20) for which in ("la", "une")]


def silent(what, done, total):
    pass


def saved(folder, *, tie="three-way", joint=True, positions="sinusoidal"):
    source = Tokenizer.train(OLD, TokenizerConfig(vocabulary=280))
    target = source if joint else Tokenizer.train([line.upper() for line in OLD], TokenizerConfig(vocabulary=275))
    torch.manual_seed(5)
    model = Transformer(TransformerConfig(**SHAPE, tie=tie, positions=positions), source.size, target.size)
    torch.nn.init.normal_(model.output.bias)
    Translator(model.eval(), source, target, DecodingConfig(beam=1, longest=12)).save(folder)
    return folder


@pytest.fixture
def data(tmp_path):
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in NEW), encoding="utf-8")
    (tmp_path / "target").write_text("".join(f"{line.upper()}\n" for line in NEW), encoding="utf-8")
    return DataConfig(folder=tmp_path, source=Path("source"), target=Path("target"))


def begun(start, data):
    source, target = start.tokenizers(data, divide(data, silent), silent)
    config = start.model_config(None)
    model = Transformer(config, source.size, target.size).eval()
    start.fill(model, source, target)
    return Translator(model, source, target, start.origin.decoding)


def test_a_kept_vocabulary_begins_at_the_loss_of_the_old_model(tmp_path, data):
    start = open_start(StartConfig(model=saved(tmp_path / "model")))
    split = divide(data, silent)
    pair = start.tokenizers(data, split, silent)
    prepared = prepare(
        data, TokenizerConfig(), tmp_path / "data", longest=64, split=split, report=silent, tokenizers=pair
    )
    assert prepared.source is prepared.target is start.origin.source
    model = Transformer(start.model_config(None), prepared.source.size, prepared.target.size).eval()
    validator = Validator(
        source=prepared.source, target=prepared.target, pairs=split.valid, batches=validation_batches(prepared, 64),
        device=torch.device("cpu"), translated=0, samples=0, objective=LabelSmoothedLikelihood(),
    )  # fmt: skip
    with torch.no_grad():
        fresh = validator.loss(model, lambda: None)
        start.fill(model, *pair)
        assert validator.loss(model, lambda: None) == validator.loss(start.origin.model, lambda: None) != fresh


@pytest.mark.parametrize(
    ("tie", "joint"), [("three-way", True), ("two-way", True), ("none", True), ("two-way", False), ("none", False)]
)
def test_an_extended_model_answers_text_without_new_tokens_as_before(tie, joint, tmp_path, data):
    start = open_start(StartConfig(model=saved(tmp_path / "model", tie=tie, joint=joint), extend=20))
    extended = begun(start, data)
    assert extended.source.size == start.origin.source.size + 20
    assert extended.target.size == start.origin.target.size + 20
    assert (extended.source is extended.target) == joint
    assert len(extended.tokenize(["la myocardite"])[0]) < len(start.origin.tokenize(["la myocardite"])[0])
    for text in ("le chat voit le chien .", "pomme"):
        assert extended.tokenize([text]) == start.origin.tokenize([text])
        assert extended(text) == start.origin(text) != ""
        ids, source = extended.tokenize([text]), extended._source
        new, old = extended.model.encode(source(ids)).states, start.origin.model.encode(source(ids)).states
        torch.testing.assert_close(new, old, rtol=1e-5, atol=1e-6)  # one of them is laid out for decoding


def test_a_new_token_begins_as_the_mean_of_its_pieces_and_is_never_the_likeliest(tmp_path, data):
    start = open_start(StartConfig(model=saved(tmp_path / "model", tie="none"), extend=8))
    extended, old = begun(start, data), start.origin.model
    pieces = pieces_of_new(start.origin.target, extended.target)
    for name in ("source_embedding.weight", "target_embedding.weight", "output.weight"):
        before, after = old.get_parameter(name), extended.model.get_parameter(name)
        assert len(pieces[-1]) > 1
        torch.testing.assert_close(after[-1], before[pieces[-1]].mean(0))
    states = torch.randn(100, 16)
    logits = extended.model.output(states)
    known, new = logits.split([start.origin.target.size, 8], dim=-1)
    assert (new.logsumexp(-1) < known.max(-1).values).all()  # all of them together


def test_settings_that_change_the_shape_are_refused_by_name(tmp_path):
    start = open_start(StartConfig(model=saved(tmp_path / "model")))
    given = validated(TransformerConfig, {"dim": 32, "norm": "pre", "heads": 2}, "model")
    with pytest.raises(ConfigError, match=r"its model has another model\.dim, model\.norm; leave"):
        start.model_config(given)
    with pytest.raises(ConfigError, match=r"model\.encoder_layers"):
        start.model_config(TransformerConfig(preset="base"))


def test_dropout_may_differ_and_so_may_the_longest_unless_positions_are_learned(tmp_path):
    given = TransformerConfig.model_validate({"dropout": 0.3, "longest": 99, "dim": 16})
    config = open_start(StartConfig(model=saved(tmp_path / "model"))).model_config(given)
    assert (config.dropout, config.longest, config.hidden) == (0.3, 99, 16)
    learned = open_start(StartConfig(model=saved(tmp_path / "learned", positions="learned")))
    with pytest.raises(ConfigError, match=r"model\.longest"):
        learned.model_config(given)


def test_a_preset_that_is_the_shape_of_the_model_may_be_named(tmp_path):
    tokenizer = Tokenizer.train(OLD, TokenizerConfig(vocabulary=280))
    shape = TransformerConfig(preset="tiny").model_copy(update={"preset": None, "dropout": 0.0})
    model = Transformer(shape, tokenizer.size, tokenizer.size)
    Translator(model, tokenizer, tokenizer, DecodingConfig()).save(tmp_path / "model")
    config = open_start(StartConfig(model=tmp_path / "model")).model_config(TransformerConfig(preset="tiny"))
    assert config == TransformerConfig(preset="tiny")


def test_settings_of_another_tokenizer_are_refused_and_the_own_ones_written_down(tmp_path):
    start = open_start(StartConfig(model=saved(tmp_path / "model"), extend=7))
    with pytest.raises(ConfigError, match=r"tokenizer\.kind, tokenizer\.joint, tokenizer\.vocabulary; leave"):
        start.tokenizer_config(TokenizerConfig(kind="words", joint=False, vocabulary=300))
    with pytest.raises(ConfigError, match=r"tokenizer\.file"):
        start.tokenizer_config(TokenizerConfig(file=tmp_path / "x.json"))
    config = start.tokenizer_config(TokenizerConfig(dropout=0.1))
    assert (config.kind, config.joint, config.vocabulary, config.dropout) == ("bpe", True, 287, 0.1)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_the_kind_of_the_tokenizers_is_known(kind, tmp_path):
    tokenizer = Tokenizer.train(OLD, TokenizerConfig(kind=kind))
    model = Transformer(TransformerConfig(**SHAPE), tokenizer.size, tokenizer.size)
    Translator(model, tokenizer, tokenizer, DecodingConfig()).save(tmp_path / "model")
    start = open_start(StartConfig(model=tmp_path / "model"))
    assert start.tokenizer_config(TokenizerConfig()).kind == kind


def test_a_damaged_folder_is_refused(tmp_path):
    folder = saved(tmp_path / "model")
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(FolderError, match="damaged"):
        open_start(StartConfig(model=folder))
    with pytest.raises(FolderError, match="no such folder"):
        open_start(StartConfig(model=tmp_path / "nowhere"))


def test_an_extended_model_is_saved_and_loaded_with_its_new_tokens(tmp_path, data):
    extended = begun(open_start(StartConfig(model=saved(tmp_path / "model"), extend=5)), data)
    extended.save(tmp_path / "extended")
    assert load(tmp_path / "extended").target.size == extended.target.size == 285


def test_the_embeddings_of_wide_models_begin_so_small_that_logits_do_not_grow_with_the_width():
    for width, expected in ((128, 0.02), (256, 0.02), (1024, 0.01)):
        model = Transformer(TransformerConfig(**SHAPE | {"dim": width}), 50, 50)
        initialise_tables(model, np.zeros(50))
        assert model.output.weight.std().item() == pytest.approx(expected)
