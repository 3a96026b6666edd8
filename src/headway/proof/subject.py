"""What is to be proved: a model, and the sentences to prove it by."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from headway.data.tokenizer import Tokenizer
from headway.engine import Engine
from headway.errors import DataError
from headway.folders import read_manifest
from headway.models.model import Autoregressive, Model, NonAutoregressive, autoregressive
from headway.search import DecodingConfig, Hypothesis, Request, Symbols
from headway.sequences import Sequences
from headway.translator import Translator, load, model_folder

SEED = 1
"""Every sentence, order and target of a proof is drawn from it: a proof can be repeated."""
LONGEST_OUTPUT = 24
"""Tokens at which outputs are cut, so that a model that never ends takes no more time."""
LONGEST_MADE = 20
"""Tokens of a sentence made from the vocabulary."""
LONGEST_WALK = 512
"""Tokens of the longest sentence looked at, where the model knows longer ones."""


@dataclass(frozen=True)
class Subject:
    """A model and what it is proved by; a folder is read when the model is first needed."""

    given: Path | Translator
    texts: tuple[str, ...] = ()
    """Sentences to prove the model by; where there are none, they are made from its vocabulary."""
    count: int = 32
    """How many sentences are used."""
    device: str | torch.device = "cpu"

    @classmethod
    def of(
        cls,
        model: str | Path | Translator,
        texts: Sequence[str] = (),
        *,
        count: int = 32,
        device: str | torch.device = "cpu",
    ) -> "Subject":
        """A model or run folder, or a translator; what is no folder of ours is a `FolderError`."""
        written = tuple(text for text in texts if text.strip())
        if isinstance(model, Translator):
            return cls(model, written, count)
        folder = model_folder(Path(model))
        read_manifest(folder)
        return cls(folder, written, count, device)

    @property
    def folder(self) -> Path | None:
        """The model folder, if there is one."""
        return self.given if isinstance(self.given, Path) else None

    @cached_property
    def translator(self) -> Translator:
        """The model with its tokenizers."""
        return self.given if isinstance(self.given, Translator) else load(self.given, device=self.device)

    @property
    def model(self) -> Model:
        """The model itself."""
        return self.translator.model

    @property
    def writer(self) -> Autoregressive[Any, Any]:
        """The model, where it writes token by token."""
        return autoregressive(self.model, "prove")

    @property
    def symbols(self) -> Symbols:
        """What a search must know of the vocabulary."""
        return self.translator.symbols

    @cached_property
    def engine(self) -> Engine:
        """Our own engine around the model."""
        return Engine(self.model, self.symbols)

    @cached_property
    def config(self) -> DecodingConfig:
        """The search that is proved: plain beam search with all its hypotheses returned."""
        return DecodingConfig(beam=4, nbest=4, longest=min(LONGEST_OUTPUT, self.engine.longest))

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The sentences as text."""
        return self.texts[: self.count] or tuple(made(self.translator.source, self.count, self.engine.longest))

    @cached_property
    def sentences(self) -> tuple[tuple[int, ...], ...]:
        """The sentences as tokens without an end symbol, cut where they are longer than the model knows."""
        found = tuple(tuple(ids[: self.engine.longest]) for ids in self.translator.tokenize(self.lines) if ids)
        if not found:
            raise DataError("prove: the vocabulary spells nothing; give sentences by --text")
        return found

    @cached_property
    def longest(self) -> tuple[int, ...]:
        """A sentence as long as the model knows, or `LONGEST_WALK`."""
        pool = [token for sentence in self.sentences for token in sentence]
        wanted = min(self.engine.longest, LONGEST_WALK - 1)
        return tuple(random.Random(SEED).choices(pool, k=wanted))

    @cached_property
    def alone(self) -> list[list[Hypothesis]]:
        """The answers to the sentences, each searched for alone."""
        return [answer for sentence in self.sentences for answer in self.together([sentence])]

    @torch.inference_mode()
    def together(
        self, sentences: Sequence[tuple[int, ...]], config: DecodingConfig | None = None
    ) -> list[list[Hypothesis]]:
        """The answers to sentences searched for as one batch, whatever their lengths."""
        if isinstance(self.model, NonAutoregressive):
            return self.engine.decode([Request(each) for each in sentences], config or self.config)
        search = self.engine.begin([Request(each) for each in sentences], config or self.config)
        while search.live:
            search.advance()
        return search.answers()

    def ended(self, sentences: Sequence[Sequence[int]]) -> list[list[int]]:
        """Sentences as the encoder reads them, each with its end symbol."""
        end = self.symbols.end if self.symbols.source_end is None else self.symbols.source_end
        return [[*sentence, end] for sentence in sentences]

    def padded(self, rows: Sequence[Sequence[int]], padding: int | None = None) -> Sequences:
        """Token rows as a padded batch on the model's device."""
        return Sequences.pad(rows, self.symbols.end if padding is None else padding).to(self.engine.device)

    def targets(self, count: int, length: int) -> list[list[int]]:
        """Outputs that the model is made to write: a start symbol and random tokens, `length` in all."""
        draw, plain = random.Random(SEED + length), ordinary(self.translator.target)
        return [[self.symbols.start, *draw.choices(plain, k=length - 1)] for _ in range(count)]


def ordinary(tokenizer: Tokenizer) -> list[int]:
    """All tokens that stand for text."""
    others = {tokenizer.padding, tokenizer.start, tokenizer.end, tokenizer.unknown, *tokenizer.tags.values()}
    return [token for token in range(tokenizer.size) if token not in others]


def made(tokenizer: Tokenizer, count: int, longest: int) -> list[str]:
    """Texts of random tokens, of many lengths, that the tokenizer gives back as they are."""
    draw = random.Random(SEED)
    plain = ordinary(tokenizer)
    pool = draw.sample(plain, k=min(len(plain), 2000))
    same = _returned(tokenizer, [tokenizer.decode([token]) for token in pool])
    pool = [token for token, well in zip(pool, same, strict=True) if well] or pool
    texts: list[str] = []
    for attempt in range(20 * count):
        text = tokenizer.decode(draw.choices(pool, k=draw.randint(1, min(LONGEST_MADE, longest))))
        hopeless = attempt > 10 * count  # a broken tokenizer gives nothing back: any text must do
        if text.strip() and (hopeless or _returned(tokenizer, [text])[0]):
            texts.append(text)
        if len(texts) == count:
            break
    return texts


def _returned(tokenizer: Tokenizer, texts: Sequence[str]) -> list[bool]:
    """Which texts a tokenizer gives back."""
    encoded = tokenizer.encode(texts)
    return [
        bool(text.strip()) and "\ufffd" not in text and tokenizer.decode(ids) == text
        for text, ids in zip(texts, encoded, strict=True)
    ]
