"""Text to token ids and back: byte-level BPE, characters, words, or an existing tokenizer."""

import hashlib
import json
import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, SupportsInt

import tokenizers
from pydantic import Field
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from headway.config import Settings
from headway.data.components import check_pieces, checked
from headway.data.text import explained, refuse_streams
from headway.disk import write_bytes
from headway.errors import ConfigError, DataError

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
"""The symbols of a tokenizer we train; their places are their ids."""

TAG = "<tag:{}>"
"""How the symbol of a tag is written in a vocabulary."""

LARGEST_FILE = 64 * 2**20
"""More bytes than any vocabulary needs; a larger file is refused before it is parsed."""

LONGEST_WORD = 1000
"""Characters without a blank, or blanks, that are learnt from as one word: learning takes the square of that."""

MOST_WORDS = 100_000
"""Different words that subwords are learnt from; each takes about a kilobyte."""
REPEATED = 100
"""Times a word stands in one text where it is repeated."""

_WORD = re.compile(" +[^ ]+| +$")
_LONG = re.compile(rf"(\S{{{LONGEST_WORD}}})|\S++|(\s{{1,{LONGEST_WORD}}})\s*+")
_TAGGED = re.compile(re.escape(TAG).replace(r"\{\}", "(.+)"))
_NAMES = {
    "padding": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>"),
    "start": ("<s>", "[CLS]", "<bos>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>"),
    "end": ("</s>", "[SEP]", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]", "<UNK>", "<|unk|>"),
}


TokenizerKind = Literal["bpe", "characters", "words"]


class TokenizerConfig(Settings):
    """How text becomes tokens."""

    kind: TokenizerKind = "bpe"
    """bpe: byte-level subwords, nothing is unknown; characters: one token each; words: split at whitespace."""
    vocabulary: int | None = Field(default=None, ge=len(SPECIALS) + 1, le=1 << 24)
    """Most tokens to learn; unset: chosen from the size of the corpus."""
    joint: bool = True
    """One tokenizer for both sides rather than one each."""
    file: Path | None = None
    """An existing tokenizer.json, or a sentencepiece .model, to use instead of learning one."""
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Probability of leaving out a merge while training (BPE-dropout, Provilkov et al. 2020)."""


class Tokenizer(ABC):
    """A vocabulary with its control symbols; text never yields a control symbol, whatever it spells."""

    file_name: ClassVar[str]
    """What the saved file is called in a model folder."""

    def __init__(self, size: int, specials: dict[str, int], tags: dict[str, int] | None = None) -> None:
        self.size = size
        self.tags = tags or {}
        """Symbols that may stand before a source, by name."""
        self.padding = specials["padding"]
        self.start = specials["start"]
        self.end = specials["end"]
        self.unknown = specials["unknown"]
        self._controls = frozenset((self.padding, self.start, self.end, *self.tags.values())) - {self.unknown}
        self._silent = self._controls | {self.unknown}

    @staticmethod
    def train(texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = ()) -> "JsonTokenizer":
        """Learn a vocabulary with these tags; the same texts give the same one, whatever the number of threads."""
        return JsonTokenizer(_trained(texts, config, [*SPECIALS, *map(TAG.format, tags)]))

    @staticmethod
    def load(path: Path) -> "Tokenizer":
        """Read a `tokenizer.json` or a sentencepiece `.model`."""
        content = _content(path)
        return _sentencepiece(content, path) if path.suffix == ".model" else _json(content, path)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every text, with no control symbol among them: a text that spells one as a word gets unknown."""
        try:
            with _blamed("tokenizer: cannot encode"):
                encoded = self._encode(texts)
        except DataError:
            _refuse_surrogates(texts)  # the likelier cause
            raise
        for place, ids in enumerate(encoded):
            if not self._controls.isdisjoint(ids):
                encoded[place] = [self.unknown if token in self._controls else token for token in ids]
        return encoded

    def tagged(self, tags: Iterable[str]) -> list[int]:
        """The ids of tags; one that is not known is a `ConfigError`."""
        for tag in tags:
            if tag not in self.tags:
                known = f"it knows {', '.join(self.tags)}" if self.tags else "it knows none"
                raise ConfigError(f"tag {tag!r}: not a tag of this tokenizer; {known}")
        return [self.tags[tag] for tag in tags]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """The text of the ids; control symbols and unknowns are skipped."""
        with _blamed("tokenizer: cannot decode"):
            return self._decode([token for token in map(int, ids) if token not in self._silent])

    def save(self, path: Path) -> None:
        """Write what `load` reads."""
        write_bytes(path, self.to_bytes())

    def fingerprint(self) -> str:
        """The sha256 of the saved file: equal for tokenizers that encode alike."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @abstractmethod
    def pieces(self, text: str) -> list[tuple[int, str]]:
        """Every id with the stretch of `text` it stands for; part of a character shows as its bytes, as in `‹F0›`."""

    @abstractmethod
    def spelling(self, token: int) -> str:
        """What one id spells, with the blank a word begins with where the vocabulary keeps it."""

    @abstractmethod
    def words(self) -> dict[str, int]:
        """The tokens that spell a whole word or its beginning, by that spelling."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """The content of the saved file."""

    @abstractmethod
    def _encode(self, texts: Sequence[str]) -> list[list[int]]: ...

    @abstractmethod
    def _decode(self, ids: list[int]) -> str: ...


class JsonTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library, kept as `tokenizer.json`."""

    file_name = "tokenizer.json"

    def __init__(self, backend: Any, where: str = "tokenizer") -> None:
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = True  # not kept in the file: must be said again after every load
        if getattr(backend.model, "dropout", None) is not None:
            backend.model.dropout = None  # a foreign file must not make decoding random
        vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values(), default=-1) + 1
        if size > 2 * len(vocabulary):
            raise DataError(f"{where}: ids up to {size - 1} for {len(vocabulary)} tokens; the file is damaged")
        found = {role: [vocabulary[name] for name in names if name in vocabulary] for role, names in _NAMES.items()}
        found["padding"] = found["padding"] or found["start"]  # padding is masked everywhere: any symbol will do
        missing = [f"{role} ({', '.join(_NAMES[role])})" for role, ids in found.items() if not ids]
        if missing:
            raise DataError(
                f"{where}: no symbol for {'; '.join(missing)}; add it to the vocabulary or train a tokenizer"
            )
        added = ((token.content, place) for place, token in backend.get_added_tokens_decoder().items() if token.special)
        matched = ((_TAGGED.fullmatch(content), place) for content, place in added)
        tags = {match[1]: place for match, place in matched if match}
        super().__init__(size, {role: ids[0] for role, ids in found.items()}, tags)
        tokens = backend.get_added_tokens_decoder().values()
        if backend.normalizer and any(t.normalized and not backend.normalizer.normalize_str(t.content) for t in tokens):
            raise DataError(f"{where}: an added token of which its normalizer leaves nothing; take it out")
        self.backend = backend
        self.byte_level = "ByteLevel" in json.dumps(json.loads(backend.to_str())["decoder"])
        self._prepends = backend.normalizer is not None and backend.normalizer.normalize_str("x") == " x"

    def pieces(self, text: str) -> list[tuple[int, str]]:
        """See `Tokenizer.pieces`."""
        encoding = self.backend.encode(text, add_special_tokens=False)
        spans, tokens, result, before = encoding.offsets, encoding.tokens, [], 0
        for place, (token, (start, end)) in enumerate(zip(encoding.ids, spans, strict=True)):
            after = spans[place + 1][0] if place + 1 < len(spans) else end
            whole = before <= start < end <= after
            shown = text[start:end] if whole else self._spelled(tokens[place])
            if place == 0 and not whole and self._prepends:
                shown = shown.removeprefix(" ")  # the blank put before the text is none of the user's
            result.append((self.unknown if token in self._controls else token, shown))
            before = max(before, end)
        return result

    def spelling(self, token: int) -> str:
        """See `Tokenizer.spelling`."""
        spelled = self._spelled(self.backend.id_to_token(token) or "")
        return spelled if self.byte_level else spelled.replace("▁", " ")

    def words(self) -> dict[str, int]:
        """See `Tokenizer.words`."""
        found = {}
        for token, place in self.backend.get_vocab().items():
            word = self._spelled(token)
            if not self.byte_level:
                found[word] = place
            elif word.startswith(" ") and len(word) > 1:
                found[word[1:]] = place
        return {word: place for word, place in found.items() if place not in self._silent}

    def _spelled(self, token: str) -> str:
        if not self.byte_level or any(letter not in _BYTES for letter in token):
            return token
        content = bytes(_BYTES[letter] for letter in token).decode("utf-8", errors="surrogateescape")
        return re.sub("[\udc80-\udcff]", lambda match: f"‹{ord(match[0]) - 0xDC00:02X}›", content)

    def to_json(self) -> str:
        """The tokenizer as the text of `tokenizer.json`."""
        return str(self.backend.to_str(pretty=True))

    def to_bytes(self) -> bytes:
        """See `Tokenizer.to_bytes`."""
        return self.to_json().encode("utf-8")

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        batch = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def _decode(self, ids: list[int]) -> str:
        return str(self.backend.decode(ids, skip_special_tokens=True))


class SentencePieceTokenizer(Tokenizer):
    """A sentencepiece model; unlike byte-level BPE it normalises the text, so that decoding may not give it back."""

    file_name = "tokenizer.model"

    def __init__(self, processor: Any, where: str = "tokenizer") -> None:
        start = processor.bos_id()
        padding = processor.pad_id() if processor.pad_id() >= 0 else start  # masked everywhere: any symbol will do
        ids = {"padding": padding, "start": start}
        ids |= {"end": processor.eos_id(), "unknown": processor.unk_id()}
        missing = [role for role, token in ids.items() if token < 0]
        if missing:
            raise DataError(f"{where}: no symbol for {', '.join(missing)}; train it with --bos_id and --eos_id")
        super().__init__(processor.get_piece_size(), ids)
        self.processor = processor

    def pieces(self, text: str) -> list[tuple[int, str]]:
        """See `Tokenizer.pieces`; the text shown is the normalised one."""
        shown = self.processor.encode(text, out_type=str)
        return [(token, piece.replace("▁", " ")) for token, piece in zip(self._encode([text])[0], shown, strict=True)]

    def spelling(self, token: int) -> str:
        """See `Tokenizer.spelling`."""
        return str(self.processor.id_to_piece(token)).replace("▁", " ")

    def words(self) -> dict[str, int]:
        """See `Tokenizer.words`."""
        pieces = enumerate(map(self.processor.id_to_piece, range(self.size)))
        return {piece[1:]: token for token, piece in pieces if piece.startswith("▁") and len(piece) > 1}

    def to_bytes(self) -> bytes:
        """See `Tokenizer.to_bytes`."""
        return bytes(self.processor.serialized_model_proto())

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.processor.encode(list(texts), out_type=int)
        return encoded

    def _decode(self, ids: list[int]) -> str:
        return str(self.processor.decode(ids))


def _trained(texts: Iterable[str], config: TokenizerConfig, specials: list[str]) -> Any:
    common: dict[str, Any] = {"special_tokens": specials, "show_progress": False}
    if config.vocabulary is not None:
        common["vocab_size"] = config.vocabulary
    if config.kind == "bpe":
        return _trained_bpe(texts, config, common)
    backend = tokenizers.Tokenizer(models.WordLevel(unk_token=SPECIALS[3]))
    if config.kind == "characters":
        backend.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
    else:
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        texts = _without_specials(_divided(texts), specials)
    common.setdefault("vocab_size", 2**31 - 1)  # the library would stop at 30,000
    backend.train_from_iterator(_checked(texts), trainers.WordLevelTrainer(min_frequency=1, **common))
    return backend


def _trained_bpe(texts: Iterable[str], config: TokenizerConfig, common: dict[str, Any]) -> Any:
    specials = len(common["special_tokens"])
    smallest = 256 + specials
    if config.vocabulary is None or config.vocabulary < smallest:
        raise ConfigError(
            f"tokenizer.vocabulary: {config.vocabulary} cannot hold the 256 bytes and {specials} special symbols; "
            f"set at least {smallest}"
        )
    backend = tokenizers.Tokenizer(models.BPE())
    # The expression of ByteLevel keeps letters and punctuation apart, so that no merge can spell a special symbol.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    # A blank before the first word makes it the same token as inside a sentence; decoding takes just that one away.
    backend.normalizer = normalizers.Prepend(" ")
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    counted = _counted(_checked(_divided(texts)))
    backend.train_from_iterator(counted, trainers.BpeTrainer(initial_alphabet=alphabet, **common))
    return backend


def _counted(texts: Iterable[str]) -> Iterator[str]:
    """The words of the texts, each as often as it stands there: what is learnt is the same, and memory is bounded.

    Beyond `MOST_WORDS` different words a sample of the rare ones stands for all of them, each as often as makes up for
    those left out (sticky sampling, Manku and Motwani 2002). A word is what stands between blanks, with all blanks
    before it but one, which the tokenizer puts back.
    """
    counts: Counter[str] = Counter()
    chance, bits = random.Random(0), 0  # a new word is taken in with a probability of 2^-bits
    for text in texts:
        words = [word[1:] for word in _WORD.findall(f" {text}")]
        if not bits:
            counts.update(words)
        for word in words if bits else ():
            if word in counts or not chance.getrandbits(bits):
                counts[word] += 1 if word in counts else 2**bits
        while len(counts) > MOST_WORDS:
            bits += 1
            for word in [word for word, count in counts.items() if count < 2**bits]:
                counts[word] = 2**bits if chance.random() < counts[word] / 2**bits else 0
            counts = +counts
    for word, count in counts.items():
        most = REPEATED if word.strip(" ") else 1  # blanks side by side would be one word
        for start in range(0, count, most):
            yield " ".join([word] * min(most, count - start))


def _divided(texts: Iterable[str]) -> Iterator[str]:
    """Long words in pieces, each on a line of its own, so that nothing is learnt from where they meet; fewer blanks."""
    for text in texts:
        yield _LONG.sub(_piece, text) if len(text) > LONGEST_WORD else text


def _piece(word: re.Match[str]) -> str:
    return f"{word[1]}\n" if word[1] else word[2] or word[0]


def _without_specials(texts: Iterable[str], specials: Sequence[str]) -> Iterator[str]:
    """Take words that spell a special symbol out, lest the trainer give the symbol a second id."""
    spelled = re.compile(r"(?<!\S)(?:" + "|".join(map(re.escape, specials)) + r")(?!\S)")
    return (spelled.sub("", text) for text in texts)


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if not text.isascii():
            _refuse_surrogates([text])
        yield text


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, start=1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            letter = ord(text[error.start])
            raise DataError(
                f"text {number}: a lone surrogate U+{letter:04X} at character {error.start + 1}; read the file as UTF-8"
            ) from None


def _content(path: Path) -> bytes:
    refuse_streams(path)
    with explained(str(path)), path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise DataError(f"{path}: larger than {LARGEST_FILE // 2**20} MB; no tokenizer is, give another file")
    return content


def _json(content: bytes, path: Path) -> JsonTokenizer:
    with _blamed(f"{path}: not a tokenizer.json"):
        return JsonTokenizer(tokenizers.Tokenizer.from_str(checked(content, str(path))), str(path))


@contextmanager
def _blamed(where: str) -> Iterator[None]:
    """Blame the tokenizer file for what the library makes of it: plain exceptions, and panics beside them."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, DataError) or not (
            isinstance(error, Exception) or type(error).__name__ == "PanicException"
        ):
            raise
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{where}: {reason}; save the tokenizer again") from None


def _sentencepiece(content: bytes, path: Path) -> SentencePieceTokenizer:
    try:
        import sentencepiece
    except ImportError:
        raise DataError(f"{path}: sentencepiece is missing; pip install 'headway[sentencepiece]'") from None
    check_pieces(content, str(path))
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a sentencepiece model ({type(error).__name__}); save the model again") from None
    return SentencePieceTokenizer(processor, str(path))


def _byte_letters() -> dict[str, int]:
    """Which letter of the byte-level alphabet is which byte: printable ones stand for themselves, the rest from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_letters()
