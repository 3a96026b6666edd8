"""Every sequence-to-sequence model of the family on one corpus, at about equal parameters: JSON lines.

    python benchmarks/family.py --data FOLDER --out RUNS                     # Multi30k en-de, all models
    python benchmarks/family.py --data FOLDER --out RUNS --only fixed-context additive transformer --steps 2000
    python benchmarks/family.py --sizes                                      # parameters alone

FOLDER holds the files of `recipes/multi30k-en-de/recipe.toml`, whose data, tokenizer and schedule all models share; a
model keeps its own settings of `MODELS`. Each is trained, then scored on test2016 (BLEU as the recipe has it) and
timed: target tokens a second in training, sentences a second in decoding, in batches and one by one. Those that write
all tokens at once, and `shallow`, the Transformer that is their rival as a student, learn from what a teacher made of
the sources, with its vocabulary, where one is given:

    python benchmarks/family.py --data FOLDER --out RUNS --only fertility shallow --teacher RUNS/transformer-1
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from headway.assemble import choose_device, train
from headway.cli.recipes import overrides
from headway.config import override, read_toml, validated
from headway.evaluation import score
from headway.forecast.sizes import outline
from headway.models.catalog import read_model_config
from headway.recipe import Recipe
from headway.screen import Silent
from headway.translator import Translator, load, model_folder
from peers.origin import show

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "multi30k-en-de" / "recipe.toml"
VOCABULARY = 10_000
RECURRENT = {"architecture": "recurrent", "dim": 176}
MODELS: dict[str, dict[str, Any]] = {
    "fixed-context": {**RECURRENT, "attention": "none"},
    "additive": RECURRENT,
    "dot": {**RECURRENT, "attention": "dot", "input_feeding": True},
    "multiplicative": {**RECURRENT, "attention": "multiplicative", "input_feeding": True},
    "local-p": {**RECURRENT, "attention": "multiplicative", "window": "local-p"},
    "convolutional": {"architecture": "convolutional", "dim": 132, "encoder_layers": 6, "decoder_layers": 5},
    "bytenet": {"architecture": "bytenet", "dim": 156, "encoder_layers": 12, "decoder_layers": 12},
    "restricted": {"preset": "tiny", "window": 8},
    "transformer": {"preset": "tiny"},
    "shallow": {"preset": "tiny", "decoder_layers": 1},
    "ctc": {"architecture": "ctc", "dim": 128, "hidden": 320, "heads": 4, "encoder_layers": 4, "decoder_layers": 5},
    "fertility": {"architecture": "fertility", "preset": "tiny", "decoder_layers": 1},
    "mask-predict": {"architecture": "mask-predict", "preset": "tiny"},
}
"""By name: settings that give each about as many parameters as the tiny Transformer has (fertility and shallow a fifth
fewer)."""
STUDENTS = ("ctc", "fertility", "mask-predict", "shallow")
"""Those that learn from a teacher, where there is one."""
ALONE = 100
"""Sentences that are decoded one by one."""


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--steps", type=int, help="updates of every model; those of the recipe by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--teacher", type=Path, help="a run whose outputs the students learn from")
    parser.add_argument("--set", nargs="*", default=[], help="further settings of a recipe")
    parser.add_argument("--device")
    parser.add_argument("--sizes", action="store_true")
    options = parser.parse_args()
    if options.sizes:
        for name, count in sizes().items():
            show({"model": name, "parameters": count})
        return
    device = choose_device(options.device)
    for name in options.only:
        for seed in options.seeds:
            show(measured(name, seed, options, device), device)


def sizes() -> dict[str, int]:
    """The parameters of every model with the vocabulary of the recipe."""
    found = {}
    for name, settings in MODELS.items():
        config = read_model_config({"longest": 128, **settings}, name)
        model = outline(config, VOCABULARY, VOCABULARY)
        found[name] = sum(weight.numel() for weight in model.parameters())
    return found


def measured(name: str, seed: int, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Train one model and say what it reached."""
    out = options.out / f"{name}-{seed}"
    train(recipe(name, seed, options), out, device=device, screen=Silent())
    translator = load(out, device=device)
    source, reference = (
        (options.data / f"tok/test_2016_flickr.lc.norm.tok.{side}").read_text(encoding="utf-8").splitlines()
        for side in ("en", "de")
    )
    outputs = [str(text) for text in translator(source)]
    return {
        "model": name,
        "seed": seed,
        "parameters": sum(weight.numel() for weight in translator.model.parameters()),
        "bleu": round(score(outputs, reference, tokenized=True)["BLEU tokenised"].value, 2),
        "distilled": taught(name, options),
        **training_speed(out),
        **decoding_speed(translator, source),
        "device": str(device),
        "threads": torch.get_num_threads(),
    }


def recipe(name: str, seed: int, options: argparse.Namespace) -> Recipe:
    """The recipe of the corpus with another model in it."""
    tree = read_toml(RECIPE)
    tree["model"] = {"longest": 128, **MODELS[name]}
    changes = [f"training.seed={seed}"]
    if options.steps is not None:
        every = max(1, options.steps // 10)
        changes += [f"training.steps={options.steps}", f"training.validate_every={every}"]
        changes += [f"training.warmup={min(2000, options.steps // 4)}"]
    if taught(name, options):
        tree["tokenizer"] = {"file": str((model_folder(options.teacher) / "tokenizer.json").resolve())}
        changes.append(f"data.target={json.dumps(str(distilled(options, tree).resolve()))}")
    tree = override(tree, overrides([*changes, *options.set], data__folder=options.data.resolve()))
    return validated(Recipe, tree, name)


def taught(name: str, options: argparse.Namespace) -> bool:
    """Whether a model learns from a teacher's outputs."""
    return name in STUDENTS and options.teacher is not None


def distilled(options: argparse.Namespace, tree: dict[str, Any]) -> Path:
    """What the teacher makes of the sources: a file beside its run, made once."""
    found: Path = options.teacher.parent / f"{options.teacher.name}.distilled"
    if not found.exists():
        lines = (options.data / tree["data"]["source"]).read_text(encoding="utf-8").splitlines()
        outputs = load(options.teacher, device=choose_device(options.device))(lines)
        part = found.with_suffix(".part")
        part.write_text("".join(f"{output}\n" for output in outputs), encoding="utf-8")
        part.replace(found)
    return found


def training_speed(out: Path) -> dict[str, float]:
    """Target tokens a second, the median over the run, and the seconds of the whole loop."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    speeds = [line["train/tokens_per_second"] for line in lines if "train/tokens_per_second" in line]
    return {
        "training_tokens_per_second": round(statistics.median(speeds)),
        "training_seconds": round(lines[-1]["time"] - lines[0]["time"], 1),
    }


def decoding_speed(translator: Translator, source: list[str]) -> dict[str, float]:
    """Sentences a second as the recipe decodes, in large batches and one by one; the first time warms up."""
    found = []
    for texts in ([source], source[:ALONE]):
        for text in texts:
            translator(text)
        began = time.perf_counter()
        for text in texts:
            translator(text)
        found.append(time.perf_counter() - began)
    return {
        "sentences_per_second": round(len(source) / found[0], 1),
        "sentences_per_second_alone": round(len(source[:ALONE]) / found[1], 2),
    }


if __name__ == "__main__":
    main()
