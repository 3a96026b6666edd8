"""A trained model with its tokenizers."""

import json
import threading

import numpy as np
import pytest
import torch

from headway.errors import ConfigError, DataError, FolderError
from headway.translator import load


@pytest.fixture(scope="module")
def translator(model_folder):
    return load(model_folder)


def test_a_saved_model_loads_as_the_same(translator, tmp_path):
    translator.save(tmp_path / "again", scores={"bleu": 1.5}, readme="# Mine\n", step=9)
    again = load(tmp_path / "again")
    own, other = translator.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(weight, other[name]) for name, weight in own.items())
    assert again("le chat") == translator("le chat")
    assert again.decoding == translator.decoding
    assert (tmp_path / "again" / "README.md").read_text() == "# Mine\n"
    assert json.loads((tmp_path / "again" / "config.json").read_text())["scores"] == {"bleu": 1.5}


def test_a_model_is_never_saved_over_another(translator, model_folder):
    with pytest.raises(FolderError, match="already there"):
        translator.save(model_folder)


def test_the_best_model_of_a_run_folder_is_loaded(translator, tmp_path):
    translator.save(tmp_path / "run" / "best")
    assert load(tmp_path / "run")("le chat") == translator("le chat")


def test_one_text_gives_one_answer_and_a_list_gives_a_list_in_order(translator):
    texts = ["le chat voit la pomme .", "", "Zoë", "un chien mange le pain . un chien mange tout ."]
    answers = translator(texts)
    assert answers == [translator(text) for text in texts]
    assert [answer.source for answer in answers] == texts


def test_an_answer_is_text_that_knows_its_score_and_alternatives(translator):
    answer = translator("le chat", beam=3, nbest=3)
    assert isinstance(answer, str)
    assert len(answer.alternatives) == 2
    assert answer.score == answer.hypotheses[0].score >= answer.hypotheses[1].score


@pytest.mark.parametrize("text", ["", " ", "\t\u00a0", "\u2028"])
def test_a_blank_text_gives_an_empty_answer_without_a_search(text, translator):
    answer = translator(text)
    assert answer == ""
    assert answer.hypotheses == ()
    assert answer.attention.source[-1] == "⟨/s⟩"


def test_a_text_longer_than_the_model_knows_is_cut_and_says_so(model_folder):
    translator = load(model_folder)
    long, short = translator(["le chat " * 4000, "le chat"])
    assert long.cut and not short.cut
    assert long.attention.source == (*(text for _, text in translator.source.pieces(long.source)[:31]), "⟨/s⟩")


def test_no_answer_is_longer_than_decoding_allows(translator):
    assert len(translator("le chat voit la pomme .", longest=3).hypotheses[0].tokens) <= 4  # and the end symbol


@pytest.mark.parametrize(
    ("options", "told"),
    [({"beam": 0}, "beam"), ({"bean": 2}, "bean.*did you mean beam"), ({"beam": "2"}, "beam"),
     ({"length_penalty": float("nan")}, "length_penalty"), ({"nbest": 9}, "nbest is 9 but the beam keeps only 2")],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_by_name(options, told, translator):
    with pytest.raises(ConfigError, match=told):
        translator("le chat", **options)


def test_half_a_surrogate_pair_is_refused(translator):
    with pytest.raises(DataError, match="lone surrogate"):
        translator("le \ud800 chat")


def test_a_token_that_spells_a_line_end_never_leaves_one_line(translator):
    ids = translator.target.encode(["a\nb\u2028c\r\nd"])[0]
    assert translator.detokenize(ids) == "a b c d"


def test_control_symbols_in_the_text_are_plain_text(translator):
    controls = {translator.source.padding, translator.source.start, translator.source.end}
    assert controls.isdisjoint(translator.tokenize(["<pad> <s> </s> ▁"])[0])


def test_attention_has_a_row_a_token_and_rows_that_sum_to_one(translator):
    found = translator("le chat voit la pomme .").attention
    assert found.cross.shape[2:] == (len(found.target_out), len(found.source))
    np.testing.assert_allclose(found.cross.sum(-1), 1.0, atol=1e-5)
    assert "".join(found.source[:-1]) == "le chat voit la pomme ."


def test_embedding_a_text_needs_no_gradient_and_does_not_depend_on_its_neighbours(translator):
    (first, second) = translator.embed(["le chat", "un chien"])
    (alone,) = translator.embed(["le chat"])
    assert [piece for piece, _ in first] == [piece for piece, _ in alone]
    np.testing.assert_array_equal(first[0][1], alone[0][1])
    assert len(second) > 0


def test_many_threads_may_use_one_translator(translator):
    texts = ["le chat voit la pomme .", "un chien", "la reine garde tout .", "Zoë mange"]
    wanted, got = translator(texts), {}
    threads = [threading.Thread(target=lambda t=text: got.update({t: translator(t)})) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[text] for text in texts] == wanted


def test_models_with_two_tokenizers_are_saved_and_loaded(tmp_path):
    from headway.data.tokenizer import Tokenizer, TokenizerConfig
    from headway.models.transformer import Transformer, TransformerConfig
    from headway.search import DecodingConfig
    from headway.translator import Translator

    source = Tokenizer.train(["le chat"], TokenizerConfig(kind="characters"))
    target = Tokenizer.train(["the cat sat"], TokenizerConfig(kind="words"))
    shape = {"dim": 8, "heads": 2, "hidden": 8, "encoder_layers": 1, "decoder_layers": 1, "longest": 16}
    model = Transformer(TransformerConfig(**shape, tie="none", positions="learned"), source.size, target.size).eval()
    saved = Translator(model, source, target, DecodingConfig(beam=1))
    saved.save(tmp_path / "model")
    assert load(tmp_path / "model")("le chat") == saved("le chat")
    assert {"source.tokenizer.json", "target.tokenizer.json"} <= {path.name for path in (tmp_path / "model").iterdir()}


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("feedforward", ["relu", "gated", "convolutional"])
@pytest.mark.parametrize("tie", ["three-way", "none"])
def test_no_model_has_fewer_parameters_than_its_configuration_promises(positions, feedforward, tie):
    from headway.models.transformer import Transformer, TransformerConfig

    shape = {"dim": 8, "heads": 2, "hidden": 8, "encoder_layers": 2, "decoder_layers": 1, "longest": 16}
    config = TransformerConfig(**shape, positions=positions, feedforward=feedforward, tie=tie)
    count = sum(weight.numel() for weight in Transformer(config, 20, 20).parameters())
    assert count / 4 < config.fewest_parameters(20) <= count


def test_a_target_character_written_by_several_tokens_is_shown_once(translator):
    (tokens,) = translator.target.encode(["le 犬 dort"])
    shown = translator._written(tokens)
    assert len(shown) == len(tokens)
    assert sum("犬" in each for each in shown) == 1
    assert not any(each.startswith("le") for each in shown[1:])
