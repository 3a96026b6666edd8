import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from headway.inspection.page import FINE_CELLS, encode

HOSTILE = (
    "</script><img src=x onerror=document.body.dataset.hacked=1>",
    "<!--<script>",
    "&lt;b&gt;",
    "\u2028\u2029",
    "$policy",
    "\\u003c",
    '"',
)


class Elements(HTMLParser):
    """Every element a browser would see, with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def content(page: str, opening: str, closing: str) -> str:
    return page.split(opening, 1)[1].split(closing, 1)[0]


def data_of(page: str) -> dict:
    return json.loads(content(page, '<script type="application/json" id="data">', "</script>"))


def decoded(text: str, levels: int) -> np.ndarray:
    codes = np.frombuffer(base64.b64decode(text), dtype="<u2" if levels > 255 else "u1")
    return (codes / levels) ** 2


def test_the_weights_on_the_page_are_the_models(make_attention):
    attention = make_attention(layers=3, heads=2)
    data = data_of(attention.html())
    assert data["levels"] == 65535
    for kind in ("encoder", "decoder", "cross"):
        written, weights = data["kinds"][kind], attention.weights(kind)
        assert (len(written["queries"]), len(written["keys"])) == weights.shape[2:]
        for layer, head in np.ndindex(*weights.shape[:2]):
            shown = decoded(written["weights"][layer][head], 65535).reshape(weights.shape[2:])
            np.testing.assert_allclose(shown, weights[layer, head], atol=2e-5)


def test_eight_bits_keep_small_weights_apart():
    weights = np.array([1 / 512, 0.0, 0.5, 1.0]).reshape(1, 1, 1, 4)
    shown = decoded(encode(weights, 255)[0][0], 255)
    assert shown[0] == pytest.approx(1 / 512, rel=0.05)
    np.testing.assert_allclose(shown, weights.ravel(), atol=0.004)


def test_weights_that_are_not_numbers_are_shown_as_nothing():
    assert decoded(encode(np.array([[[[np.nan, 1.0]]]]), 65535)[0][0], 65535).tolist() == [0.0, 1.0]


def test_a_page_of_sixty_tokens_stays_below_three_megabytes(make_attention):
    tokens = tuple(f"token{index}" for index in range(60))
    assert len(make_attention(tokens, tokens, layers=6, heads=8).html()) < 3_000_000


def test_a_page_of_many_weights_spends_one_byte_on_each(make_attention):
    tokens = ("token",) * 300
    attention = make_attention(tokens, tokens, layers=2, heads=2)
    assert attention.cross.size * 3 > FINE_CELLS
    assert data_of(attention.html())["levels"] == 255


def test_hostile_tokens_stay_text(make_attention):
    attention = make_attention(source=HOSTILE, written=HOSTILE, translation=HOSTILE[0], sentence=HOSTILE[1])
    page, harmless = attention.html(), make_attention().html()
    assert [tag for tag, _ in Elements(page).tags] == [tag for tag, _ in Elements(harmless).tags]
    data = data_of(page)
    assert tuple(data["kinds"]["cross"]["keys"]) == HOSTILE
    assert (data["translation"], data["sentence"]) == (HOSTILE[0], HOSTILE[1])
    embedded = content(page, 'id="data">', "</script>")
    assert embedded.isascii()
    assert not set("<>&") & set(embedded)


def test_half_a_character_does_not_break_the_page(make_attention):
    attention = make_attention(source=("\ud83d", "⏎"))
    attention.html().encode("utf-8")
    assert data_of(attention.html())["kinds"]["cross"]["keys"][0] == "\ud83d"


def test_the_page_refers_to_nothing_outside_itself(make_attention):
    page = make_attention().html()
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    for _, attributes in Elements(page).tags:
        assert not {"src", "href", "style", "onclick", "onload"} & set(attributes)


def test_the_policy_allows_exactly_the_pages_own_style_and_script(make_attention):
    page = make_attention().html()
    policy = content(page, 'http-equiv="Content-Security-Policy" content="', '"')
    style, script = content(page, "<style>", "</style>"), content(page, "<script>", "</script>")

    def fingerprint(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{fingerprint(style)}'",
        f"script-src 'sha256-{fingerprint(script)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_the_script_never_parses_text_as_markup(make_attention):
    script = content(make_attention().html(), "<script>", "</script>")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)


def test_the_heading_joins_the_pieces_when_no_text_is_given(make_attention):
    assert data_of(make_attention().html())["sentence"] == "the black cat sleeps⏎"
    assert data_of(make_attention(source=("a", "b")).html())["sentence"] == "a b"
    assert data_of(make_attention(sentence="As written.").html())["sentence"] == "As written."


def test_a_kind_the_model_lacks_is_not_on_the_page(make_attention):
    attention = make_attention()
    page = replace(attention, encoder=attention.encoder[:0]).html()
    assert list(data_of(page)["kinds"]) == ["decoder", "cross"]
