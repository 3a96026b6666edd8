import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from headway.errors import ConfigError
from headway.inspection import draw_attention, draw_positions, pictures


def png_pixels(path) -> bytes:
    """Check every chunk of a PNG file and return its raw image data."""
    data, position, pixels = path.read_bytes(), 8, b""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position : position + 8])
        body = data[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack(">I", data[position + 8 + length : position + 12 + length])
        assert zlib.crc32(kind + body) == checksum
        if kind == b"IDAT":
            pixels += body
        position += 12 + length
    return zlib.decompress(pixels)


def test_a_png_of_attention_is_a_picture_of_many_colours(make_attention, tmp_path):
    make_attention().save(tmp_path / "attention.png")
    pixels = png_pixels(tmp_path / "attention.png")
    assert len(set(zip(pixels[::4], pixels[1::4], pixels[2::4], strict=False))) > 50


def test_an_svg_of_attention_shows_one_map_for_every_layer_and_head_and_the_mean(make_attention, tmp_path):
    make_attention(layers=2, heads=3).save(tmp_path / "attention.svg")
    root = ElementTree.parse(tmp_path / "attention.svg").getroot()
    images = root.findall(".//{http://www.w3.org/2000/svg}image")
    assert len(images) == 1 + 2 * 3 + 1  # the mean, every head, the colour bar


@pytest.mark.parametrize(("layers", "heads", "inches"), [(2, 3, 1.0), (2, 16, 1.0), (6, 8, 0.4)])
def test_many_heads_make_the_picture_wider_and_not_their_maps_too_small_to_see(
    layers, heads, inches, make_attention, tmp_path, monkeypatch
):
    drawn = []
    monkeypatch.setattr(pictures, "write", lambda figure, path, overwrite: drawn.append(figure))
    draw_attention(make_attention(layers=layers, heads=heads), tmp_path / "attention.png")
    (figure,) = drawn
    figure.draw_without_rendering()  # lays it out
    small = [axes for axes in figure.axes if axes.images and not len(axes.get_xticks())]
    assert len(small) == layers * heads
    assert min(axes.get_window_extent().width for axes in small) / figure.dpi >= inches


def test_different_weights_make_different_pictures(make_attention, tmp_path):
    for seed in (0, 1):
        draw_attention(make_attention(seed=seed), tmp_path / f"{seed}.png", "encoder")
    assert png_pixels(tmp_path / "0.png") != png_pixels(tmp_path / "1.png")


def test_tokens_of_any_script_are_drawn_without_a_warning(make_attention, tmp_path):
    tokens = ("猫", "नमस्ते", "مرحبا", "$x$", "$", "\n", " ", "", "\ud83d", "🦊", "x" * 80, "⏎")
    for suffix in ("png", "svg"):  # a warning is an error in these tests
        make_attention(tokens, tokens).save(tmp_path / f"tokens.{suffix}")


def test_a_sentence_with_too_many_tokens_to_label_is_drawn(make_attention, tmp_path):
    tokens = tuple(f"token{index}" for index in range(110))
    make_attention(tokens, tokens, layers=1, heads=1).save(tmp_path / "long.png")
    png_pixels(tmp_path / "long.png")


def test_a_kind_the_model_lacks_is_refused_and_the_others_named(make_attention, tmp_path):
    attention = make_attention()
    alone = replace(attention, cross=attention.cross[:0])
    with pytest.raises(ConfigError, match="no cross attention; choose encoder or decoder"):
        draw_attention(alone, tmp_path / "cross.png")
    alone.save(tmp_path / "decoder.png")  # falls back on what there is
    assert (tmp_path / "decoder.png").exists()


def test_positions_are_drawn_with_their_likeness(tmp_path):
    table = np.sin(np.arange(40)[:, None] / 10.0 ** (np.arange(16) / 4))
    draw_positions(table, tmp_path / "positions.svg", "positions at $5 a piece, $6 a pair")
    root = ElementTree.parse(tmp_path / "positions.svg").getroot()
    assert len(root.findall(".//{http://www.w3.org/2000/svg}image")) == 4  # two maps, two colour bars
    assert "positions at $5 a piece, $6 a pair" in (tmp_path / "positions.svg").read_text()  # texts stay beside shapes


@pytest.mark.parametrize(("size", "shown"), [(5.0, 12), (2.5, 6), (1.25, 3)])
def test_labels_are_left_out_where_they_would_overlap(size, shown):
    axes = pictures.new_figure(4.0, 4.0).subplots()
    tokens = tuple(f"token{index}" for index in range(12))
    pictures.label(axes, tokens, tokens[:6], size)
    assert [each.get_text() for each in axes.get_yticklabels()] == list(tokens[:: 12 // shown])
    assert {each.get_fontsize() for each in axes.get_yticklabels()} == {max(size, 5.0)}


def test_positions_of_nothing_but_zeros_are_drawn(tmp_path):
    draw_positions(np.zeros((3, 4)), tmp_path / "zeros.png", "zeros")
    png_pixels(tmp_path / "zeros.png")


def test_a_picture_of_another_format_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"use \.png or \.svg$"):
        draw_positions(np.zeros((3, 4)), tmp_path / "positions.pdf", "zeros")


def test_without_matplotlib_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"^pictures need matplotlib; pip install 'headway\[plots\]'$"):
        draw_positions(np.zeros((3, 4)), tmp_path / "positions.png", "zeros")


def test_matplotlib_is_imported_only_for_a_picture_and_pyplot_never(tmp_path):
    program = (
        "import sys, pathlib, numpy, headway.inspection as inspection\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"inspection.draw_positions(numpy.eye(3), pathlib.Path({str(tmp_path / 'eye.png')!r}), 'eye')\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
