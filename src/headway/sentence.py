"""A sentence to be translated with what is asked of its output, in text and in the tokens of a model."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headway.data.tokenizer import _BYTES, JsonTokenizer, Tokenizer
from headway.errors import ConfigError


@dataclass(frozen=True)
class Sentence:
    """A source, and what holds for it alone."""

    text: str
    tags: Sequence[str] = ()
    """Put before the source, after those that hold for all."""
    prefix: str = ""
    """How the output must begin."""
    required: Sequence[str] = ()
    """Phrases the output must hold."""
    banned: Sequence[str] = ()
    """Words or phrases the output must not hold."""

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str):
            raise ConfigError(f"prefix: {self.prefix!r} is not a text; give one or leave it out")
        for name in ("tags", "required", "banned"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise ConfigError(f"{name}: {given!r} is not a list of texts; give a list, as in [{'...'!r}]")
            given = tuple(given)
            wrong = [each for each in given if not isinstance(each, str)]
            if wrong:
                raise ConfigError(f"{name}: {wrong[0]!r} is not a text; give texts alone")
            if not all(each.strip() for each in given):
                raise ConfigError(f"{name}: an empty text; give words or leave it out")
            object.__setattr__(self, name, given)

    def asked(self, common: "Sentence") -> "Sentence":
        """This sentence with what is asked of all added."""
        return Sentence(
            self.text,
            (*common.tags, *self.tags),
            self.prefix or common.prefix,
            (*common.required, *self.required),
            (*common.banned, *self.banned),
        )


def prefix_tokens(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """The tokens an output that begins with `text` begins with; blanks at its end are left to the model."""
    return _known(tokenizer, tokenizer.encode([text.rstrip()])[0], "prefix", text) if text.strip() else ()


def phrase_tokens(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """The tokens of a phrase as it stands inside a sentence."""
    (before, whole) = tokenizer.encode(["x", f"x {text.strip()}"])
    tokens = whole[len(before) :] if whole[: len(before)] == before else tokenizer.encode([text.strip()])[0]
    while len(tokens) > 1 and not tokenizer.spelling(tokens[0]).strip():
        tokens = tokens[1:]  # a blank that is a token of its own does not stand at the beginning of an output
    return _known(tokenizer, tokens, "required", text)


def _known(tokenizer: Tokenizer, tokens: list[int], name: str, text: str) -> tuple[int, ...]:
    if tokenizer.unknown in tokens:
        raise ConfigError(f"{name} {text!r}: holds what the vocabulary of this model cannot write; use other words")
    return tuple(tokens)


def seed_of(seed: int, source: Sequence[int]) -> int:
    """Where the random numbers of a source start: the same in every process, whatever stands beside it."""
    content = np.array([seed, *source], dtype="<u8").tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def surfaces(tokenizer: Tokenizer) -> tuple[bytes, ...]:
    """The bytes that every token, by id, adds to a text that has begun; none for control symbols."""
    silent = {tokenizer.padding, tokenizer.start, tokenizer.end, tokenizer.unknown, *tokenizer.tags.values()}
    anchor = next(token for token in range(tokenizer.size) if token not in silent and tokenizer.decode([token]).strip())
    before = tokenizer.decode([anchor])
    return tuple(
        b"" if token in silent else _surface(tokenizer, token, anchor, before) for token in range(tokenizer.size)
    )


def _surface(tokenizer: Tokenizer, token: int, anchor: int, before: str) -> bytes:
    if isinstance(tokenizer, JsonTokenizer) and tokenizer.byte_level:
        letters = tokenizer.backend.id_to_token(token) or ""
        if all(letter in _BYTES for letter in letters):
            return bytes(_BYTES[letter] for letter in letters)
    byte = re.fullmatch("<0x([0-9A-F]{2})>", tokenizer.spelling(token))
    if byte:
        return bytes.fromhex(byte[1])
    both = tokenizer.decode([anchor, token])
    return (both[len(before) :] if both.startswith(before) else tokenizer.decode([token])).encode()


def spellings(tokenizer: Tokenizer, phrase: str) -> tuple[str, ...]:
    """The forms in which an output may spell a phrase: as given, composed, decomposed, and as the tokenizer has it."""
    forms = (phrase, *(unicodedata.normalize(form, phrase) for form in ("NFC", "NFD")))
    return (*forms, tokenizer.decode(tokenizer.encode([phrase])[0]).strip() or phrase)
