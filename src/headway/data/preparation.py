"""From files to a token store: held-out pairs, tokenizers, ids, all found again if nothing changed."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from headway.data.cleaning import clean
from headway.data.config import DataConfig
from headway.data.pairs import Pair, read_pairs, read_sources
from headway.data.store import TokenStore, build_store, open_store
from headway.data.text import Fingerprint, changed, fingerprint, hashed
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import ConfigError, DataError
from headway.folders import write_text

SAMPLE = 2_000_000
"""Pairs a tokenizer is learnt from at most, spread over the corpus."""

Report = Callable[[str, int, int | None], None]
"""Hears the name of the work under way, how many pairs are done, and of how many."""


@dataclass(frozen=True)
class Split:
    """A corpus divided into training and validation pairs."""

    pairs: int
    """Training pairs, before those that share a source with a validation pair are left out."""
    valid: list[Pair]
    every: int
    """One in this many training pairs was held out; 0 when validation files were given."""
    left_out: dict[str, int]
    """Why pairs were left out, and how many."""
    files: dict[str, Fingerprint]
    """The training files as they were read."""

    def training(self, config: DataConfig, counts: Counter[str]) -> Iterator[Pair]:
        """The training pairs: neither held out nor with the source of a validation pair."""
        held = {hashed(pair.source) for pair in self.valid}
        for number, pair in enumerate(_cleaned(config, counts)):
            if self.every and number % self.every == self.every // 2:
                continue
            if hashed(pair.source) in held:
                counts["source of a validation pair"] += 1
                continue
            yield pair


@dataclass(frozen=True)
class Prepared:
    """A corpus ready to train on."""

    source: Tokenizer
    target: Tokenizer
    store: TokenStore
    split: Split


def divide(config: DataConfig, report: Report) -> Split:
    """Count the corpus and take the validation pairs out of it, or from the files given for them."""
    files = {str(path): fingerprint(path) for path in config.training().paths}
    counts: Counter[str] = Counter()
    total = 0
    for total, _ in enumerate(_cleaned(config, counts), start=1):
        if total % 10_000 == 0:
            report("counting", total, None)
    report("counting", total, total)
    given = config.validation()
    if given is not None:
        valid = list(clean(read_pairs(given, invalid=config.invalid), config.cleaning, Counter()))
        if not valid:
            raise DataError(f"{given.source}: no pair left to validate on; check the files and the cleaning settings")
        every = 0
    else:
        wanted = min(config.held_out, total // 20)
        every = total // wanted if wanted else 2
        if total == 1:
            raise DataError(f"{config.training().source}: one pair only; give more lines")
        valid = [pair for number, pair in enumerate(_cleaned(config, Counter())) if number % every == every // 2]
    pairs = total - (len(valid) if every else 0)
    if pairs <= 0:
        raise DataError(f"{config.training().source}: no pair left to train on; give more lines or relax the cleaning")
    return Split(pairs, valid, every, dict(counts), files)


def prepare(
    config: DataConfig, tokenizer: TokenizerConfig, folder: Path, *, longest: int, split: Split, report: Report
) -> Prepared:
    """Learn the tokenizers and build the token store in `folder`; one that is there and fits is taken as it is."""
    source, target = learn_tokenizers(config, tokenizer, split, report)
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(config, split, source, target, longest)
    counts: Counter[str] = Counter()
    pairs = ((pair.source, pair.target) for pair in split.training(config, counts))
    store = open_store(folder / "store", key)
    if store is None:  # never built, or from other files or settings
        store = build_store(
            folder / "store",
            pairs,
            source,
            target,
            key=key,
            longest=longest - 1,
            progress=lambda done: report("tokenizing", done, split.pairs),
        )
    for path in config.training().paths:
        if changed(path, split.files[str(path)]):
            raise DataError(f"{path}: changed while it was read; start again when nothing writes to it")
    if not len(store):
        told = f"{store.dropped} are longer than {longest - 1} tokens, the others have the source of a validation pair"
        raise DataError(f"{config.training().source}: no pair left to train on: {told}")
    _remember(folder, split, source, target, key)
    return Prepared(source, target, store, replace(split, left_out=dict(counts) or split.left_out))


def reopen(config: DataConfig, folder: Path) -> Prepared | None:
    """What `prepare` left in `folder`, or None if it was never finished; files that changed since are refused."""
    try:
        memory = json.loads((folder / "split.json").read_bytes())
    except (OSError, ValueError):
        return None
    files = {name: Fingerprint(**entry) for name, entry in memory["files"].items()}
    for path in config.training().paths:
        if str(path) not in files or changed(path, files[str(path)]):
            raise DataError(f"{path}: changed since this run began; start a new run in another folder")
    names = memory["tokenizers"]
    source = Tokenizer.load(folder / names[0])
    target = source if names[0] == names[1] else Tokenizer.load(folder / names[1])
    store = open_store(folder / "store", memory["key"])
    if store is None:
        return None
    store.verify()
    valid = [Pair(*pair) for pair in memory["valid"]]
    return Prepared(source, target, store, Split(memory["pairs"], valid, memory["every"], memory["left_out"], files))


def learn_tokenizers(
    config: DataConfig, tokenizer: TokenizerConfig, split: Split, report: Report
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizer of each side: learnt from the training pairs, or loaded; the same one twice if joint."""
    if tokenizer.file is not None:
        loaded = Tokenizer.load(config.folder / tokenizer.file)
        if tokenizer.vocabulary not in (None, loaded.size):
            told = f"{loaded.size} tokens, tokenizer.vocabulary is {tokenizer.vocabulary}"
            raise ConfigError(f"{config.folder / tokenizer.file}: {told}; leave the setting out")
        return loaded, loaded
    step = -(-split.pairs // SAMPLE)

    def texts(*sides: int) -> Iterator[str]:
        pairs = islice(split.training(config, Counter()), 0, None, step)
        for done, pair in enumerate(pairs, start=1):
            if done % 10_000 == 0:
                report("learning the vocabulary", done * step, split.pairs)
            for side in sides:
                yield pair[side]  # type: ignore[misc]  # sides are 0 and 1, the texts

    if tokenizer.joint:
        joint = Tokenizer.train(texts(0, 1), tokenizer)
        return joint, joint
    return Tokenizer.train(texts(0), tokenizer), Tokenizer.train(texts(1), tokenizer)


def overlap(config: DataConfig, prepared_from: Split) -> int:
    """How many training pairs have a source that stands in the test file, if one was named."""
    test = config.test()
    if test is None:
        return 0
    tested = {hashed(source) for source in read_sources(test, invalid=config.invalid)}
    return sum(hashed(pair.source) in tested for pair in prepared_from.training(config, Counter()))


def _cleaned(config: DataConfig, counts: Counter[str]) -> Iterable[Pair]:
    return clean(read_pairs(config.training(), invalid=config.invalid, counts=counts), config.cleaning, counts)


def _key(config: DataConfig, split: Split, source: Tokenizer, target: Tokenizer, longest: int) -> dict[str, Any]:
    return {
        "files": {name: print_.sha256 for name, print_ in split.files.items()},
        "cleaning": config.cleaning.model_dump(mode="json"),
        "every": split.every,
        "valid": hashed(*(pair.source for pair in split.valid)),
        "tokenizers": [source.fingerprint(), target.fingerprint()],
        "longest": longest,
    }


def _remember(folder: Path, split: Split, source: Tokenizer, target: Tokenizer, key: Mapping[str, Any]) -> None:
    names = [source.file_name] * 2 if source is target else [f"source.{source.file_name}", f"target.{target.file_name}"]
    for each, name in zip((source, target), names, strict=True):
        each.save(folder / name)
    memory = {**asdict(split), "tokenizers": names, "key": key}
    write_text(folder / "split.json", json.dumps(memory, ensure_ascii=False))
