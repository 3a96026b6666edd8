"""Proofs inside somebody else's test run."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def run(tmp_path):
    """Runs pytest in a folder of its own, with our plugin and none of our settings."""

    def pytest_in(*arguments, test="", plugin=True):
        if test:
            (tmp_path / "test_mine.py").write_text(test)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        named = ["-p", "headway.pytest_plugin"] if plugin else []
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *named, *map(str, arguments)]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        return ended.returncode, ended.stdout + ended.stderr

    return pytest_in


def test_a_model_named_on_the_command_line_gets_a_test_for_every_check(run, model_folder, tmp_path):
    (tmp_path / "text").write_text("le chat\nun chien\n")
    code, out = run("--headway-model", model_folder, "--headway-text", tmp_path / "text", "-v", "-k", "not batch")
    assert code == 0, out
    assert "headway::look-ahead PASSED" in out
    assert "12 passed, 1 deselected" in out


def test_a_model_that_is_damaged_fails_in_a_line_or_two(run, model_folder, tmp_path):
    import shutil

    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "config.json").write_text("{}")
    code, out = run("--headway-model", folder, "-k", "folder or cache")
    assert code == 1
    assert "config.json: 2 bytes, should be" in out
    assert "2 failed" in out
    assert "Traceback" not in out and ".py:" not in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--headway-model", "nowhere"], "no such folder"), (["--headway-text", "x"], "give --headway-model too"),
     (["--headway-model", "{model}", "--headway-text", "nowhere"], "nowhere: no such file")],
)  # fmt: skip
def test_a_mistake_is_one_line(run, model_folder, arguments, told):
    code, out = run(*(argument.format(model=model_folder) for argument in arguments))
    assert code == 4
    assert told in out
    assert "Traceback" not in out and "INTERNALERROR" not in out


def test_the_fixture_proves_a_model_in_a_test_and_fails_it_with_the_table(run, model_folder):
    test = f"""
import headway, pytest

def test_sound(prove_headway):
    assert prove_headway({str(model_folder)!r}, ["le chat"], sentences=1).passed

def test_broken(prove_headway, monkeypatch):
    from headway.nn.attention import GrowingPast
    monkeypatch.setattr(GrowingPast, "held", lambda self: None)
    prove_headway(headway.load({str(model_folder)!r}), sentences=1)
"""
    code, out = run(test=test)
    assert code == 1
    assert "1 failed, 1 passed" in out
    assert "FAIL     cache" in out
    assert "failed: cache" in out


def test_where_no_model_is_named_nothing_is_imported(run):
    test = """
import sys

def test_light():
    assert "headway.pytest_plugin" in sys.modules
    assert not [name for name in sys.modules if name in ("torch", "numpy", "headway.proof", "headway.translator")]
"""
    assert run(test=test)[0] == 0
