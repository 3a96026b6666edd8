"""Losses and outputs of every architecture, method and way of decoding, to hold one commit against another.

    python tests/same_results.py --out old.json      # in the tree of one commit
    python tests/same_results.py --out new.json      # in that of another, on the same machine
    python tests/same_results.py --compare old.json new.json

On a CPU in single precision, one thread: what did not change is the same to the last bit. The short curves that a test
holds against on other processors, within a tolerance, come from `--updates 8 --seeds 1 --losses-only --out
tests/learning/golden.json`.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from headway.assemble import train
from headway.config import validated
from headway.errors import ConfigError
from headway.recipe import Recipe
from headway.screen import Silent
from headway.search import DecodingConfig
from headway.sentence import Sentence
from headway.training.trainer import Update
from headway.translator import load

LAYERED = {"dim": 32, "heads": 4, "hidden": 64, "encoder_layers": 2, "decoder_layers": 2}
SMALL = {"dim": 32, "encoder_layers": 2, "decoder_layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": LAYERED,
    "transformer, pre-norm, gated, rotary": {**LAYERED, "norm": "pre", "feedforward": "gated", "positions": "rotary"},
    "transformer, learned positions": {**LAYERED, "positions": "learned"},
    "transformer, relative positions": {**LAYERED, "positions": "relative"},
    "transformer, ALiBi, three heads": {**LAYERED, "dim": 36, "heads": 3, "positions": "alibi"},
    "transformer, window": {**LAYERED, "window": 4},
    "recurrent": {"architecture": "recurrent", "dim": 32},
    "recurrent, fed, LSTM": {"architecture": "recurrent", "dim": 32, "cell": "lstm", "attention": "dot",
                             "input_feeding": True},
    "recurrent, local": {"architecture": "recurrent", "dim": 32, "attention": "multiplicative", "window": "local-p"},
    "recurrent, no attention": {"architecture": "recurrent", "dim": 32, "attention": "none", "cell": "lstm"},
    "convolutional": {"architecture": "convolutional", **SMALL},
    "bytenet": {"architecture": "bytenet", **SMALL},
    "hierarchical": {"architecture": "hierarchical", "dim": 32},
    "language": {"architecture": "language", "dim": 32, "heads": 4, "hidden": 64, "layers": 2},
    "ctc": {"architecture": "ctc", **LAYERED},
    "ctc, recurrent": {"architecture": "ctc", "encoder": "recurrent", **LAYERED},
    "fertility": {"architecture": "fertility", **LAYERED},
    "mask-predict": {"architecture": "mask-predict", **LAYERED},
}  # fmt: skip
PADDED_ONLY = ("recurrent", "convolutional", "bytenet", "hierarchical", "ctc", "fertility", "mask-predict")
METHODS: dict[str, dict[str, Any]] = {
    "R-Drop": {"training": {"r_drop": 5.0}},
    "scheduled sampling": {"training": {"scheduled_sampling": 0.3}},
    "guided alignment": {"training": {"guided_alignment": 0.1}, "data": {"alignment": "links"}},
    "word dropout": {"data": {"word_dropout": 0.1}},
    "subword dropout, two vocabularies": {"tokenizer": {"dropout": 0.1, "joint": False}},
    "accumulation, average of weights": {"training": {"accumulate": 2, "ema": 0.9}},
    "AdamW, cosine, curriculum": {"training": {"optimiser": "adamw", "weight_decay": 0.01, "schedule": "cosine",
                                               "curriculum": 2}},
    "Muon": {"training": {"optimiser": "muon", "weight_decay": 0.01}},
    "computed again": {"training": {"recompute": True}},
}  # fmt: skip
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4, "nbest": 2},
    "groups": {"beam": 4, "groups": 2},
    "penalties": {"beam": 4, "length_penalty": 1.0, "coverage_penalty": 0.2, "no_repeat": 2, "repetition": 1.2},
    "limits": {"beam": 2, "limit_ratio": 0.5, "limit_extra": 1, "shortest_extra": 2},
    "samples": {"sample": True, "nbest": 2, "beam": 2, "temperature": 0.9, "top_p": 0.9, "seed": 3},
    "typical samples": {"sample": True, "typical": 0.9, "seed": 4},
    "top samples": {"sample": True, "top_k": 5, "seed": 5},
    "minimum Bayes risk": {"beam": 4, "mbr": 4},
}
AT_ONCE: dict[str, dict[str, Any]] = {
    "likeliest": {"beam": 1},
    "several": {"beam": 3, "nbest": 2},
    "average": {"beam": 1, "fertilities": "average"},
    "noisy": {"beam": 4, "fertilities": "noisy", "seed": 2},
}


@dataclass
class Kept(Silent):
    """Keeps the loss of every update."""

    losses: list[float] = field(default_factory=list)

    def updated(self, update: Update) -> None:
        """One more."""
        self.losses.append(update.loss)


def write_corpus(folder: Path) -> None:
    """Sentences of a made language, the same in capitals and the other way round, and which word is which."""
    chance = random.Random(1)
    words = ["".join(chance.choice("abcdefghij") for _ in range(chance.randint(1, 6))) for _ in range(90)]
    sentences = [[chance.choice(words) for _ in range(chance.randint(1, 9))] for _ in range(400)]
    texts = {
        "source": (" ".join(each) for each in sentences),
        "target": (" ".join(reversed(each)).upper() for each in sentences),
        "links": (" ".join(f"{place}-{len(each) - 1 - place}" for place in range(len(each))) for each in sentences),
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def cases(seeds: list[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every run by name, with what it sets."""
    for seed in seeds:
        for name, model in MODELS.items():
            for layout in ("padded",) if name.startswith(PADDED_ONLY) else ("padded", "packed"):
                yield f"{name}, {layout}, seed {seed}", {"model": model, "training": {"seed": seed, "layout": layout}}
        for name, given in METHODS.items():
            training = {"seed": seed, "layout": "padded"} | given.get("training", {})
            yield f"{name}, seed {seed}", {"model": LAYERED, **given, "training": training}


def trained(folder: Path, given: dict[str, Any], updates: int) -> list[float]:
    """Train in `folder` for some updates; the loss of each."""
    write_corpus(folder)
    files = {"text": "target"} if _writes_freely(given) else {"source": "source", "target": "target"}
    tree = {
        "data": {"folder": str(folder), "held_out": 40, **files, **given.get("data", {})},
        "tokenizer": {"vocabulary": 320, **given.get("tokenizer", {})},
        "model": {"longest": 64, "dropout": 0.1, **given["model"]},
        "training": {"steps": updates, "batch_tokens": 256, "validate_every": updates, "learning_rate": 0.003,
                     "warmup": 10, "average": 1, "samples": 0, "validation_sentences": 8, "log_every": 1,
                     **given["training"]},
        "decoding": {"longest": 40},
    }  # fmt: skip
    screen = Kept()
    train(validated(Recipe, tree, "golden"), folder / "run", device=torch.device("cpu"), screen=screen)
    return screen.losses


def decoded(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """What the model trained there writes, in every way it can."""
    if _writes_freely(given):
        return {}
    translator, outputs = load(folder / "run"), {}
    sources = (folder / "source").read_text(encoding="utf-8").splitlines()[:12]
    for way, settings in (SEARCHES if hasattr(translator.model, "advance") else AT_ONCE).items():
        try:
            found = translator.translate([Sentence(text) for text in sources], DecodingConfig(longest=40, **settings))
            outputs[way] = [[str(each), *each.alternatives, each.score] for each in found]
        except ConfigError:
            outputs[way] = ["refused"]
    return outputs


def _writes_freely(given: dict[str, Any]) -> bool:
    return given["model"].get("architecture") == "language"


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """One line for every run that is not the same, with how far it is off."""
    for name in sorted(old.keys() ^ new.keys()):
        yield f"{name}: in one of them only"
    for name in old.keys() & new.keys():
        one, other = old[name], new[name]
        far = max((abs(a - b) / abs(a) for a, b in zip(one["losses"], other["losses"], strict=True)), default=0.0)
        ways = [way for way in one["outputs"] if one["outputs"][way] != other["outputs"].get(way)]
        if far or ways:
            yield f"{name}: losses up to {far:.1e} apart; other outputs: {', '.join(ways) or 'none'}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path)
    options.add_argument("--updates", type=int, default=50)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    options.add_argument("--losses-only", action="store_true", help="decode nothing")
    options.add_argument("--only", default="", help="runs whose name begins so")
    options.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    given = options.parse_args()
    if given.compare:
        lines = list(differences(*(json.loads(path.read_text(encoding="utf-8")) for path in given.compare)))
        print("\n".join(lines) or "the same to the last bit")
        return bool(lines)
    torch.set_num_threads(1)
    found = {}
    for name, settings in cases(given.seeds):
        if name.startswith(given.only):
            with tempfile.TemporaryDirectory() as folder:
                losses = trained(Path(folder), settings, given.updates)
                outputs = {} if given.losses_only else decoded(Path(folder), settings)
            found[name] = {"losses": losses, "outputs": outputs}
            print(name, found[name]["losses"][-1], file=sys.stderr, flush=True)
    given.out.write_text(json.dumps(found, indent=0, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
