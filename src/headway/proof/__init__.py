"""Proof that a model computes what it should: every answer the same by another way."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from headway.errors import FolderError
from headway.proof.checks import CHECKS, look
from headway.proof.finding import TOLERANCE, Finding, Proof
from headway.proof.subject import Subject
from headway.translator import Translator

__all__ = ["CHECKS", "TOLERANCE", "Finding", "Proof", "Subject", "look", "prove"]


def prove(
    model: str | Path | Translator,
    texts: Sequence[str] = (),
    *,
    sentences: int = 32,
    device: str | torch.device = "cpu",
    progress: Callable[[str, int, int], None] | None = None,
) -> Proof:
    """Run every check on a model or run folder, or on a translator.

    The sentences are the first ones of `texts` that are not blank, or made from the vocabulary. A folder that is not
    ours is a `FolderError`; one that is damaged fails its check, and what can then not be loaded is not run.
    `progress` is told the name of every check, how many came before it, and how many there are.
    """
    began, subject = time.monotonic(), Subject.of(model, texts, count=sentences, device=device)
    findings: dict[str, Finding] = {}
    for number, name in enumerate(CHECKS):
        if progress is not None:
            progress(name, number, len(CHECKS))
        try:
            findings[name] = look(name, subject)
        except FolderError:
            if all(finding.passed is not False for finding in findings.values()):
                raise
            findings[name] = Finding("", "the model cannot be loaded", None)
    shown = str(model) if not isinstance(model, Translator) else "the model"
    try:
        used = len(subject.sentences)
    except FolderError:  # a check has told it
        used = 0
    return Proof(shown, used, time.monotonic() - began, findings)
