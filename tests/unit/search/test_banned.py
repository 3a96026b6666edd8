from functools import reduce
from random import Random

import numpy as np
import pytest
import torch
from tables import Noise

from headway.engine import Engine
from headway.errors import ConfigError
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig, Request, Symbols, decode
from headway.search.phrases import FRESH, Watch, within_word

BYTES = tuple(bytes([byte]) for byte in range(256))


def allowed(phrases, text, pieces, left=9):
    """Which of the pieces may come next, and whether the text may end, once it is written byte by byte."""
    watch = Watch((*BYTES, *(piece.encode() if isinstance(piece, str) else piece for piece in pieces)), tuple(phrases))
    state = reduce(watch.after, text.encode() if isinstance(text, str) else text, FRESH)
    forbidden = set(watch.impossible(state, left).tolist())
    return [piece for number, piece in enumerate(pieces, 256) if number not in forbidden], not watch.open(state)


def test_a_phrase_at_the_end_may_become_a_longer_word_but_not_stand():
    pieces = ["er", " ", ".", "s ", " er", "é", "", "٣"]
    assert allowed(["Berlin"], "in Berlin", pieces) == (["er", "s ", "é", "", "٣"], False)
    assert allowed(["Berlin"], "in Berli", ["n", "n ", "ns", "n."]) == (["n", "ns"], True)
    assert allowed(["Berlin"], "inBerlin", pieces) == (pieces, True)
    assert allowed(["Berlin"], "", ["Berlin", "Berlin.", " Berlin ", "xBerlin "]) == (["Berlin", "xBerlin "], True)


def test_one_token_may_hold_a_whole_phrase():
    assert allowed(["b c"], "a", [" b c", " b c d", " b cd", "b c d"]) == ([" b c", " b cd", "b c d"], True)


def test_phrases_of_several_words_and_those_that_begin_again_within():
    assert allowed(["a a b"], "a a a", [" b", " b ", " c"]) == ([" b", " c"], True)
    assert allowed(["aab"], "aaab", [" "]) == ([" "], True)  # in the middle of a word it is no match
    assert allowed(["New York", "York"], "New York", ["er", " "]) == (["er"], False)


def test_a_phrase_with_marks_at_its_edges_needs_no_border_there():
    assert allowed(["%"], "50", ["%", "%x", "x"]) == (["x"], True)
    assert allowed(["e.g."], "e.g", [".", "a"]) == (["a"], True)
    assert allowed(["(x"], "a", ["(x", "(x ", "(xy"]) == (["(x", "(xy"], True)


def test_case_and_accents_count():
    assert allowed(["Café"], "", ["Cafe ", "café ", "Café "]) == (["Cafe ", "café "], True)
    assert within_word("\u0301")
    assert allowed(["cafe"], "cafe", ["\u0301 ", " "])[0] == ["\u0301 "]


def test_scripts_without_spaces_have_no_borders():
    assert allowed(["中国"], "在中", ["国", "国人", "文"]) == (["文"], True)
    assert allowed(["x"], "中x", ["国", "y"]) == (["y"], False)


def test_characters_split_over_tokens_are_read_whole():
    acute, ellipsis = "é".encode(), "…".encode()
    assert allowed(["x"], b"x", [acute[:1], ellipsis[:1], ellipsis[:2]])[0] == [acute[:1], ellipsis[:1]]
    assert allowed(["x"], b"x" + acute[:1], [acute[1:], "y", b"\xa9 x ", b"\xa9 x"])[0] == [acute[1:], b"\xa9 x"]
    assert allowed(["x"], b"x" + ellipsis[:2], [ellipsis[2:]])[0] == []
    assert allowed(["é"], acute[:1], [acute[1:], b"\xa9 ", b"\xa8 "])[0] == [acute[1:], b"\xa8 "]
    assert allowed(["é"], acute, [b"\xa9", " "]) == ([], False)  # a stray byte is no letter


def test_what_could_not_be_made_another_word_in_time_is_not_begun():
    assert allowed(["x"], "", ["x", "y"], left=1) == (["y"], True)
    assert allowed(["x"], "", ["x", "y"], left=2) == (["x", "y"], True)
    assert allowed(["x"], "", [b"x\xc3", b"y\xc3"], left=1)[0] == [b"y\xc3"]
    stuck = Watch((b"x", b" ", b""), ("x",))
    assert stuck.impossible(FRESH, 9).tolist() == []  # xx is another word
    stuck = Watch((b"x", b" ", b""), ("x", "xx", "xxx"))
    assert stuck.impossible(FRESH, 3).tolist() == [0]
    assert stuck.impossible(FRESH, 4).tolist() == []


def holds(text, phrase):
    """Whether a text holds a phrase as whole words, by looking at every place."""
    for at in range(len(text) - len(phrase) + 1):
        end = at + len(phrase)
        before = within_word(phrase[0]) and at > 0 and within_word(text[at - 1])
        behind = within_word(phrase[-1]) and end < len(text) and within_word(text[end])
        if text[at:end] == phrase and not before and not behind:
            return True
    return False


def written(tokens, surfaces):
    return b"".join(surfaces[token] for token in tokens).decode(errors="replace")


PIECES = ["a", "b", "ab", " a", " b", " ", "ba", "a b", "é", "aé", ".", "b.", "中", " é", "", "c"]


def vocabulary(random):
    split = [b"\xc3", b"\xa9", b"\xa9a", b"a\xc3"]
    pieces = [piece.encode() for piece in random.sample(PIECES, 11)] + random.sample(split, 2)
    return (b"", b"", *pieces)


@pytest.mark.parametrize("beam", range(1, 9))
def test_random_phrases_are_never_in_random_outputs(beam):
    random = Random(beam)
    banned_somewhere = 0
    for batch in range(5):
        surfaces = vocabulary(random)
        symbols = Symbols(0, 1, (0,), surfaces=surfaces)
        phrases = [
            tuple("".join(random.choices("ab é.", k=random.randint(1, 4))).strip() or "a" for _ in range(3))
            for _ in range(25)
        ]
        requests = [Request((7,) * random.randint(0, 9), banned=each, seed=batch) for each in phrases]
        noise = Noise(25, vocabulary=len(surfaces), seed=100 * beam + batch)
        config = DecodingConfig(beam=beam, nbest=beam, limit_ratio=1.0, limit_extra=0, sample=batch == 4)
        found = decode(noise, noise.begin(), requests, config, symbols)
        plain = decode(noise, noise.begin(), [Request(each.source) for each in requests], config, symbols)
        for each, other, request in zip(found, plain, requests, strict=True):
            texts = [written(hypothesis.tokens, surfaces) for hypothesis in each]
            assert not any(holds(text, phrase) for text in texts for phrase in request.banned)
            banned_somewhere += any(holds(written(other[0].tokens, surfaces), phrase) for phrase in request.banned)
    assert banned_somewhere > 9


def test_nothing_is_forbidden_but_what_would_hold_a_phrase():
    """A wide beam over a tiny vocabulary finds exactly those outputs of plain search that hold no banned phrase."""
    surfaces = (b"", b"", b"a", b"ab", b" b")
    symbols, noise = Symbols(0, 1, (0,), surfaces=surfaces), Noise(6, vocabulary=5, seed=1, sharpness=1.0)
    config = DecodingConfig(beam=64, nbest=64, limit_ratio=1.0, limit_extra=0, length_penalty=0.0)
    banned = [("a",), ("ab",), ("a b",), ("b", "ba"), ("ab b",), ("bab", "a")]
    requests = [Request((7, 7), banned=each) for each in banned]
    plain = decode(noise, noise.begin(), [Request(each.source) for each in requests], config, symbols)
    found = decode(noise, noise.begin(), requests, config, symbols)
    for each, every, phrases in zip(found, plain, banned, strict=True):
        expected = [h for h in every if not any(holds(written(h.tokens, surfaces), phrase) for phrase in phrases)]
        assert 0 < len(expected) < len(every)
        assert [h.tokens for h in each] == [h.tokens for h in expected]
        assert [h.score for h in each] == [h.score for h in expected]


def test_a_prefix_may_hold_what_is_banned_and_what_follows_may_not():
    surfaces = (b"", b"", b"a", b" ", b"b")
    noise = Noise(20, vocabulary=5, seed=3)
    requests = [Request((7,) * 8, prefix=(2, 3, 4), banned=("a",))] * 20
    config = DecodingConfig(beam=3, limit_ratio=1.0, limit_extra=0)
    for (best,) in decode(noise, noise.begin(), requests, config, Symbols(0, 1, (0,), surfaces=surfaces)):
        text = written(best.tokens, surfaces)
        assert text.startswith("a b")
        assert not holds(text[2:], "a")


def test_a_transformer_writes_nothing_that_is_banned():
    torch.manual_seed(1)
    random = Random(4)
    surfaces = (b"", b"", b"", *(random.choice(PIECES[:11]).encode() for _ in range(37)))
    config = TransformerConfig(dim=16, heads=2, hidden=32, encoder_layers=1, decoder_layers=1, longest=64)
    engine = Engine(Transformer(config, 40, 40).eval(), Symbols(1, 2, (0, 1), surfaces=surfaces))
    banned = [("a", "b"), ("ab", "ba"), ("a b",), (), ("é", "aé"), ("b.", "a"), ("abab",), ("b a",)]
    requests = [Request(tuple(random.choices(range(3, 40), k=4)), banned=each) for each in banned]
    found = engine.search(requests, DecodingConfig(limit_extra=4))
    plain = engine.search([Request(each.source) for each in requests], DecodingConfig(limit_extra=4))
    texts, others = ([written(each[0].tokens, surfaces) for each in answers] for answers in (found, plain))
    assert not any(holds(text, phrase) for text, phrases in zip(texts, banned, strict=True) for phrase in phrases)
    assert any(holds(text, phrase) for text, phrases in zip(others, banned, strict=True) for phrase in phrases)
    assert texts[3] == others[3]


def test_phrases_can_be_required_and_banned_at_once():
    surfaces = (b"", b"", b"a", b" ", b"b", b"c")
    noise = Noise(40, vocabulary=6, seed=5)
    requests = [Request((7,) * 9, required=((4, 5),), banned=("a", "c"))] * 40
    config = DecodingConfig(beam=4, limit_ratio=1.0, limit_extra=0)
    for (best,) in decode(noise, noise.begin(), requests, config, Symbols(0, 1, (0,), surfaces=surfaces)):
        text = written(best.tokens, surfaces)
        assert "bc" in text and not holds(text, "a") and not holds(text, "c")


@pytest.mark.parametrize(("surfaces", "phrase", "said"), [((), "a", "spell"), ((b"",) * 5, "  ", "empty")])
def test_phrases_that_cannot_be_banned_are_refused(surfaces, phrase, said):
    noise = Noise(1, vocabulary=5, seed=0)
    with pytest.raises(ConfigError, match=said):
        decode(
            noise,
            noise.begin(),
            [Request((7,), banned=(phrase,))],
            DecodingConfig(),
            Symbols(0, 1, (0,), surfaces=surfaces),
        )


def test_reading_a_whole_vocabulary_at_once_equals_reading_token_by_token():
    random = Random(9)
    pieces = [piece.encode() for piece in PIECES] + [b"\xc3", b"\xa9", b"\xe4\xb8", b"\xad a", b"b \xc3", b"\xff"]
    watch = Watch((*BYTES, *pieces), ("a", "ab", "é b", "b.", "中a", "a b a"))
    for _ in range(60):
        tokens = random.choices(range(256, 256 + len(pieces)), k=random.randint(0, 5))
        state, text = reduce(watch.after, tokens, FRESH), written(tokens, watch.surfaces)
        clean = not any(holds(text + "x", phrase) or holds(text + " ", phrase) for phrase in watch.phrases)
        forbidden = set(watch.impossible(state, 9).tolist())
        singly = {token for token in range(len(watch.surfaces)) if watch._after(state, token)[1]}
        assert singly <= forbidden
        if clean:
            for token in range(256, 256 + len(pieces)):
                whole = written([*tokens, token], watch.surfaces)
                assert (token in singly) == any(holds(whole + "x", phrase) for phrase in watch.phrases), whole
    assert np.issubdtype(watch.impossible(FRESH, 9).dtype, np.int64)


def test_where_a_character_leads_is_found_once(monkeypatch):
    found, real = [], Watch._found
    monkeypatch.setattr(Watch, "_found", lambda self, *asked: found.append(asked) or real(self, *asked))
    watch = Watch(BYTES, ("ab", "b c"))
    for _ in range(2):
        reduce(watch.after, b"abba b c cab, ab", FRESH)
    assert found and len(found) == len(set(found))
