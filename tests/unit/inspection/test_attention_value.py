import html
import re
from dataclasses import replace

import numpy as np
import pytest

from headway.errors import ConfigError
from headway.objectives import GuidedHead


def test_the_alignment_is_the_strongest_source_position_of_the_last_two_layers_or_of_the_guided_head(make_attention):
    attention = make_attention(source=("a", "b", "c"), written=("x", "y"), layers=3, heads=2)
    cross = np.zeros((3, 2, 2, 3), dtype=np.float32)
    cross[0, :, :, 0] = 1.0  # the first layer must not count
    cross[1, 0] = [[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]]
    cross[2, 1] = [[0.0, 0.9, 0.1], [0.5, 0.5, 0.0]]
    assert replace(attention, cross=cross).alignment() == [(1, 0), (2, 1)]
    assert replace(attention, cross=cross, guided=GuidedHead(layer=1)).alignment() == [(0, 0), (2, 1)]


def test_a_model_without_cross_attention_has_no_alignment(make_attention):
    attention = make_attention()
    alone = replace(attention, cross=np.zeros((0, 0, 5, 6), dtype=np.float32))
    assert alone.alignment() == []
    assert alone.kinds() == ("encoder", "decoder")


def test_encoder_and_decoder_may_differ_in_layers_and_heads(make_attention):
    deep, shallow = make_attention(layers=4, heads=2), make_attention(layers=1, heads=3)
    assert replace(shallow, encoder=deep.encoder).encoder.shape[:2] == (4, 2)


def test_weights_that_do_not_belong_to_the_tokens_are_refused(make_attention):
    attention = make_attention()
    with pytest.raises(ValueError, match=r"encoder weights are \(2, 3, 6, 6\)"):
        replace(attention, source=attention.source[:-1])
    with pytest.raises(ValueError, match="5 tokens read but 4 predicted"):
        replace(attention, target_out=attention.target_out[:-1])


def test_attention_without_any_weight_is_refused(make_attention):
    attention = make_attention()
    with pytest.raises(ValueError, match="no layer"):
        replace(attention, encoder=attention.encoder[:0], decoder=attention.decoder[:0], cross=attention.cross[:0])


@pytest.mark.parametrize("name", ["picture.gif", "page", "page.htm"])
def test_an_unknown_suffix_is_refused_with_the_three_that_are_known(make_attention, tmp_path, name):
    with pytest.raises(ConfigError, match=r"use \.html, \.png or \.svg$"):
        make_attention().save(tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("suffix", ["html", "png", "svg"])
def test_a_place_that_cannot_be_written_is_named_in_one_line(make_attention, tmp_path, suffix):
    path = tmp_path / "missing" / f"attention.{suffix}"
    with pytest.raises(ConfigError) as caught:
        make_attention().save(path)
    assert str(caught.value) == f"{path}: its folder does not exist; create it, or choose another --out"


def test_the_saved_page_is_the_page(make_attention, tmp_path):
    attention = make_attention()
    attention.save(tmp_path / "attention.HTML")
    assert (tmp_path / "attention.HTML").read_text(encoding="utf-8") == attention.html()


def test_a_notebook_shows_the_page_in_a_sandboxed_frame_of_its_own(make_attention):
    attention = make_attention(source=('"><script>alert(1)</script>', "⏎"))
    frame = attention._repr_html_()
    inside = re.fullmatch(r'<iframe [^>]*sandbox="allow-scripts"[^>]*srcdoc="([^"]*)"></iframe>', frame)
    assert inside is not None
    assert html.unescape(inside[1]) == attention.html()
