"""Memory and time of preparing a corpus and of starting from it, for N pairs and for a tenth: JSON lines.

Stages `build` and `start` take a store by itself; `prepare` is the whole path of a new run from text files (counting,
holding out, learning the vocabulary, tokenising), and `resume` that of a run that is taken up again.
"""

import argparse
import itertools
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from peers.origin import show

SAMPLE = 100_000  # sentences the tokenizer learns from
KEY = {"corpus": "synthetic"}
RARE = 0.3
"""The share of pairs with a word on each side that stands nowhere else, as in natural text."""


def words(count: int, seed: int) -> list[str]:
    """Made-up words out of syllables, so that subwords have something to find."""
    chance = random.Random(seed)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ei", "ü")]
    return ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(count)]


def synthetic(count: int) -> Iterator[tuple[str, str]]:
    """A stream of pairs: 3 to 24 words a side, common words often and rare ones seldom."""
    chance = random.Random(1)
    source, target = words(20_000, 2), words(20_000, 3)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, 20_001)))
    for _ in range(count):
        length = chance.randint(3, 24)
        chosen = chance.choices(range(20_000), cum_weights=weights, k=length)
        sides = [source[i] for i in chosen], [target[i] for i in chosen]
        if chance.random() < RARE:
            for side in sides:
                side[0] = f"{chance.getrandbits(40):x}"
        yield " ".join(sides[0]), " ".join(sides[1])


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def tokenizer_stage(folder: Path) -> dict[str, float]:
    from headway.data.tokenizer import Tokenizer, TokenizerConfig

    sample = itertools.chain.from_iterable(synthetic(SAMPLE // 2))
    Tokenizer.train(sample, TokenizerConfig(vocabulary=16_000)).save(folder / "tokenizer.json")
    return {}


def build_stage(folder: Path, pairs: int) -> dict[str, float]:
    from headway.data.store import build_store
    from headway.data.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    store = build_store(folder / f"store-{pairs}", synthetic(pairs), tokenizer, tokenizer, key=KEY, longest=512)
    size = sum(path.stat().st_size for path in store.folder.iterdir())
    return {"bytes": size, "tokens": sum(store.manifest["tokens"])}


def start_stage(folder: Path, pairs: int) -> dict[str, float]:
    from headway.data.batches import batches
    from headway.data.plan import plan_epoch
    from headway.data.store import open_store
    from headway.data.tokenizer import Tokenizer

    imported = peak_megabytes()
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    store = open_store(folder / f"store-{pairs}", KEY)
    assert store is not None, "the store just built must open"
    lengths = store.source_lengths, store.target_lengths
    begin = time.perf_counter()
    plan = plan_epoch(*lengths, seed=1, epoch=0, budget=8192, layout="packed", folder=folder / f"plans-{pairs}")
    planned = time.perf_counter()
    iterator = batches(store, plan, tokenizer, tokenizer)
    units = next(iterator).units
    first = time.perf_counter()
    iterator.close()
    times = {"plan_seconds": round(planned - begin, 3), "first_batch_seconds": round(first - planned, 3)}
    return {**times, "imports_peak_megabytes": imported, "batches": len(plan), "first_batch_units": units}


def write_stage(folder: Path, pairs: int) -> dict[str, float]:
    sides = [folder / f"corpus-{pairs}.{side}" for side in ("source", "target")]
    with sides[0].open("w", encoding="utf-8") as source, sides[1].open("w", encoding="utf-8") as target:
        for left, right in synthetic(pairs):
            source.write(f"{left}\n")
            target.write(f"{right}\n")
    return {"bytes": sum(side.stat().st_size for side in sides)}


def settings(folder: Path, pairs: int):
    from headway.data.config import DataConfig

    return DataConfig(source=folder / f"corpus-{pairs}.source", target=folder / f"corpus-{pairs}.target")


def prepare_stage(folder: Path, pairs: int) -> dict[str, float]:
    from headway.data.preparation import divide, prepare
    from headway.data.tokenizer import TokenizerConfig

    imported = peak_megabytes()
    times, begin, last = {}, time.perf_counter(), ["counting"]

    def report(what: str, done: int, total: int | None) -> None:
        if what != last[0]:
            times[f"{last[0].split()[0]}_done_megabytes"] = peak_megabytes()
            last[0] = what

    config = settings(folder, pairs)
    split = divide(config, report)
    times["divide_seconds"] = round(time.perf_counter() - begin, 2)
    vocabulary = TokenizerConfig(vocabulary=16_000)
    prepared = prepare(config, vocabulary, folder / f"data-{pairs}", longest=512, split=split, report=report)
    return {**times, "imports_peak_megabytes": imported, "kept": len(prepared.store), "valid": len(split.valid)}


def resume_stage(folder: Path, pairs: int) -> dict[str, float]:
    from headway.data.feed import Feed
    from headway.data.preparation import reopen

    imported = peak_megabytes()
    prepared = reopen(settings(folder, pairs), folder / f"data-{pairs}")
    assert prepared is not None, "what was just prepared must open"
    common = {"seed": 1, "budget": 8192, "layout": "packed", "folder": folder / f"plans-{pairs}"}
    peaks = {"imports_peak_megabytes": imported, "reopened_peak_megabytes": peak_megabytes()}
    for curriculum in (0, 4):
        count, batches = Feed(prepared, **common, dropout=0.0, longest=511, curriculum=curriculum).epoch(0, 0)
        next(batches)
        peaks |= {f"batches_of_curriculum_{curriculum}": count}
    return peaks


STAGES = {
    "write": write_stage,
    "build": build_stage,
    "start": start_stage,
    "prepare": prepare_stage,
    "resume": resume_stage,
}


def stage(name: str, folder: Path, pairs: int) -> None:
    begin = time.perf_counter()
    result = tokenizer_stage(folder) if name == "tokenizer" else STAGES[name](folder, pairs)
    seconds = round(time.perf_counter() - begin, 2)
    line = {"stage": name, "pairs": pairs, "seconds": seconds, "peak_megabytes": peak_megabytes(), **result}
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder by default")
    parser.add_argument("--stages", default="build,start,write,prepare,resume", help="which to run, in order")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        stage(options.stage, options.folder, options.pairs)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        chosen = options.stages.split(",")
        stages = [("tokenizer", SAMPLE)] if "build" in chosen else []
        stages += [(name, pairs) for pairs in (options.pairs // 10, options.pairs) for name in chosen]
        for name, pairs in stages:
            # its own process each: the peak of memory is a process's, and never falls
            command = [sys.executable, __file__, "--stage", name, "--pairs", str(pairs), "--folder", folder]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            show(json.loads(told.splitlines()[-1]))


if __name__ == "__main__":
    main()
