"""What Headway adds to CTranslate2: the same tokens by hand and through Headway, in turns, on one machine.

    pip install 'headway[ctranslate2]'
    python benchmarks/decode_engines.py --model RUN --text FILE [--sentences 1000] [--repeats 5] [--workers 2]

By hand is one call of `translate_batch` for all sentences, with CTranslate2's own sorting in batches of `--batch`
tokens, one hypothesis each, with its score and without (a score costs greedy decoding a softmax a step). Through
Headway is `CTranslate2Backend.search`, which scores and ranks every hypothesis and keeps every sentence's own limit.
All share one loaded model. One JSON line for each precision and beam: median sentences per second and their spread; the
median over the repeats of Headway's speed over that by hand, by the clock and by processor time; and the share of
outputs that are the same. Headway's own engine is measured beside them unless `--without-own` is given.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from headway.data.text import read_lines
from headway.interop.ctranslate2 import CTranslate2Backend
from headway.search import DecodingConfig, Hypothesis, Request
from headway.translator import load
from peers.origin import show


def by_hand(
    backend: CTranslate2Backend, sources: list[list[str]], config: DecodingConfig, batch: int, *, scores: bool
) -> list[list[str]]:
    longest = max(len(source) for source in sources) - 1
    found: list[Any] = backend.inner.translate_batch(
        sources,
        beam_size=config.beam,
        length_penalty=config.length_penalty,
        max_batch_size=batch,
        batch_type="tokens",
        max_decoding_length=min(config.limit(longest), backend.own.longest),
        min_decoding_length=0,
        max_input_length=0,
        return_scores=scores,
    )
    return [each.hypotheses[0] for each in found]


def told(rates: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(rates), 1),
        "lowest": round(min(rates), 1),
        "highest": round(max(rates), 1),
    }


def timed(work: Callable[[], list[list[str]]]) -> tuple[float, float, list[list[str]]]:
    started, busy = time.perf_counter(), time.process_time()
    answer = work()
    return time.perf_counter() - started, time.process_time() - busy, answer


def over(rates: dict[str, list[float]], other: str) -> float:
    pairs = zip(rates["headway"], rates[other], strict=True)
    return round(statistics.median(mine / other for mine, other in pairs), 3)


def first(found: list[list[Hypothesis]]) -> list[list[str]]:
    return [[str(token) for token in each[0].tokens] for each in found]


def measured(
    backend: CTranslate2Backend, requests: list[Request], config: DecodingConfig, options: argparse.Namespace
) -> dict[str, Any]:
    end = str(backend.own.source.end)
    sources = [[*map(str, request.source), end] for request in requests]
    ways = {
        "by hand": lambda: by_hand(backend, sources, config, options.batch, scores=True),
        "by hand, no scores": lambda: by_hand(backend, sources, config, options.batch, scores=False),
        "headway": lambda: first(backend.search(requests, config)),
    }
    if options.own:
        ways["own engine"] = lambda: first(backend.own.engine.search(requests, config))
    rates: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}
    answers: dict[str, list[list[str]]] = {}
    for turn in range(options.repeats + 1):  # the first is for warming up
        names = list(ways) if turn % 2 else list(ways)[::-1]
        for name in names:
            seconds, processor, answers[name] = timed(ways[name])
            rates[name] += [len(requests) / seconds] if turn else []
            busy[name] += [1 / processor] if turn else []
    same = [mine == other for mine, other in zip(answers["headway"], answers["by hand"], strict=True)]
    return {
        **{name: told(each) for name, each in rates.items()},
        "headway over by hand": over(rates, "by hand"),
        "by processor time": over(busy, "by hand"),
        "headway over by hand, no scores": over(rates, "by hand, no scores"),
        "by processor time, no scores": over(busy, "by hand, no scores"),
        "same outputs": round(sum(same) / len(same), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--length-penalty", type=float, default=0.6)
    parser.add_argument("--without-own", dest="own", action="store_false")
    options = parser.parse_args()
    torch.set_num_threads(options.workers or torch.get_num_threads())
    translator = load(options.model)
    lines = [line for line in read_lines(options.text) if line.strip()][: options.sentences]
    requests = [Request(tuple(ids[: translator.longest])) for ids in translator.tokenize(lines)]
    for int8 in (False, True):
        backend = CTranslate2Backend.of(translator, int8=int8, workers=options.workers)
        for beam in options.beams:
            config = DecodingConfig(beam=beam, length_penalty=options.length_penalty)
            facts = {"precision": "int8" if int8 else "fp32", "beam": beam, "sentences": len(requests)}
            facts |= {"workers": backend.workers, "batch": options.batch}
            show(facts | measured(backend, requests, config, options))


if __name__ == "__main__":
    main()
