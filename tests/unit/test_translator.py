"""A trained model with its tokenizers."""

import copy
import json
import math
import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch

from headway.errors import ConfigError, DataError, FolderError
from headway.reading import Reader
from headway.search import DecodingConfig, Hypothesis
from headway.sentence import spellings
from headway.translator import Sentence, Translator, load
from lively import save_lively


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return save_lively(tmp_path_factory.mktemp("models") / "lively")


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


def test_a_copy_of_an_answer_is_its_plain_text(translator):
    answer = translator("le chat")
    for again in (pickle.loads(pickle.dumps(answer)), copy.copy(answer), copy.deepcopy([answer])[0]):
        assert type(again) is str and again == answer != ""


@pytest.mark.parametrize("text", ["", " ", "\t\u00a0", "\u2028"])
def test_a_blank_text_gives_an_empty_answer_without_a_search(text, translator):
    answer = translator(text)
    assert answer == ""
    assert answer.hypotheses == ()
    assert answer.attention.source[-1] == "⟨/s⟩"


LONG = "Le chat voit la pomme . " * 30


def test_a_long_text_is_read_in_passages_that_fit_and_nothing_is_lost(translator):
    long, short = translator([LONG, "le chat"])
    assert short.passages == () and not long.cut
    assert " ".join(part.source for part in long.passages) == LONG.strip()
    assert max(len(ids) for ids in translator.tokenize([part.source for part in long.passages])) <= translator.longest
    assert all(part.source.endswith(".") for part in long.passages)
    assert list(long.passages) == translator([part.source for part in long.passages])
    assert long == " ".join(long.passages)
    assert long.score == pytest.approx(sum(part.score for part in long.passages))
    assert long.hypotheses[0].tokens == tuple(t for part in long.passages for t in part.hypotheses[0].tokens)


def test_the_beginning_of_a_long_text_is_read_where_that_is_asked_for(translator):
    long, short = translator([LONG, "le chat"], long="truncate")
    assert long.cut and not short.cut
    assert long.passages == ()
    assert long.attention.source == (*(text for _, text in translator.source.pieces(long.source)[:31]), "⟨/s⟩")


def test_a_long_text_is_refused_by_number_and_length_where_that_is_asked_for(translator):
    tokens = len(translator.tokenize([LONG])[0])
    with pytest.raises(DataError, match=f"text 2: {tokens} tokens, the model reads 31"):
        translator(["le chat", LONG], long="refuse")


def test_a_document_keeps_its_white_space_and_translates_every_sentence_alone(translator):
    text = "  Le chat voit la pomme.\tUn chien mange tout!  "
    found = translator(text, document=True)
    alone = translator(["Le chat voit la pomme.", "Un chien mange tout!"])
    assert list(found.passages) == alone
    assert found == f"  {alone[0]}\t{alone[1]}  "
    assert translator(" \t ", document=True) == " \t "


def test_an_output_begins_with_the_prefix_of_its_sentence(translator):
    texts = ["le chat", Sentence("le chat", prefix="la reine ga"), Sentence(LONG, prefix="un chien")]
    plain, own, long = translator(texts, prefix="Zoë ")
    assert plain.startswith("Zoë") and own.startswith("la reine ga")
    assert long.startswith("un chien") and not long.passages[1].startswith("un chien")


def test_an_output_holds_what_is_required_of_it(translator):
    assert not any(word in translator("un chien") for word in ("pomme", "la reine"))
    found = translator(["un chien", Sentence("un chien", required=["la reine"])], required=["pomme"], beam=4)
    assert "pomme" in found[0] and "la reine" not in found[0]
    assert "pomme" in found[1] and "la reine" in found[1]


def test_an_output_never_holds_what_is_banned(translator):
    plain, own = translator(["Zoë", Sentence("Zoë", banned=["mange"])])
    assert "mange" in plain.split()
    assert "mange" not in own.split()
    assert "mange" not in translator("Zoë", banned=["mange"]).split()


def test_the_surface_of_every_token_spells_the_text(translator):
    from headway.data.tokenizer import Tokenizer, TokenizerConfig
    from headway.sentence import surfaces

    text = "le chat voit l'arbre 犬 ."
    kinds = (
        translator.target,
        *(Tokenizer.train([text], TokenizerConfig(kind=kind)) for kind in ("characters", "words")),
    )
    for tokenizer in kinds:
        spelled, (tokens,) = surfaces(tokenizer), tokenizer.encode([text])
        assert b"".join(spelled[token] for token in tokens).decode().strip() == text
        assert spelled[tokenizer.end] == b""


def test_a_required_phrase_is_tokenised_as_inside_a_sentence():
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, trainers

    from headway.data.tokenizer import SPECIALS, JsonTokenizer, Tokenizer, TokenizerConfig
    from headway.sentence import phrase_tokens

    foreign = Backend(models.BPE())
    foreign.pre_tokenizer, foreign.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    foreign.train_from_iterator(
        ["a cat sat"] * 9, trainers.BpeTrainer(special_tokens=list(SPECIALS), show_progress=False)
    )
    tokenizer = JsonTokenizer(foreign)
    (inside,) = tokenizer.encode(["a cat"])
    assert phrase_tokens(tokenizer, "cat") == tuple(inside[1:]) != tuple(tokenizer.encode(["cat"])[0])
    letters = Tokenizer.train(["a cat"], TokenizerConfig(kind="characters"))
    assert letters.decode(phrase_tokens(letters, "cat")) == "cat"
    with pytest.raises(ConfigError, match="required 'dog': holds what the vocabulary"):
        phrase_tokens(letters, "dog")


@pytest.mark.parametrize(
    ("asked", "told"),
    [({"required": [" "]}, "required: an empty text"), ({"banned": [""]}, "banned: an empty text"),
     ({"required": "pomme"}, "is not a list of texts"),
     ({"prefix": "le chat " * 20}, "longer than the model writes")],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_in_one_line(asked, told, translator):
    with pytest.raises(ConfigError, match=told) as refused:
        translator("le chat", **asked)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [("banned", ["a", 3], "banned: 3 is not a text"), ("tags", 3, "tags: 3 is not a list of texts"),
     ("required", [None], "required: None is not a text"), ("prefix", 3, "prefix: 3 is not a text")],
)  # fmt: skip
def test_a_sentence_refuses_what_is_no_text(name, given, told):
    sentence = Sentence("le chat")
    object.__setattr__(sentence, name, given)  # the tests' own check of types would come first
    with pytest.raises(ConfigError, match=told):
        sentence.__post_init__()


def test_phrases_cannot_be_required_of_a_text_in_pieces(translator):
    with pytest.raises(ConfigError, match=r"text 2: is read in .* pieces"):
        translator(["le chat", LONG], required=["pomme"])


def test_samples_of_a_sentence_depend_on_its_source_and_the_seed_alone(translator):
    options = {"sample": True, "nbest": 3, "seed": 5}
    alone = translator("le chat", **options)
    beside = translator(["un chien", "le chat", "la reine garde tout ."], **options)[1]
    assert [beside, *beside.alternatives] == [alone, *alone.alternatives]
    assert translator("le chat", **options | {"seed": 6}) != alone
    assert translator.request([5, 6]).seed != translator.request([6, 5]).seed


def test_minimum_bayes_risk_returns_the_output_most_like_the_others(translator, monkeypatch):
    from headway.evaluation.agreement import consensus

    texts = translator("le chat", beam=6, nbest=6)
    every = [str(texts), *texts.alternatives]
    found = translator("le chat", beam=6, mbr=6, nbest=2)
    weights = [math.exp(each.log_probability) for each in texts.hypotheses]
    first, second, *_ = consensus(every, weights)
    assert [str(found), *found.alternatives] == [every[first], every[second]]
    assert found.score == texts.hypotheses[first].score


@pytest.mark.parametrize(
    "options", [{}, {"beam": 4}, {"sample": True}, {"prefix": "la reine"}, {"beam": 4, "mbr": 4}, {"longest": 256}]
)
@pytest.mark.parametrize("text", ["le chat voit la pomme .", " ", LONG])
def test_a_stream_grows_and_ends_with_what_a_call_gives(text, options, translator):
    items = list(translator.stream(text, **options))
    assert items[-1] == translator(text, **options)
    assert items[-1].score == pytest.approx(translator(text, **options).score, abs=1e-4)
    assert all(after.startswith(before) for before, after in pairwise(items))
    assert len(set(items[:-1])) == len(items) - 1
    if text.strip() and "mbr" not in options:
        assert len(items) > 2


def test_a_stream_never_shows_half_a_character(translator):
    (tokens,) = translator.target.encode(["le 犬犬 dort"])
    reading = Reader(translator.source, 31, "split")([Sentence("x")])[0]
    shown = [translator._begun(reading, [], tokens[:count]) for count in range(1, len(tokens) + 1)]
    assert not any("\ufffd" in each for each in shown)
    assert "le 犬" in shown and shown[-1].startswith("le 犬犬")


def test_the_confidence_of_an_output_is_its_text_in_pieces_with_probabilities(translator):
    for text in ("le chat voit la pomme .", LONG, "Zoë 犬"):
        found = translator(text)
        assert "".join(piece for piece, _ in found.confidence) == found
        assert all(piece and 0.0 <= probability <= 1.0 for piece, probability in found.confidence)
    found = translator("le chat", prefix="Zoë 犬 mange")
    pieces = [piece for piece, _ in found.confidence]
    assert "".join(pieces) == found and any("犬" in piece for piece in pieces)
    product = np.prod([probability for _, probability in found.confidence])
    best = found.hypotheses[0]
    assert product == pytest.approx(np.exp(sum(best.token_log_probabilities[: len(best.tokens)])))
    assert translator(" ").confidence == ()


def test_models_decode_together(translator, model_folder, tmp_path):
    folder = save_lively(tmp_path / "other", seed=0)
    own, other, both = load(model_folder), load(folder), load(model_folder, ensemble=[folder])
    texts = ["le chat voit la pomme .", "un chien"]
    assert both(texts) != own(texts) and both(texts) != other(texts)
    assert [each.score for each in load(model_folder, ensemble=[model_folder])(texts)] == pytest.approx(
        [each.score for each in own(texts)], abs=1e-4
    )


def test_a_model_with_another_vocabulary_cannot_join(model_folder, tmp_path):
    from headway.data.tokenizer import Tokenizer, TokenizerConfig
    from headway.models.transformer import Transformer

    own, other = load(model_folder), Tokenizer.train(["a b"], TokenizerConfig(kind="words"))
    Translator(Transformer(own.model.config, other.size, other.size), other, other, own.decoding).save(
        tmp_path / "other"
    )
    with pytest.raises(ConfigError, match="other: has another vocabulary"):
        load(model_folder, ensemble=[tmp_path / "other"])


def test_a_shortlist_restricts_what_is_written(translator, model_folder, tmp_path):
    from headway.data.lexicon import Lexicon

    (tokens,) = translator.target.encode(["la pomme"])
    size = translator.target.size
    Lexicon(np.full((size, 0), -1, np.int32), np.array(sorted(tokens), np.int32), size).save(tmp_path / "list")
    restricted = load(model_folder, shortlist=tmp_path / "list")
    found = restricted("le chat voit tout .")
    assert set(found.hypotheses[0].tokens) <= set(tokens)
    assert list(restricted.stream("le chat voit tout .")) == [found]


def test_a_checkpoint_of_a_run_is_loaded_with_its_averaged_weights(train, tmp_path):
    from safetensors.torch import load_file

    train(training__ema=0.5, decoding__beam=3)
    (folder, *_) = sorted((tmp_path / "run" / "checkpoints").iterdir())
    translator = load(folder)
    weights = load_file(folder / "average.safetensors")
    assert all(torch.equal(weight, weights[name]) for name, weight in translator.model.named_parameters())
    assert translator.decoding.beam == 3
    assert load(tmp_path / "run", ensemble=[folder])("le chat voit tout .") is not None
    folder.rename(tmp_path / "step")
    with pytest.raises(FolderError, match="away from its run"):
        load(tmp_path / "step")


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


def test_outputs_of_a_beam_are_weighed_by_their_probability_when_they_are_compared(translator):
    def found(text, log_probability):
        tokens = tuple(translator.target.encode([text])[0])
        return Hypothesis(tokens, log_probability, log_probability, True, (log_probability,))

    likely = found("the old cat sees the dog", -0.1)
    alike = [found(text, -9.0) for text in ("red red apple", "red red apples", "red red apple and")]
    beam = translator._agreed([likely, *alike], DecodingConfig(beam=4, mbr=4))
    drawn = translator._agreed([likely, *alike], DecodingConfig(sample=True, mbr=4))
    assert beam == [likely]
    assert drawn[0] in alike


def test_a_ban_holds_in_every_unicode_form(translator):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for phrase in (composed, decomposed):
        assert {composed, decomposed} <= set(spellings(translator.target, phrase))
