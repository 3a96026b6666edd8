"""A model that is broken on purpose fails, and the table says by which check."""

import shutil

import pytest
import torch

from headway.proof import CHECKS, Subject, look, prove
from headway.translator import load


@pytest.fixture(scope="module")
def translator(model_folder):
    """A tiny model that was never trained, with weights large enough to tell its tokens apart."""
    made = load(model_folder)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in made.model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return made


def test_a_sound_model_passes_every_check(translator):
    proof = prove(translator, sentences=8)
    assert proof.failed == []
    assert {name: finding.passed for name, finding in proof.findings.items()} == {
        name: None if name == "folder" else True for name in CHECKS
    }


def test_a_broken_model_fails_the_check_that_looks_there(translator, broken):
    finding = look(broken, Subject.of(translator, count=8))
    assert finding.passed is False, finding


@pytest.mark.parametrize("broken", ["causal_mask_leaks", "rows_ignore_their_parents"], indirect=True)
def test_a_broken_model_is_told_by_the_command_and_the_check_is_named(broken, model_folder, headway):
    outcome = headway("prove", model_folder, "--sentences", 3, "--device", "cpu")
    assert outcome.code == 1
    assert any(line.split()[:2] == ["FAIL", broken] for line in outcome.out.splitlines()), outcome.out
    assert broken in outcome.err.splitlines()[-1].rpartition("failed: ")[2].split(", ")


def test_a_flipped_bit_fails_the_folder_and_nothing_else_is_run(model_folder, tmp_path, headway):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-9] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    outcome = headway("prove", folder, "--device", "cpu")
    assert outcome.code == 1
    rows = [line.split() for line in outcome.out.splitlines()]
    assert rows[0][:2] == ["FAIL", "folder"]
    assert "model.safetensors" in outcome.out
    assert all(row[:2] == ["not", "run"] for row in rows[2:])


def test_a_weight_that_is_not_a_number_fails_the_weights(model_folder, tmp_path):
    made = load(model_folder)
    with torch.no_grad():
        made.model.output.bias[3] = torch.nan
    made.save(tmp_path / "model")
    proof = prove(tmp_path / "model")
    assert proof.failed == ["weights"]
    assert "output.bias" in proof.findings["weights"].figure
    assert proof.findings["cache"].passed is None
