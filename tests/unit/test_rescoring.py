"""Outputs in another order: by what other models think of their texts."""

from dataclasses import replace

import pytest
import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError
from headway.models.language import LanguageConfig, LanguageModel
from headway.models.model import NonAutoregressive
from headway.models.transformer import Transformer, TransformerConfig
from headway.rescoring import Rescorer, rescore, shortened
from headway.scoring import score
from headway.search import DecodingConfig, Scoring
from headway.translator import Translator

TEXTS = ["le chat voit la pomme", "un chien mange", "la reine garde tout le pain"]
WORDS = Tokenizer.train(TEXTS, TokenizerConfig(kind="words"), ["en"])
LETTERS = Tokenizer.train(TEXTS, TokenizerConfig(kind="characters"))
DECODING = DecodingConfig(beam=6, nbest=6, length_penalty=0.6, longest=10, shortest_extra=1)
PENALTY = Scoring(0.6)


def lively(model, end):
    """A model that writes something else for every source, and comes to an end."""
    with torch.no_grad():
        model.output.weight.mul_(1.5)
        model.output.bias[end] += 3.0
    return model.eval()


def translating(tokenizer=WORDS, seed=1, longest=32):
    torch.manual_seed(seed)
    config = TransformerConfig(dim=16, heads=2, hidden=16, encoder_layers=1, decoder_layers=1, longest=longest)
    model = Transformer(config.model_copy(update={"tie": "none"}), tokenizer.size, tokenizer.size)
    return Translator(lively(model, tokenizer.end), tokenizer, tokenizer, DECODING)


def language(tokenizer=LETTERS, seed=2, longest=128):
    torch.manual_seed(seed)
    config = LanguageConfig(dim=16, heads=2, hidden=16, layers=1, longest=longest)
    model = LanguageModel(config, tokenizer.size, tokenizer.size)
    return Translator(lively(model, tokenizer.end), tokenizer, tokenizer, DECODING)


def listed(translation):
    """Every output with its score, best first."""
    texts = (str(translation), *translation.alternatives)
    return [(text, each.score) for text, each in zip(texts, translation.hypotheses, strict=True)]


@pytest.fixture(scope="module")
def found():
    return translating()(TEXTS)


@pytest.mark.parametrize(("own", "weight"), [(1.0, 0.3), (1.0, 5.0), (0.0, 1.0), (1.0, -0.2)])
def test_the_order_is_that_of_the_formula(found, own, weight):
    model = language()
    ordered = rescore(found, [Rescorer(model, weight)], own=own, length_penalty=0.6)
    for before, after in zip(found, ordered, strict=True):
        wanted = []
        for text, each in zip((str(before), *before.alternatives), before.hypotheses, strict=True):
            (scored,) = score(model, [("", text)])
            penalty = PENALTY.penalty(len(each.tokens) + each.finished)
            wanted.append((not each.finished, -(own * each.score + weight * scored.log_probability / penalty), text))
        wanted.sort()
        assert [text for text, _ in listed(after)] == [text for _, _, text in wanted]
        assert [value for _, value in listed(after)] == pytest.approx([-value for _, value, _ in wanted], abs=1e-4)
        assert str(after) == wanted[0][2] and after.score == after.hypotheses[0].score
    if weight == 5.0:
        assert [str(each) for each in ordered] != [str(each) for each in found]


def test_a_weight_of_nothing_changes_nothing(found):
    ordered = rescore(found, [Rescorer(language(), 0.0)], length_penalty=0.6)
    assert [listed(each) for each in ordered] == [listed(each) for each in found]


def test_several_models_add_up_and_one_that_translates_reads_the_source(found):
    other, model = translating(LETTERS, seed=5, longest=128), language()
    ordered = rescore(found, [Rescorer(other, 0.5), Rescorer(model, 0.25)], own=0.0)
    for source, before, after in zip(TEXTS, found, ordered, strict=True):
        texts = (str(before), *before.alternatives)
        translated, plain = (score(each, [(source, text) for text in texts]) for each in (other, model))
        values = {
            text: 0.5 * one.log_probability + 0.25 * two.log_probability
            for text, one, two in zip(texts, translated, plain, strict=True)
        }
        for text, value in listed(after):
            assert value == pytest.approx(values[text], abs=1e-3)


def test_a_tag_goes_to_the_model_that_knows_it():
    tagged = translating()(TEXTS[:1], tags=["en"])
    for tokenizer, tags in ((WORDS, ["en"]), (LETTERS, [])):
        other = translating(tokenizer, seed=4, longest=128)
        (after,) = rescore(tagged, [Rescorer(other)], own=0.0)
        (scored,) = score(other, [(TEXTS[0], str(after))], tags=tags)
        assert after.score == pytest.approx(scored.log_probability, abs=1e-3)


def test_what_a_model_cannot_read_comes_last_in_its_own_order(found):
    lengths = sorted(len(text) for each in found for text in (str(each), *each.alternatives))
    short = language(longest=max(4, lengths[len(lengths) // 2]))
    ordered = rescore(found, [Rescorer(short)], length_penalty=0.6)
    reached = 0
    for before, after in zip(found, ordered, strict=True):
        fits = [len(text) < short.model.config.longest for text, _ in listed(after)]
        assert fits == sorted(fits, reverse=True)
        known = dict(listed(before))
        left = [(text, value) for text, value in listed(after) if len(text) >= short.model.config.longest]
        reached += 0 < len(left) < len(fits)
        assert left == [(text, known[text]) for text, _ in listed(before) if len(text) >= short.model.config.longest]
    assert reached


def test_a_blank_source_has_nothing_to_put_in_order():
    (after,) = rescore(translating()([" "]), [Rescorer(language())])
    assert (str(after), after.hypotheses) == ("", ())


def test_every_passage_is_put_in_order_alone():
    translator, rescorers = translating(longest=5), [Rescorer(language(), 3.0)]
    text = "le chat voit la pomme un chien mange tout"
    (whole,) = translator([text])
    assert len(whole.passages) > 1
    (after,) = rescore([whole], rescorers, length_penalty=0.6)
    parts = [rescore([part], rescorers, length_penalty=0.6)[0] for part in whole.passages]
    for one, other in zip(after.passages, parts, strict=True):
        assert [text for text, _ in listed(one)] == [text for text, _ in listed(other)]
        assert [value for _, value in listed(one)] == pytest.approx([value for _, value in listed(other)], abs=1e-3)
    assert after.score == pytest.approx(sum(part.score for part in parts))


def test_a_list_is_cut_to_its_best(found):
    cut = shortened(found[0], 2)
    assert listed(cut) == listed(found[0])[:2]
    assert shortened(found[0], 9) is found[0]


def test_a_model_that_writes_all_at_once_gives_no_probability():
    class Blind(NonAutoregressive):
        config = LanguageConfig()

    with pytest.raises(ConfigError, match="rescore"):
        Rescorer(replace(language(), model=Blind()))
