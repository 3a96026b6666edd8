"""Every setting of a recipe makes the difference it is for, on the way that `headway train` goes."""

import hashlib
import json
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from headway import assemble
from headway.config import Settings, validated
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import HeadwayError
from headway.models.catalog import CATALOG
from headway.recipe import Recipe
from headway.run_folder import BEST
from headway.screen import Silent
from headway.training.checkpoint import Checkpoints, Snapshot
from headway.training.trainer import Trainer, Update, Validation
from headway.translator import load
from headway.validation import Validator
from sentences import SENTENCES

BASE = {
    "data.source": "source", "data.target": "target", "tokenizer.vocabulary": 300,
    "training.steps": 3, "training.batch_tokens": 256, "training.learning_rate": 0.003, "training.warmup": 1,
    "training.validate_every": 3, "training.validation_sentences": 2, "training.samples": 0,
}  # fmt: skip
STACKED = {"dropout": 0.1, "dim": 16, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 64}
LAYERS = {"dropout": 0.1, "dim": 16, "encoder_layers": 1, "decoder_layers": 1, "longest": 64}
SHAPES: dict[str, dict[str, Any]] = {
    "transformer": STACKED,
    "recurrent": {**LAYERS, "attention_hidden": 16},
    "convolutional": LAYERS,
    "bytenet": {**LAYERS, "encoder_layers": 2, "decoder_layers": 2},
    "hierarchical": {"dim": 16, "attention_hidden": 16, "longest": 64},
    "language": {"dim": 16, "heads": 2, "hidden": 16, "layers": 1, "longest": 64},
    "ctc": STACKED,
    "fertility": STACKED,
    "mask-predict": STACKED,
}
"""The smallest models of every architecture."""


@dataclass
class Seen(Silent):
    """A run, what was to be seen of it, and the screen that it was shown on."""

    out: Path
    trainer: Trainer | None = None
    saved: list[int] = field(default_factory=list)
    """Steps at which checkpoints were written."""
    lines: list[str] = field(default_factory=list)
    deterministic: set[bool] = field(default_factory=set)
    calls: int = 0
    """How often modules were called in training."""

    def say(self, line: str) -> None:
        self.lines.append(line.replace(str(self.out), "RUN"))

    def updated(self, update: Update) -> None:
        self.deterministic.add(torch.are_deterministic_algorithms_enabled())


# What a setting can make a difference to.


def weights(seen: Seen) -> str:
    """After the last update."""
    return digest(seen.trainer.model)


def updates(seen: Seen) -> int:
    return seen.trainer.progress.step


def journal(seen: Seen) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (seen.out / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if name not in ("time", "train/tokens_per_second")} for line in lines]


def saved(seen: Seen) -> list[int]:
    return seen.saved


def best(seen: Seen) -> tuple[tuple[float, int], ...]:
    """The checkpoints that the model will be made of, and by what they were ranked."""
    return seen.trainer.progress.best


def calls(seen: Seen) -> int:
    return seen.calls


def arithmetic(seen: Seen) -> set[bool]:
    return seen.deterministic


def validated_on(seen: Seen) -> list[tuple[str, ...]]:
    return [tuple(pair[:2]) for pair in seen.trainer.validate.pairs]


def said(seen: Seen) -> list[str]:
    """On the screen, translations of validation pairs among it."""
    return seen.lines


def kept(seen: Seen) -> str:
    """The model in the folder."""
    return digest(load(seen.out / BEST).model)


def outputs(seen: Seen) -> list[tuple[object, ...]]:
    """What the model in the folder makes of some texts, with the scores."""
    found = load(seen.out / BEST)([*SENTENCES[:2], " ".join(SENTENCES[:3])])
    return [(str(text), *((each.tokens, each.score) for each in text.hypotheses)) for text in found]


def digest(model: nn.Module) -> str:
    told = hashlib.sha256()
    for name, weight in model.named_parameters():
        told.update(f"{name} {list(weight.shape)}".encode() + weight.detach().numpy().tobytes())
    return told.hexdigest()


# The table.


@dataclass(frozen=True)
class Row:
    """A setting: another value of it, where the difference is seen, and what is set beside it in both runs."""

    value: Any
    sees: Callable[[Seen], object] = weights
    beside: dict[str, Any] = field(default_factory=dict)


def shape(architecture: str, **others: Any) -> dict[str, Any]:
    """The settings of the smallest model of an architecture; None leaves one out."""
    given = {"architecture": architecture, **SHAPES[architecture], **others}
    alone = {"data.source": None, "data.target": None, "data.text": "source"} if architecture == "language" else {}
    return alone | {f"model.{name}": value for name, value in given.items()}


CORPORA = ({"source": "source", "target": "target"}, {"name": "second", "source": "other", "target": "target"})
SEVERAL = {"data.source": None, "data.target": None, "data.corpora": CORPORA}
WEIGHED = {**SEVERAL, "data.corpora": tuple({**each, "weight": 1.0} for each in CORPORA)}
VALIDATED = tuple({**each, "valid_source": "new", "valid_target": "newer"} for each in CORPORA)
GIVEN = {"data.valid_source": "newer", "data.valid_target": "newer"}
UNENDING = {"training.steps": None, "training.epochs": 4, "training.validate_every": 100}
SHORT = {"training.learning_rate": 0.3, "decoding.longest": 10, "decoding.shortest_extra": 4}
DRAWN = SHORT | {"decoding.sample": True}
ROWS: dict[str, Row] = {
    "data.folder": Row("elsewhere", beside={"data.folder": "."}),
    "data.source": Row("other"),
    "data.target": Row("other"),
    "data.text": Row("other", beside=shape("language")),
    "data.temperature": Row(5.0, beside=SEVERAL),
    "data.tags": Row(("medical",)),
    "data.valid_source": Row("new", validated_on, GIVEN),
    "data.valid_target": Row("new", validated_on, GIVEN),
    "data.valid_text": Row("new", validated_on, shape("language")),
    "data.test_source": Row("source", said),
    "data.columns": Row((2, 3), beside={"data.source": "pairs.tsv", "data.target": None}),
    "data.fields": Row(("target", "third"), beside={"data.source": "pairs.jsonl", "data.target": None}),
    "data.invalid": Row("skip", said, {"data.source": "latin"}),
    "data.held_out": Row(1, validated_on),
    "data.alignment": Row("links", beside={"data.alignment": "other.links", "training.guided_alignment": 1.0}),
    "data.word_dropout": Row(0.3),
    "data.source_vectors": Row("vectors", beside={"tokenizer.joint": False}),
    "data.target_vectors": Row("vectors", beside={"tokenizer.joint": False}),
    "data.cleaning.drop_empty": Row(False),
    "data.cleaning.longest_words": Row(8),
    "data.cleaning.longest_characters": Row(30),
    "data.cleaning.longest_ratio": Row(2.0),
    "data.cleaning.drop_duplicates": Row(True),
    "data.cleaning.unicode": Row("nfc"),
    "data.corpora.name": Row("first", said, SEVERAL),
    "data.corpora.source": Row("other", beside=SEVERAL),
    "data.corpora.target": Row("other", beside=SEVERAL),
    "data.corpora.valid_source": Row("newer", validated_on, {**SEVERAL, "data.corpora": VALIDATED}),
    "data.corpora.valid_target": Row("new", validated_on, {**SEVERAL, "data.corpora": VALIDATED}),
    "data.corpora.tags": Row(("medical",), beside=SEVERAL),
    "data.corpora.weight": Row(9.0, beside=WEIGHED),
    "tokenizer.kind": Row("words"),
    "tokenizer.vocabulary": Row(320),
    "tokenizer.joint": Row(False),
    "tokenizer.file": Row("tokenizer.json", beside={"tokenizer.vocabulary": None}),
    "tokenizer.dropout": Row(0.3),
    "start.model": Row("model", beside={"tokenizer.vocabulary": None}),
    "start.extend": Row(9, beside={"tokenizer.vocabulary": None, "start.model": "model"}),
    "training.seed": Row(2),
    "training.steps": Row(2, updates),
    "training.epochs": Row(2, updates, UNENDING),
    "training.time": Row("9s", updates, UNENDING),
    "training.batch_tokens": Row(128),
    "training.layout": Row("packed"),
    "training.accumulate": Row(2),
    "training.learning_rate": Row(0.03),
    "training.schedule": Row("inverse_sqrt"),
    "training.warmup": Row(2),
    "training.optimiser": Row("muon"),
    "training.weight_decay": Row(0.5, beside={"training.optimiser": "adamw"}),
    "training.beta1": Row(0.5),
    "training.beta2": Row(0.5),
    "training.clip": Row(0.001),
    "training.label_smoothing": Row(0.3),
    "training.r_drop": Row(5.0),
    "training.scheduled_sampling": Row(0.9),
    "training.guided_alignment": Row(5.0, beside={"data.alignment": "links"}),
    "training.curriculum": Row(4),
    "training.ema": Row(0.9, kept),
    "training.freeze": Row(("encoder",)),
    "training.deterministic": Row(True, arithmetic),
    "training.recompute": Row(True, calls),
    "training.precision": Row("bf16"),
    "training.validate_every": Row(2, journal),
    "training.save_every": Row(2, saved),
    "training.metric": Row("chrf", best),
    "training.patience": Row(1, updates, {"training.learning_rate": 1e-30, "training.validate_every": 1}),
    "training.average": Row(1, best, {"training.validate_every": 1}),
    "training.samples": Row(1, said),
    "training.validation_pairs": Row(1, journal),
    "training.validation_sentences": Row(1, said, {"training.samples": 9}),
    "training.log_every": Row(1, journal),
    "decoding.beam": Row(1, outputs, SHORT),
    "decoding.nbest": Row(2, outputs, SHORT),
    "decoding.length_penalty": Row(3.0, outputs, SHORT),
    "decoding.coverage_penalty": Row(3.0, outputs, SHORT),
    "decoding.limit_ratio": Row(0.1, outputs, {"decoding.limit_extra": 0, "decoding.shortest_extra": 9}),
    "decoding.limit_extra": Row(2, outputs, {"decoding.limit_ratio": 0.0, "decoding.shortest_extra": 9}),
    "decoding.longest": Row(3, outputs, {"decoding.shortest_extra": 9}),
    "decoding.shortest_ratio": Row(0.5, outputs),
    "decoding.shortest_extra": Row(9, outputs),
    "decoding.no_repeat": Row(1, outputs, SHORT),
    "decoding.repetition": Row(9.0, outputs, SHORT),
    "decoding.groups": Row(2, outputs, {**SHORT, "decoding.nbest": 4}),
    "decoding.diversity": Row(0.0, outputs, {**SHORT, "decoding.nbest": 4, "decoding.groups": 2}),
    "decoding.sample": Row(True, outputs, SHORT),
    "decoding.temperature": Row(0.2, outputs, DRAWN),
    "decoding.top_k": Row(1, outputs, DRAWN),
    "decoding.top_p": Row(0.1, outputs, DRAWN),
    "decoding.typical": Row(0.1, outputs, DRAWN),
    "decoding.seed": Row(2, outputs, DRAWN),
    "decoding.mbr": Row(8, outputs, DRAWN),
    "decoding.fertilities": Row("noisy", outputs, shape("fertility") | {"decoding.nbest": 2}),
    "decoding.iterations": Row(1, outputs, shape("mask-predict")),
    "decoding.long": Row("truncate", outputs, {**SHORT, "model.longest": 24}),
}
SIZES = {"dim": 32, "longest": 14, "dropout": 0.5}
INSIDE = {"heads": 4, "hidden": 32, "norm": "pre", "feedforward": "gelu", "attention_dropout": 0.5,
          "activation_dropout": 0.5}  # fmt: skip
BOTH = {"encoder_layers": 2, "decoder_layers": 2}
LAYERED = {**SIZES, **INSIDE, "tie": "two-way"}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {**LAYERED, **BOTH, "norm": "post", "positions": "rotary", "head_dim": 4, "window": 2},
    "recurrent": {**SIZES, **BOTH, "tie": "none", "cell": "lstm", "bidirectional": False, "attention": "dot",
                  "attention_hidden": 8, "query": "current", "window": "local-m"},
    "convolutional": {**SIZES, **BOTH, "tie": "none", "kernel": 5, "positions": "sinusoidal"},
    "bytenet": {**SIZES, "encoder_layers": 3, "decoder_layers": 3, "tie": "none", "kernel": 5, "dilations": 1,
                "unfold": 2.0, "unfold_extra": 0},
    "hierarchical": {**SIZES, "tie": "none", "context": "document", "boundary": "e", "word_layers": 2,
                     "sentence_layers": 2, "decoder_layers": 2, "attention_hidden": 8},
    "language": {**LAYERED, "tie": "none", "norm": "post", "layers": 2, "positions": "rotary"},
    "ctc": {**LAYERED, **BOTH, "positions": "rotary", "encoder": "recurrent", "upsample": 4},
    "fertility": {**LAYERED, **BOTH, "largest_fertility": 9, "see_itself": True},
    "mask-predict": {**LAYERED, **BOTH, "length_reach": 9},
}  # fmt: skip
"""The settings of every architecture that need nothing beside them."""
for kind, values in MODELS.items():
    ROWS |= {f"model.{kind}.{name}": Row(value, beside=shape(kind)) for name, value in values.items()}
    bare = shape(kind, **dict.fromkeys(SHAPES[kind].keys() - {"dim"}))  # which any other could have
    other = {"model.architecture": "recurrent" if kind == "transformer" else "transformer"}
    ROWS[f"model.{kind}.architecture"] = Row(kind, said if kind == "language" else weights, bare | other)
for kind in ("transformer", "language", "fertility", "mask-predict"):
    ROWS[f"model.{kind}.preset"] = Row("tiny", beside=shape(kind, layers=None, decoder_layers=None))
LOOKING = shape("recurrent", attention="dot")
ROWS |= {
    "model.recurrent.input_feeding": Row(True, beside=LOOKING),
    "model.recurrent.window_size": Row(1, beside=LOOKING | {"model.window": "local-m"}),
    "model.ctc.cell": Row("gru", beside=shape("ctc", encoder="recurrent")),
    "model.ctc.kernel": Row(5, beside=shape("ctc", encoder="convolutional")),
}
UNSEEN = {
    "data.test_target": "only `headway check` reads it",
    "training.sharded": "divides what several processes hold: tests/distributed",
}
"""Settings that make no difference to one process that trains, and why."""


def named(kind: Any, path: str = "") -> Iterator[str]:
    """The dotted names of all settings in a group; those of a model behind its architecture."""
    for name, described in kind.model_fields.items():
        groups = list(grouped(described.annotation))
        for group in groups:
            own = f".{group.model_fields['architecture'].default}" if name == "model" and len(groups) > 1 else ""
            yield from named(group, f"{path}{name}{own}.")
        if not groups:
            yield f"{path}{name}"


def grouped(annotation: Any) -> Iterator[type[Settings]]:
    """The groups of settings that a setting may be."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for part in typing.get_args(annotation):
        yield from grouped(part)


def test_every_setting_of_a_recipe_is_in_the_table():
    known = list(named(Recipe))
    assert {name.split(".")[1] for name in known if name.startswith("model.")} == set(CATALOG)
    assert sorted([*ROWS, *UNSEEN]) == sorted(known)


@pytest.mark.parametrize("name", ROWS)
def test_a_setting_makes_its_difference(name, seen):
    row = ROWS[name]
    group, _, last = name.rpartition(".")
    if group == "data.corpora":
        first, *others = row.beside["data.corpora"]
        changed = {group: ({**first, last: row.value}, *others)}
    else:
        changed = {f"{group.split('.')[0]}.{last}" if group.startswith("model.") else name: row.value}
    assert seen(row.beside | changed, row.sees) != seen(row.beside, row.sees, again=True)


@pytest.mark.parametrize("sees", dict.fromkeys(row.sees for row in ROWS.values()))
def test_the_same_settings_make_no_difference(sees, seen):
    beside = next(row.beside for row in ROWS.values() if row.sees is sees)
    assert seen(beside, sees) == seen(beside, sees)


# Runs.


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, model_folder) -> Path:
    """Sixty pairs and some that are not clean, in several forms, and what else a recipe may name."""
    folder = tmp_path_factory.mktemp("corpus")
    sources = [*SENTENCES, "Zoe\u0308 dort .", "", "le chat voit tout , la reine garde la pomme .", SENTENCES[0], "oui"]
    targets = [*map(str.upper, sources[:-1]), "OUI OUI OUI OUI"]
    others = [" ".join(reversed(line.split())) for line in sources]
    for name, lines in (("source", sources), ("target", targets), ("other", others)):
        write(folder / name, lines)
    for name, lines in (("source", others), ("target", targets)):
        write(folder / "elsewhere" / name, lines)
    for name, lines in (("new", ["un", "deux", "trois"]), ("newer", ["quatre", "cinq", "six"])):
        write(folder / name, lines)
    write(folder / "pairs.tsv", map("\t".join, zip(sources, targets, others, strict=True)))
    rows = zip(sources, targets, others, strict=True)
    records = (dict(zip(("source", "target", "third"), row, strict=True)) for row in rows)
    write(folder / "pairs.jsonl", map(json.dumps, records))
    (folder / "latin").write_bytes((folder / "source").read_bytes().replace(b"oui", b"o\xfci"))
    write(folder / "links", ["0-0" if line else "" for line in sources])
    write(folder / "other.links", [f"{len(line.split()) - 1}-0" if line else "" for line in sources])
    write(folder / "vectors", (f"{word} " + "0.5 " * 15 + "1.0" for word in ("le", "la", "LE", "LA", "L")))
    Tokenizer.train(sources, TokenizerConfig(vocabulary=310)).save(folder / "tokenizer.json")
    (folder / "model").symlink_to(model_folder)
    return folder


def write(path: Path, lines) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def brief(validator, model, check) -> Validation:
    """A validation without translations, which take the most time."""
    return Validation({"loss": validator.loss(model, check), "bleu": 0.0, "chrf": 1.0}, [])


@pytest.fixture(scope="module")
def seen(corpus, tmp_path_factory):
    """Trains by settings, and tells what is seen; what is asked for `again` is trained once."""
    known: dict[str, object] = {}

    def look(settings: dict[str, Any], sees: Callable[[Seen], object], *, again: bool = False) -> object:
        key = f"{sees.__name__} {settings}"
        if not again or key not in known:
            with pytest.MonkeyPatch.context() as patched:
                patched.chdir(corpus)
                known[key] = sees(trained(settings, sees, tmp_path_factory.mktemp("run") / "run", patched))
        return known[key]

    return look


def trained(settings: dict[str, Any], sees: Callable[[Seen], object], out: Path, patched: pytest.MonkeyPatch) -> Seen:
    """What `headway train` does, with its model written where that is looked at; a refusal is something said."""
    seen, called = Seen(out), count(1)
    fit, write = Trainer.fit, Checkpoints.write

    def fitted(trainer: Trainer) -> str:
        seen.trainer, trainer.clock = trainer, map(float, count()).__next__  # a second whenever it is asked
        with nn.modules.module.register_module_forward_hook(lambda *_: next(called) and None):
            return fit(trainer)

    def written(checkpoints: Checkpoints, snapshot: Snapshot) -> None:
        seen.saved.append(snapshot.progress.step)
        write(checkpoints, snapshot)

    patched.setattr(Trainer, "fit", fitted)
    patched.setattr(Checkpoints, "write", written)
    if sees is not said:
        patched.setattr(Validator, "__call__", brief)
    if sees not in (kept, outputs):
        patched.setattr(assemble, "finish", lambda *_: None)
    try:
        assemble.train(validated(Recipe, tree(settings), "test"), out, device=torch.device("cpu"), screen=seen)
    except HeadwayError as error:
        if sees is not said:
            raise
        seen.say(str(error))
    return replace(seen, calls=next(called))


def tree(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a recipe as groups, those of the smallest run where others are not given."""
    made: dict[str, Any] = {}
    given = BASE | ({} if "model.architecture" in settings else shape("transformer")) | settings
    for name, value in given.items():
        if value is not None:
            *groups, last = name.split(".")
            place = made
            for group in groups:
                place = place.setdefault(group, {})
            place[last] = value
    return made
