"""Memory and time of building a token store and of starting from it, for N pairs and for a tenth: JSON lines."""

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

SAMPLE = 100_000  # sentences the tokenizer learns from
KEY = {"corpus": "synthetic"}


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
        yield " ".join([source[i] for i in chosen]), " ".join([target[i] for i in chosen])


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


def stage(name: str, folder: Path, pairs: int) -> None:
    begin = time.perf_counter()
    if name == "tokenizer":
        result = tokenizer_stage(folder)
    else:
        result = build_stage(folder, pairs) if name == "build" else start_stage(folder, pairs)
    seconds = round(time.perf_counter() - begin, 2)
    line = {"stage": name, "pairs": pairs, "seconds": seconds, "peak_megabytes": peak_megabytes(), **result}
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder by default")
    parser.add_argument("--stage", choices=("tokenizer", "build", "start"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        stage(options.stage, options.folder, options.pairs)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        stages = [("tokenizer", SAMPLE)]
        stages += [(name, pairs) for pairs in (options.pairs // 10, options.pairs) for name in ("build", "start")]
        for name, pairs in stages:
            # its own process each: the peak of memory is a process's, and never falls
            command = [sys.executable, __file__, "--stage", name, "--pairs", str(pairs), "--folder", folder]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
