"""Decoding speed of models that write all tokens at once, beside a Transformer that writes them one after the other.

    python benchmarks/parallel_decoding.py                                  # random weights of the shape `tiny`
    python benchmarks/parallel_decoding.py --preset base --device cuda
    python benchmarks/parallel_decoding.py --teacher RUN --students FERTILITY MASKPREDICT CTC --text FILE

Random weights: all models have the layers, features and vocabulary of the teacher, and the sources 12 to 36 tokens. The
teacher writes as many tokens as its source has, the others one more at most. With `--teacher` and `--students`, models
are trained ones, and outputs end where they end them; ids go in and come out, so that tokenizers take no part.

Every turn, each way of decoding in random order translates the same sentences, once one by one and once 32 together: a
slow moment of the machine hits all alike. A student that is a Transformer is called by its layers. One JSON line for
each way and batch: median, lowest and highest sentences a second over the turns, processor milliseconds of a sentence,
and the median over the turns of how many times faster it is than the teacher with a beam of 4 in the same turn, by the
clock and by processor time.
"""

import argparse
import os
import random
import statistics
import time
from pathlib import Path

import torch

from headway.engine import Engine
from headway.engine.readiness import ready
from headway.models.catalog import CATALOG
from headway.models.layered import PRESETS
from headway.models.model import Model
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig, Request, Symbols
from headway.translator import load
from peers.origin import show

VOCABULARY, PADDING, START, END = 8000, 0, 1, 2
TEACHER = {"beam 4": {"beam": 4}, "greedy": {"beam": 1}}
WAYS = {
    "fertility": {
        "argmax": {"fertilities": "argmax"},
        "average": {"fertilities": "average"},
        "noisy 10": {"fertilities": "noisy", "beam": 10},
    },
    "mask-predict": {
        "4 rounds, 1 length": {"iterations": 4, "beam": 1},
        "10 rounds, 1 length": {"iterations": 10, "beam": 1},
        "10 rounds, 5 lengths": {"iterations": 10, "beam": 5},
    },
    "ctc": {"greedy": {"beam": 1}, "beam 4": {"beam": 4}},
}
"""How models are decoded, by architecture."""
BATCHES = 1, 32
REFERENCE = "transformer", "beam 4"

Way = tuple[str, str]


def made(options: argparse.Namespace) -> tuple[dict[str, Model], Symbols, list[Request]]:
    """Models with random weights, and sentences of random tokens."""
    sizes = PRESETS[options.preset]
    torch.manual_seed(1)
    models: dict[str, Model] = {"transformer": Transformer(TransformerConfig(**sizes), VOCABULARY, VOCABULARY)}
    for name in WAYS.keys() & CATALOG.keys():
        config, module = CATALOG[name]
        known = {field: value for field, value in sizes.items() if field in config.model_fields}
        models[name] = module(config(architecture=name, **known), VOCABULARY, VOCABULARY)
    with torch.no_grad():
        models["transformer"].output.bias[END] = -1e4  # it writes up to its limit
        models["fertility"].fertility.weight.zero_()  # one token for each of the source, as untrained heads incline to
        models["mask-predict"].length.weight.zero_()
    draw = random.Random(1)
    drawn = [[draw.randrange(3, VOCABULARY) for _ in range(draw.randint(12, 36))] for _ in range(options.sentences)]
    return models, Symbols(START, END, (PADDING, START)), [Request(tuple(ids), seed=at) for at, ids in enumerate(drawn)]


def trained(options: argparse.Namespace) -> tuple[dict[str, Model], Symbols, list[Request]]:
    """Models from their folders, and the sentences of a text, all with the teacher's tokens."""
    teacher = load(options.teacher, device=options.device)
    models = {"transformer": teacher.model}
    for folder in options.students:
        student = load(folder, device=options.device)
        if student.source.fingerprint() != teacher.source.fingerprint():
            raise SystemExit(f"{folder}: has another vocabulary than the teacher; distil it with the teacher's")
        models[called(student.model, models)] = student.model
    lines = options.text.read_text(encoding="utf-8").splitlines()[: options.sentences]
    ids = [each for each in teacher.tokenize(lines) if each]
    return models, teacher.symbols, [teacher.request(each) for each in ids]


def called(student: Model, models: dict[str, Model]) -> str:
    """What a student is called beside models that have their names already."""
    config = student.config
    told = isinstance(config, TransformerConfig)
    name = f"transformer, {config.encoder_layers}+{config.decoder_layers} layers" if told else config.architecture
    return name if name not in models else f"{name}, {sum(each.startswith(name) for each in models) + 1}"


def spent(engine: Engine, requests: list[Request], config: DecodingConfig, size: int) -> tuple[float, float]:
    """Seconds a sentence, by the clock and of the processor."""
    began, worked = time.perf_counter(), time.process_time()
    for first in range(0, len(requests), size):
        engine.search(requests[first : first + size], config)
    if engine.device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / len(requests), (time.process_time() - worked) / len(requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--students", type=Path, nargs="+", default=[])
    parser.add_argument("--text", type=Path, help="sentences to translate, one a line")
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny", help="the shape of random weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--sentences", type=int, default=32)
    options = parser.parse_args()
    if (options.teacher is None) != (options.text is None):
        parser.error("--teacher needs --students and --text")
    torch.set_num_threads(options.threads)
    models, symbols, requests = made(options) if options.teacher is None else trained(options)
    engines = {
        name: Engine(ready(model.to(options.device), options.precision), symbols) for name, model in models.items()
    }
    limits = {"limit_ratio": 1.0, "limit_extra": 0} if options.teacher is None else {}
    ways: dict[Way, DecodingConfig] = {}
    for kind, model in models.items():
        told, more = (TEACHER, limits) if isinstance(model, Transformer) else (WAYS[model.config.architecture], {})
        ways |= {(kind, name): DecodingConfig(**settings, **more) for name, settings in told.items()}
    for way, config in ways.items():  # warm
        if options.device == "cpu":
            spent(engines[way[0]], requests[:4], config, 2)
        else:  # a graph for every size is captured before it counts
            for size in BATCHES:
                spent(engines[way[0]], requests, config, size)
    times: dict[tuple[Way, int], list[tuple[float, float]]] = {}
    order = random.Random(0)
    for _ in range(options.turns):
        for way, size in order.sample([(way, size) for way in ways for size in BATCHES], len(ways) * len(BATCHES)):
            times.setdefault((way, size), []).append(spent(engines[way[0]], requests, ways[way], size))
    facts = {"device": options.device, "threads": options.threads, "cores": os.cpu_count(), "turns": options.turns}
    facts |= {"sentences": len(requests), "weights": "random" if options.teacher is None else "trained"}
    facts |= {"preset": options.preset} if options.teacher is None else {}
    for (kind, name), size in sorted(times, key=lambda key: (key[1], list(ways).index(key[0]))):
        found, base = times[(kind, name), size], times[REFERENCE, size]
        rates = sorted(1 / clock for clock, _ in found)
        gains = [
            [ours[place] and theirs[place] / ours[place] for ours, theirs in zip(found, base, strict=True)]
            for place in (0, 1)
        ]
        line = {
            "model": kind,
            "decoding": name,
            "batch": size,
            "sentences_per_second": round(statistics.median(rates), 2),
        }
        line |= {"lowest": round(rates[0], 2), "highest": round(rates[-1], 2)}
        line |= {"processor_ms": round(1000 * statistics.median(worked for _, worked in found), 3)}
        line |= {"times_faster": round(statistics.median(gains[0]), 2)}
        line |= {"times_less_work": round(statistics.median(gains[1]), 2)}
        show(line | facts)


if __name__ == "__main__":
    main()
