import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape

import pytest

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: the page is not opened in a browser"
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
)


def opened(page: str, folder) -> str:
    """The document after its script ran; anything the browser's console reports fails the test."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert not [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return result.stdout


def with_script(page: str, script: str) -> str:
    """The page with one more script, let in through its policy by hash like the page's own."""
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{fingerprint}' ", 1)
    return page.replace("</body>", f"<script>{script}</script></body>", 1)


def reported(page: str, script: str, folder) -> dict:
    """What the script leaves in `report`, after the page has started."""
    body = f"const report = {{}}; {script} document.body.dataset.report = JSON.stringify(report);"
    document = opened(with_script(page, body), folder)
    found = re.search(r'<body[^>]*data-report="([^"]*)"', document)
    assert found, document[-500:]
    return json.loads(unescape(found[1]))


def test_the_page_starts_under_its_own_policy_with_a_map_for_every_layer_and_head(make_attention, tmp_path):
    document = opened(make_attention(layers=2, heads=3).html(), tmp_path)
    assert 'data-ready="yes"' in document
    assert len(re.findall(r'role="radio"', document)) == 2 * (3 + 1)  # the mean of heads beside the heads


KEYS = """
const press = (key, target = document.body) =>
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const chosen = () => document.querySelector("#overview [aria-checked=true]").getAttribute("aria-label");
const matrix = document.getElementById("matrix");
report.first = chosen();
press("["); press("."); report.stepped = chosen();
press("1"); report.kind = document.querySelector("input[name=kind]:checked").value;
press("3"); matrix.focus();
report.focused = document.activeElement.id;
for (let index = 0; index < 9; index++) { press("ArrowLeft", matrix); press("ArrowUp", matrix); }
press("ArrowDown", matrix); press("ArrowRight", matrix); press("ArrowRight", matrix);
report.reading = document.getElementById("reading").textContent;
"""


def test_the_keyboard_reaches_every_layer_head_kind_and_cell(make_attention, tmp_path):
    attention = make_attention(layers=2, heads=3)
    report = reported(attention.html(), KEYS, tmp_path)
    assert report["first"] == "layer 2, mean of heads"
    assert report["stepped"] == "layer 1, head 1"
    assert report["kind"] == "encoder"
    assert report["focused"] == "matrix"
    weight = attention.cross[0, 0, 1, 2]
    assert report["reading"] == f"▁chat → ▁cat: {weight:.3f}layer 1, head 1, after reading ‘▁le’"


LINES = """
document.querySelector("input[value=lines]").click();
const tokens = (side) => Array.from(document.getElementById(side).children);
report.keys = tokens("keys").map((button) => button.querySelector("bdi").textContent);
tokens("queries")[0].click();
report.pressed = document.querySelectorAll("[aria-pressed=true]").length;
report.shown = tokens("keys").map((button) => button.dataset.shown ?? null);
report.images = document.images.length;
report.sentence = document.getElementById("sentence").textContent;
report.hacked = document.body.dataset.hacked ?? null;
"""


def test_a_clicked_token_shows_its_weights_and_hostile_tokens_stay_text(make_attention, tmp_path):
    hostile = ("</script><img src=x onerror=document.body.dataset.hacked=1>", "<b>bold</b>", "⏎")
    attention = make_attention(source=hostile, written=("a", "b"), layers=1, heads=1)
    report = reported(attention.html(), LINES, tmp_path)
    assert tuple(report["keys"]) == hostile
    assert report["sentence"] == " ".join(hostile)
    assert (report["images"], report["hacked"]) == (0, None)
    assert report["pressed"] == 1
    expected = [f"{weight:.2f}" if weight >= 0.005 else None for weight in attention.cross[0, 0, 0]]
    assert report["shown"] == expected


def test_a_page_of_five_hundred_tokens_starts(make_attention, tmp_path):
    tokens = tuple(f"token{index}" for index in range(512))
    assert 'data-ready="yes"' in opened(make_attention(tokens, tokens, layers=1, heads=1).html(), tmp_path)
