"""The settings of the corpus."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headway.config import Settings
from headway.data.cleaning import CleaningConfig
from headway.data.mixture import Mixture, mixed
from headway.data.pairs import Files, Shards
from headway.data.text import Invalid


def _readable(given: object) -> object:
    several = given if isinstance(given, (list, tuple)) else [given]
    if not several or not all(isinstance(each, (str, Path)) for each in several):
        raise ValueError("should be a path, a glob, or a list of them")
    return tuple(given) if isinstance(given, list) else given


def _tag(given: str) -> str:
    if not re.fullmatch(r"[^\s<>]{1,64}", given):
        raise ValueError("should be one word of at most 64 characters without < and >, such as medical")
    return given


def _name(given: str) -> str:
    if not re.fullmatch(r"\S+", given):
        raise ValueError("should be one word, such as medical")
    return given


def _refuse_lone(config: "CorpusConfig | DataConfig", *kinds: str) -> None:
    for kind in kinds:
        if getattr(config, f"{kind}_target") is not None and getattr(config, f"{kind}_source") is None:
            raise ValueError(f"{kind}_target translates {kind}_source, which is missing; give it too")


Text = Annotated[Shards, BeforeValidator(_readable)]
Tags = tuple[Annotated[str, AfterValidator(_tag)], ...]
"""Words without white space and angle brackets."""


PAIRED = (
    "source",
    "target",
    "corpora",
    "tags",
    "valid_source",
    "valid_target",
    "test_source",
    "test_target",
    "alignment",
    "word_dropout",
    "source_vectors",
)
"""Settings of a corpus that has two sides."""


class CorpusConfig(Settings):
    """One of several corpora."""

    name: Annotated[str, AfterValidator(_name)] | None = None
    """What it is called; unset: as its source."""
    source: Text
    """Its text, as data.source."""
    target: Text | None = None
    """The translation, as data.target."""
    valid_source: Text | None = None
    """Text to validate on, with the tags of this corpus."""
    valid_target: Text | None = None
    """Its translation."""
    tags: Tags = ()
    """Words put before every source as tokens of their own, which no text can spell; none: data.tags."""
    weight: float | None = Field(None, gt=0.0)
    """Its share of an epoch, in proportion to the weights of the others; all corpora have one, or none."""

    @model_validator(mode="after")
    def _sides_fit(self) -> "CorpusConfig":
        _refuse_lone(self, "valid")
        return self


class DataConfig(Settings):
    """Which files to learn from: plain text, .tsv or .jsonl, any of them also .gz, or .parquet."""

    folder: Path = Path()
    """Where relative paths start."""
    source: Text | None = None
    """The training text, a sentence a line; or both sides in one .tsv, .jsonl or .parquet. A glob or a list: shards."""
    target: Text | None = None
    """Its translation, line by line, in as many shards."""
    text: Text | None = None
    """The text to learn a language model from, each line a text of its own, in place of source and target."""
    corpora: tuple[CorpusConfig, ...] = ()
    """Several corpora in place of source and target."""
    temperature: float = Field(1.0, ge=1.0, le=100.0)
    """How far small corpora are met more often than their size tells: shares follow size^(1/temperature)."""
    tags: Tags = ()
    """Words put before every source as tokens of their own, which no text can spell, such as its language."""
    valid_source: Text | None = None
    """Text to validate on; unset: some pairs of the training text are held out."""
    valid_target: Text | None = None
    """Its translation."""
    valid_text: Text | None = None
    """Text to validate a language model on; unset: some lines of the training text are held out."""
    test_source: Text | None = None
    """Text you will test on: training pairs that also stand there are counted and warned of."""
    test_target: Text | None = None
    """Its translation."""
    columns: tuple[int, int] = (1, 2)
    """Source and target column of a .tsv, from 1."""
    fields: tuple[str, str] = ("source", "target")
    """Source and target field of a .jsonl, or column of a .parquet."""
    invalid: Invalid = "refuse"
    """What happens to lines that are not UTF-8: refuse the file, or skip and count them."""
    held_out: int = Field(1000, gt=0, le=100_000)
    """Maximum number of validation pairs held out; a small corpus gives one in 50, or 200, but never over one in 20."""
    cleaning: CleaningConfig = CleaningConfig()
    """Which pairs are left out."""
    alignment: Path | None = None
    """Which words translate which, for guided alignment: a line such as 0-0 1-2 for every pair, words from 0."""
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of source words left out in training, other ones in every epoch."""
    source_vectors: Path | None = None
    """word2vec or GloVe vectors, text or binary, to start the source embedding from."""
    target_vectors: Path | None = None
    """The same for the target embedding."""

    @model_validator(mode="after")
    def _text_fits(self) -> "DataConfig":
        if self.text is None:
            if self.valid_text is not None:
                raise ValueError("valid_text is for language models; set text too, or valid_source and valid_target")
            return self
        others = [name for name in PAIRED if getattr(self, name) not in (None, (), 0.0)]
        if others:
            raise ValueError(f"text has no other side; leave out {', '.join(others)}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> "DataConfig":
        if self.source is None and not self.corpora and self.text is None:
            raise ValueError("nothing to learn from; set source and target, corpora, or text")
        _refuse_lone(self, "valid", "test")
        if self.corpora and (self.source is not None or self.target is not None):
            raise ValueError("source and corpora cannot be combined; make the source one of the corpora")
        weighted = sum(corpus.weight is not None for corpus in self.corpora)
        if weighted not in (0, len(self.corpora)):
            told = f"{weighted} of {len(self.corpora)} corpora have a weight"
            raise ValueError(f"{told}; give all one, or none")
        if weighted and self.temperature != 1.0:
            raise ValueError("temperature does nothing where corpora have weights; leave one of them out")
        if self.alignment is not None and self.corpora:
            raise ValueError("alignment is of one corpus; set source and target in place of corpora")
        if self.alignment is not None and self.word_dropout:
            raise ValueError("alignment links words that word_dropout would leave out; leave one of them out")
        return self

    def held_out_of(self, pairs: int) -> int:
        """How many of so many pairs are held out: few of a small corpus, which needs them more for training."""
        return min(self.held_out, pairs // 20, max(200, pairs // 50))

    @property
    def names(self) -> tuple[str, ...]:
        """What the corpora are called, or else their files without folders; no two alike."""
        single = self.source if self.text is None else self.text
        given = [(None, single)] if single is not None else [(each.name, each.source) for each in self.corpora]
        names = [name or Path(Files(source).name).name for name, source in given]
        found, seen = [], Counter[str]()
        for name in names:
            seen[name] += 1
            found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        return tuple(found)

    def training(self) -> tuple[Files, ...]:
        """The files to train on, corpus by corpus."""
        if self.text is not None:
            return (replace(self._files(self.text, None), alone=True),)
        if self.source is not None:
            files = self._files(self.source, self.target, self.tags)
            return (files if self.alignment is None else replace(files, alignment=self.folder / self.alignment),)
        return tuple(self._files(each.source, each.target, each.tags or self.tags) for each in self.corpora)

    def validation(self) -> tuple[Files, ...]:
        """The files to validate on, as far as they are given."""
        if self.valid_text is not None:
            return (replace(self._files(self.valid_text, None), alone=True),)
        given = [(self.valid_source, self.valid_target, self.tags)]
        given += [(each.valid_source, each.valid_target, each.tags or self.tags) for each in self.corpora]
        return tuple(self._files(source, target, tags) for source, target, tags in given if source is not None)

    def test(self) -> Files | None:
        """The files to test on, if they are given."""
        return None if self.test_source is None else self._files(self.test_source, self.test_target)

    def every_tag(self) -> tuple[str, ...]:
        """The tags of all corpora, each once."""
        files = self.training() + self.validation()
        return tuple(dict.fromkeys(tag for each in files for tag in each.tags))

    def mixture(self, sizes: tuple[int, ...]) -> Mixture | None:
        """How often corpora of these sizes are met in an epoch; None where every pair is met once."""
        weights = tuple(corpus.weight for corpus in self.corpora if corpus.weight is not None)
        return mixed(sizes, weights, self.temperature)

    def _files(self, source: Shards, target: Shards | None, tags: tuple[str, ...] = ()) -> Files:
        other = None if target is None else self._placed(target)
        return Files(self._placed(source), other, self.columns, self.fields, tags, again=True)

    def _placed(self, paths: Shards) -> Shards:
        return self.folder / paths if isinstance(paths, Path) else tuple(self.folder / path for path in paths)
