"""From files to a token store: held-out pairs, tokenizers, ids, all found again if nothing changed."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from headway.data.aligner import ITERATIONS, Aligner, stored_pairs
from headway.data.alignment import Alignment, build_alignment, open_alignment, write_alignment
from headway.data.cleaning import clean
from headway.data.config import DataConfig
from headway.data.mixture import Mixture
from headway.data.pairs import Pair, read_pairs, read_sources
from headway.data.spelling import Spelling
from headway.data.store import TokenStore, build_store, encode_pairs, open_store
from headway.data.text import Fingerprint, changed, fingerprint, hashed
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.disk import make_folder, present, write_bytes
from headway.errors import ConfigError, DataError, FolderError
from headway.folders import seal_files, verify_folder

SAMPLE = 2_000_000
"""Pairs a tokenizer is learnt from at most, spread over the corpus."""

STORE, ALIGNMENT, VALID_ALIGNMENT = "store", "alignment", "valid-alignment"
"""The folders of prepared data: of tokens, and of word alignments."""
SPLIT = "split.json"
"""How the corpus was divided, and into what it was made."""

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
    corpora: dict[str, int] = field(default_factory=dict)
    """Training pairs of every corpus by its name, as in `pairs`."""
    words: int = 0
    """Words of all targets, between spaces, validation pairs included."""
    bytes: int = 0
    """Their bytes."""
    alphabet: int | None = None
    """Different characters, where lines are words to be read letter by letter; None: sentences."""
    word_bytes: int | None = None
    """Bytes of all different words together, where these are few."""

    def training(self, config: DataConfig, counts: Counter[str]) -> Iterator[Pair]:
        """The training pairs: neither held out nor with the source of a validation pair.

        Lines of a text may stand there again: that is how often they are written.
        """
        held = set() if config.text is not None else {hashed(pair.source) for pair in self.valid}
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
    mixture: Mixture | None = None
    """How often the corpora are met in an epoch; None: every pair once."""
    alignment: Alignment | None = None
    """Which tokens translate which, if word alignments are given, or were found for a model that needs them."""
    valid_alignment: Alignment | None = None
    """The same for the validation pairs, for a model that needs them."""


def divide(config: DataConfig, report: Report) -> Split:
    """Count the corpus and take the validation pairs out of it, or from the files given for them."""
    corpora = config.training()
    files = {str(path): fingerprint(path) for corpus in corpora for path in corpus.paths}
    counts: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    words = size = 0
    spelling = Spelling()
    for total, pair in enumerate(_cleaned(config, counts), start=1):
        spelling.add(pair)
        sizes[pair.corpus] += 1
        words, size = words + len(pair.target.split()), size + len(pair.target.encode(errors="surrogatepass"))
        if total % 10_000 == 0:
            report("counting", total, None)
    total = sizes.total()
    report("counting", total, total)
    every = 0
    if config.validation():
        valid = _given(config)
    else:
        wanted = config.held_out_of(total)
        every = total // wanted if wanted else 2
        if total == 1:
            raise DataError(f"{corpora[0].name}: one pair only; give more lines")
        valid = [pair for number, pair in enumerate(_cleaned(config, Counter())) if number % every == every // 2]
        sizes -= Counter(pair.corpus for pair in valid)
    for place, corpus in enumerate(corpora):
        if not sizes[place]:
            raise DataError(f"{corpus.name}: no pair left to train on; give more lines or relax the cleaning")
    names = {name: sizes[place] for place, name in enumerate(config.names)}
    spelled = spelling.alphabet, spelling.word_bytes
    return Split(sizes.total(), valid, every, dict(counts), files, names, words, size, *spelled)


def _given(config: DataConfig) -> list[Pair]:
    """The pairs of the validation files."""
    found: list[Pair] = []
    for files in config.validation():
        read = read_pairs(files, invalid=config.invalid)
        pairs = list(clean(read, config.cleaning, Counter(), alone=files.alone))
        if not pairs:
            raise DataError(f"{files.name}: no pair left to validate on; check the files and the cleaning settings")
        found += pairs
    return found


def prepare(
    config: DataConfig,
    tokenizer: TokenizerConfig,
    folder: Path,
    *,
    longest: int,
    split: Split,
    report: Report,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    aligned: bool = False,
) -> Prepared:
    """Learn the tokenizers and build the token store in `folder`; one that is there and fits is taken as it is.

    Tokenizers that are given are used in place of learning any. For a model that must be `aligned`, word alignments are
    found where none are given.
    """
    source, target = tokenizers or learn_tokenizers(config, tokenizer, split, report)
    if missing := [tag for tag in config.every_tag() if tag not in source.tags]:
        told = f"the tokenizer of the source knows no {', '.join(missing)}"
        raise ConfigError(f"data: {told}; learn one in place of loading it, or leave the tags out")
    make_folder(folder)
    key = _key(config, split, source, target, longest)
    prepared = _built(config, split, (source, target), folder, key, report, aligned=aligned)
    if altered := _altered(config, split.files):
        raise DataError(f"{altered}: changed while it was read; start again when nothing writes to it")
    store = prepared.store
    for place, corpus in enumerate(config.training()):
        if place >= len(store.corpora) or not store.corpora[place]:
            told = (
                f"{store.dropped} are longer than {longest - 1} tokens, the others have the source of a validation pair"
            )
            raise DataError(f"{corpus.name}: no pair left to train on: {told}")
    contents = _contents(split, source, target, key, aligned=aligned)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    seal_files(folder, contents, {"kind": "data", "folders": _folders(prepared)})
    return prepared


def _built(
    config: DataConfig,
    split: Split,
    tokenizers: tuple[Tokenizer, Tokenizer],
    folder: Path,
    key: Mapping[str, Any],
    report: Report,
    *,
    aligned: bool,
) -> Prepared:
    """The token store and alignments in `folder`; what is not there whole is built from the corpus."""
    counts: Counter[str] = Counter()
    store = open_store(folder / STORE, key)
    if store is None:  # never built, damaged, or from other files or settings
        store = build_store(
            folder / STORE,
            split.training(config, counts),
            *tokenizers,
            key=key,
            longest=key["longest"] - 1,
            progress=lambda done: report("tokenizing", done, split.pairs),
        )
    alignments = _alignments(config, split, store, folder, key, tokenizers, report, aligned=aligned)
    split = replace(split, left_out=dict(counts) or split.left_out)
    return Prepared(*tokenizers, store, split, config.mixture(store.corpora), *alignments)


def _folders(prepared: Prepared) -> dict[str, Any]:
    """The sha256 of every file in the folders of prepared data."""
    made = {STORE: prepared.store, ALIGNMENT: prepared.alignment, VALID_ALIGNMENT: prepared.valid_alignment}
    return {name: each.manifest["files"] for name, each in made.items() if each is not None}


def _alignments(
    config: DataConfig,
    split: Split,
    store: TokenStore,
    folder: Path,
    key: Mapping[str, Any],
    tokenizers: tuple[Tokenizer, Tokenizer],
    report: Report,
    *,
    aligned: bool,
) -> tuple[Alignment | None, Alignment | None]:
    """Which tokens of the training and of the validation pairs translate which, as far as that is wanted."""
    source, target = tokenizers
    found = None
    if config.alignment is not None:
        found = open_alignment(folder / ALIGNMENT, key) or build_alignment(
            folder / ALIGNMENT,
            split.training(config, Counter()),
            source,
            target,
            key=key,
            longest=key["longest"] - 1,
            progress=lambda done: report("aligning", done, split.pairs),
        )
        assert len(found) == len(store), "both leave out the same pairs"
    if not aligned:
        return found, None
    valid = open_alignment(folder / VALID_ALIGNMENT, key)
    given = any(pair.links for pair in split.valid)
    if valid is None and given:
        valid = build_alignment(folder / VALID_ALIGNMENT, split.valid, source, target, key=key, longest=None)
    found = found or open_alignment(folder / ALIGNMENT, key)
    if found is not None and valid is not None:
        return found, valid
    aligner = Aligner.learn(
        lambda: stored_pairs(store),
        source_size=source.size,
        target_size=target.size,
        progress=lambda done: report("learning which words translate which", done, 2 * ITERATIONS),
    )
    if found is None:
        found = write_alignment(folder / ALIGNMENT, (aligner.codes(*pair) for pair in stored_pairs(store)), key=key)
    if valid is None:
        sides = zip(*encode_pairs(split.valid, tokenizers), strict=True)
        valid = write_alignment(folder / VALID_ALIGNMENT, (aligner.codes(*pair) for pair in sides), key=key)
    return found, valid


def _altered(config: DataConfig, files: Mapping[str, Fingerprint]) -> str | None:
    """A training file that is not what it was, or new, or gone; their folder may be another than it was."""
    paths = list(dict.fromkeys(path for corpus in config.training() for path in corpus.paths))
    known = {path.name for path in paths} & {Path(name).name for name in files}
    for each in (*files, *map(str, paths)):
        if Path(each).name not in known:  # gone, or new
            return each
    return next((str(path) for path, before in zip(paths, files.values(), strict=True) if changed(path, before)), None)


def reopen(config: DataConfig, folder: Path, report: Report = lambda *_: None) -> Prepared:
    """What `prepare` left in `folder`, verified. What is damaged and can be built again from the corpus is.

    Refused by name: data that was never prepared, damage that cannot be repaired, and training files that changed.
    Where all of them are gone, or the run was moved, what was made of them is enough.
    """
    sealed = verify_folder(folder)
    try:
        memory = json.loads((folder / SPLIT).read_bytes())
        files = {name: Fingerprint(**entry) for name, entry in memory["files"].items()}
        valid = [Pair(*pair)._replace(tags=tuple(Pair(*pair).tags)) for pair in memory["valid"]]
        split = Split(memory["pairs"], valid, memory["every"], memory["left_out"], files, memory["corpora"])
        names, key, aligned = memory["tokenizers"], memory["key"], memory["aligned"]
        unsealed = {SPLIT, *names} - sealed["files"].keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FolderError(f"{folder / SPLIT}: damaged; use another copy of the folder") from None
    if unsealed:
        raise FolderError(f"{folder}: its manifest does not name {', '.join(sorted(unsealed))}; use another copy of it")
    if any(map(present, map(Path, files))) and (altered := _altered(config, files)):
        raise DataError(f"{altered}: changed since this run began; start a new run in another folder")
    source = Tokenizer.load(folder / names[0])
    target = source if names[0] == names[1] else Tokenizer.load(folder / names[1])
    prepared = _built(config, split, (source, target), folder, key, report, aligned=aligned)
    if _folders(prepared) != sealed.get("folders"):
        told = "was damaged, and the corpus does not give the same data again"
        raise FolderError(f"{folder}: {told}; use another copy of the folder, or start a new run")
    return prepared


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
    if tokenizer.joint or config.text is not None:
        joint = Tokenizer.train(vocabulary_texts(config, split, report, (0, 1)), tokenizer, config.every_tag())
        return joint, joint
    source = Tokenizer.train(vocabulary_texts(config, split, report, (0,)), tokenizer, config.every_tag())
    return source, Tokenizer.train(vocabulary_texts(config, split, report, (1,)), tokenizer)


def vocabulary_texts(config: DataConfig, split: Split, report: Report, sides: tuple[int, ...]) -> Iterator[str]:
    """The training texts of the sides (0 is source, 1 is target) that a vocabulary is learnt from."""
    step = -(-split.pairs // SAMPLE)
    pairs = islice(split.training(config, Counter()), 0, None, step)
    for done, pair in enumerate(pairs, start=1):
        if done % 10_000 == 0:
            report("learning the vocabulary", done * step, split.pairs)
        for side in sides if config.text is None else (1,):
            yield pair[side]  # type: ignore[misc]  # sides are 0 and 1, the texts


def overlap(config: DataConfig, prepared_from: Split) -> int:
    """How many training pairs have a source that stands in the test file, if one was named."""
    test = config.test()
    if test is None:
        return 0
    tested = {hashed(source) for source in read_sources(test, invalid=config.invalid)}
    return sum(hashed(pair.source) in tested for pair in prepared_from.training(config, Counter()))


def _cleaned(config: DataConfig, counts: Counter[str]) -> Iterator[Pair]:
    pairs = (
        pair
        for place, files in enumerate(config.training())
        for pair in read_pairs(files, invalid=config.invalid, counts=counts, corpus=place)
    )
    return clean(pairs, config.cleaning, counts, alone=config.text is not None)


def _key(config: DataConfig, split: Split, source: Tokenizer, target: Tokenizer, longest: int) -> dict[str, Any]:
    alone = config.text is not None
    return {
        **({"alone": True} if alone else {}),  # stores of pairs keep the key they always had
        "files": {name: print_.sha256 for name, print_ in split.files.items()},
        "corpora": [[list(map(str, files.paths)), *files.tags] for files in config.training()],
        "columns": config.columns,
        "fields": config.fields,
        "cleaning": config.cleaning.model_dump(mode="json"),
        "every": split.every,
        "valid": hashed(*(pair.target if alone else pair.source for pair in split.valid)),
        "tokenizers": [source.fingerprint(), target.fingerprint()],
        "longest": longest,
    }


def _contents(
    split: Split, source: Tokenizer, target: Tokenizer, key: Mapping[str, Any], *, aligned: bool
) -> dict[str, bytes]:
    """The files of prepared data by their names."""
    names = [source.file_name] * 2 if source is target else [f"source.{source.file_name}", f"target.{target.file_name}"]
    memory = {**asdict(split), "tokenizers": names, "key": key, "aligned": aligned}
    files = {name: each.to_bytes() for each, name in zip((source, target), names, strict=True)}
    return {**files, SPLIT: json.dumps(memory, ensure_ascii=False).encode()}
