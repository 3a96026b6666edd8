"""Checks of what is stored: the folder, its weights, and the tokenizers."""

import re
import unicodedata
from collections.abc import Sequence

from headway.data.tokenizer import Tokenizer
from headway.errors import FolderError
from headway.folders import verify_folder
from headway.proof.finding import Finding
from headway.proof.subject import Subject, ordinary
from headway.training.checkpoint import parameters, read_tensors


def folder(subject: Subject) -> Finding:
    """Every file has the size and the sha256 of the manifest."""
    told = "every file and its sha256 in the manifest"
    if subject.folder is None:
        return Finding(told, "the model is not in a folder", None)
    try:
        files = verify_folder(subject.folder)["files"]
    except FolderError as error:
        return Finding(told, str(error), False)
    return Finding(told, f"{len(files)} files as sealed", True, float(len(files)))


def weights(subject: Subject) -> Finding:
    """Every weight is a finite number."""
    path = None if subject.folder is None else subject.folder / "model.safetensors"
    held = parameters(subject.model) if path is None else read_tensors(path)
    wrong = [name for name, weight in held.items() if not weight.isfinite().all()]
    count = sum(weight.numel() for weight in held.values())
    figure = f"{len(wrong)} tensors are not, {wrong[0]} first" if wrong else f"all {count:,}"
    return Finding("weights that are finite numbers", figure, not wrong, float(len(wrong)))


def tokenizer(subject: Subject) -> Finding:
    """Text that became tokens becomes the same text again, but for spaces, capitals and compatibility forms."""
    source, target = subject.translator.source, subject.translator.target
    sides = [(source, [*subject.lines, *spelled(source)])]
    if target is not source:
        sides.append((target, spelled(target)))
    found = [losses(own, texts) for own, texts in sides]
    lost, unknown = (sum(counts) for counts in zip(*found, strict=True))
    strange = f", {unknown} with unknown words" if unknown else ""
    figure = f"{lost} of {sum(len(texts) for _, texts in sides):,} come back otherwise{strange}"
    return Finding("sentences and the vocabulary, encoded and decoded again", figure, not lost, float(lost))


def losses(own: Tokenizer, texts: Sequence[str]) -> tuple[int, int]:
    """How many texts lose something, and how many hold what the vocabulary has no word for."""
    lost = unknown = 0
    for text, ids in zip(texts, own.encode(texts), strict=True):
        if own.unknown in ids:
            unknown += 1
        elif essence(own.decode(ids)) != essence(text):
            lost += 1
    return lost, unknown


def spelled(own: Tokenizer) -> list[str]:
    """What the tokens of a vocabulary spell, but for those that are part of a character."""
    texts = (own.decode([token]) for token in ordinary(own))
    return [text for text in texts if "\ufffd" not in text]


def essence(text: str) -> str:
    """A text without what a tokenizer may normalise."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text).casefold())
