"""The choices made where a recipe leaves something open: by the data, the machine and the time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from headway.config import validated
from headway.data.preparation import Split
from headway.data.tokenizer import TokenizerKind
from headway.errors import ConfigError
from headway.models.language import LanguageConfig
from headway.models.layered import LayeredConfig, Preset
from headway.models.model import ModelConfig
from headway.models.transformer import TransformerConfig
from headway.nn.compiling import compiles
from headway.nn.positions import PositionKind
from headway.nn.residual import NormPlace
from headway.recipe import SIZES, Recipe, mismatch
from headway.runtime.cores import read_cores
from headway.runtime.speed import matrix_speed
from headway.search import DecodingConfig
from headway.search.parallel import WRITERS, check
from headway.training.config import TrainingConfig, duration, seconds
from headway.training.schedule import shortened_warmup

SMALLEST: Preset = "mini"
LARGER: tuple[tuple[Preset, int, float], ...] = (
    ("big", 10_000_000, 2e9),
    ("base", 500_000, 150e6),
    ("small", 5_000, 10e6),
    ("tiny", 0, 6e6),
)
"""Larger sizes, each with the training pairs and the target tokens in the time from which it is worth its cost."""
ASSUMED_TIME = 1800.0
"""Seconds by which a size is chosen where no time is given."""
TOKENS = 40e6
"""Target tokens to train on where no end is set; the corpus is repeated 10 to 300 times to reach them."""
TIMED_EPOCHS = 100
"""Epochs that a time budget may always take; time beyond them is left unused."""
UPDATES = 4000
"""Updates that a time budget should have room for; batches are made smaller to reach them."""
FEWEST_UPDATES, FEWEST_TOKENS = 1000, 10e6
"""Below this many updates, or below the smaller of two epochs and this many tokens, a model hardly translates."""
AMPLE = 1.5
"""Times as much is enough for a first model, and for one of a larger size."""
SMALLEST_BATCH, LARGEST_BATCH = 512, 4096
"""Tokens of a batch on a CPU; on a GPU the larger one, except for wide models."""
RATE = 0.4
"""The peak learning rate for the smallest batch, times the width of the model."""
RATE_LAYERS = 6
"""Layers above which the rate is lower."""
MOST_SENTENCES, FEWEST_SENTENCES = 200, 50
"""Sentences translated at a validation, and how many it takes to rank checkpoints by them."""
POST_LAYERS, POST_UPDATES = 4, 1000
"""Post-norm is chosen up to this many layers, in runs of at least this many updates."""
FIRST_EPOCHS = 4
"""Epochs that need no dropout."""
DROPOUT_PER_DOUBLING, MOST_DROPOUT = 0.075, 0.2
"""Dropout added by every doubling of the epochs, and its maximum."""
LETTERS = 300
"""Subwords for a corpus of words, besides two for every letter: the bytes, and some common groups of letters."""
ASSUMED_VOCABULARY = 1000
"""Vocabulary size assumed for characters, words and given tokenizers."""
EFFICIENCY = {"cuda": 0.5, "cpu": 0.85}
"""The share of the speed of a large matrix product that training reaches in its products."""
OVERHEAD = {"cuda": 4e-8, "cpu": 1.2e-5}
"""Seconds per token and layer that training spends on everything else."""


@dataclass(frozen=True)
class CorpusSize:
    """How much there is to learn from."""

    pairs: int
    tokens: float
    """Target tokens, about."""
    held_out: int = MOST_SENTENCES
    """Validation pairs."""
    alphabet: int | None = None
    """Different characters, where lines are words to be read letter by letter."""
    word_bytes: int | None = None
    """Bytes of all different words together, where these are few."""

    @classmethod
    def of(cls, split: Split, kind: TokenizerKind = "bpe") -> "CorpusSize":
        """By the words and bytes of the target: subwords are about 3.5 bytes long, and never longer than words."""
        subwords = max(float(split.words), split.bytes / (3.5 if split.alphabet is None else 1.5))
        tokens = {"words": float(split.words), "characters": float(split.bytes)}.get(kind, subwords)
        return cls(split.pairs, split.pairs + tokens, len(split.valid), split.alphabet, split.word_bytes)

    @property
    def needed(self) -> float:
        """Target tokens without which a model hardly translates."""
        return min(2 * self.tokens, FEWEST_TOKENS)

    def scaled(self, pairs: int) -> "CorpusSize":
        """The same for a corpus of more pairs of this kind."""
        return replace(self, pairs=pairs, tokens=self.tokens * pairs / max(self.pairs, 1))


@dataclass(frozen=True)
class Machine:
    """A device and how fast it is; measured when that is first asked for."""

    device: torch.device
    processes: int = 1
    """Those that train together."""
    precision: str | None = None
    """That of the products, if it is given."""

    @cached_property
    def speed(self) -> float:
        """Floating-point operations per second of a large matrix product."""
        return matrix_speed(self.device, self.half and self.precision != "fp32")

    @cached_property
    def half(self) -> bool:
        """Whether it computes in bf16 by itself."""
        return self.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)

    def tokens_per_second(self, model: ModelConfig, vocabulary: int) -> float:
        """Target tokens that such a model learns from, about: every weight takes six operations."""
        operations = 6.0 * model.fewest_parameters(vocabulary)
        kind = self.device.type
        alone = 1 / (operations / (EFFICIENCY[kind] * self.speed) + OVERHEAD[kind] * _layers(model))
        return alone * self.side_by_side

    @property
    def side_by_side(self) -> int:
        """Processes that do not slow each other down: each has a GPU, or cores for all threads of this one."""
        if self.device.type == "cuda":
            return self.processes
        return max(1, min(self.processes, read_cores().available // torch.get_num_threads()))


def conditions(
    recipe: Recipe, split: Split, device: torch.device, processes: int = 1, pairs: int | None = None
) -> tuple[CorpusSize, Machine]:
    """What choices follow from: the size of a corpus, or of one with so many pairs of its kind, and the machine."""
    size = CorpusSize.of(split, recipe.tokenizer.kind)
    return size if pairs is None else size.scaled(pairs), Machine(device, processes, recipe.training.precision)


@dataclass(frozen=True)
class Choices:
    """A recipe with nothing left open, and what there is to say about it."""

    recipe: Recipe
    summary: str
    """One line: what was chosen and why."""
    warnings: list[str] = field(default_factory=list)


def choose(recipe: Recipe, corpus: CorpusSize, machine: Machine) -> Choices:
    """Make every open choice for so much data on this machine."""
    tokenizer = recipe.tokenizer
    if tokenizer.vocabulary is None and tokenizer.kind == "bpe" and tokenizer.file is None:
        tokenizer = tokenizer.model_copy(update={"vocabulary": vocabulary_for(corpus)})
    plan = _Plan.of(recipe, tokenizer.vocabulary or ASSUMED_VOCABULARY, corpus, machine)
    model = plan.model
    problem = mismatch(model, recipe.data, recipe.training)  # which may come from the model that a run begins from
    if problem is not None:
        raise ConfigError(problem)
    if model.architecture in WRITERS:
        check(model.architecture, recipe.decoding)
    if model.tie == "three-way" and not recipe.tokenizer.joint:
        model = model.model_copy(update={"tie": "two-way"})
    training = _training(recipe.training, plan, machine, tuned=recipe.start is not None)
    chosen: dict[str, Any] = {"model": model, "tokenizer": tokenizer, "training": training}
    if not model.reads_source:
        chosen["decoding"] = _drawing(recipe.decoding, model)
    recipe = recipe.model_copy(update=chosen)
    return Choices(recipe, _summary(recipe, plan), list(plan.warnings(training)))


@dataclass(frozen=True)
class _Plan:
    """A model, and what the time allows it to learn from."""

    model: ModelConfig
    vocabulary: int
    corpus: CorpusSize
    machine: Machine
    training: TrainingConfig
    """As given."""

    @classmethod
    def of(cls, recipe: Recipe, vocabulary: int, corpus: CorpusSize, machine: Machine) -> "_Plan":
        """The given model, or the largest that is worth its cost; dropout as the passes over the data ask for it."""
        given = recipe.model
        if given is not None and not isinstance(given, TransformerConfig | LanguageConfig):
            return cls(given, vocabulary, corpus, machine, recipe.training)  # which have sizes of their own
        kind = type(given) if given is not None else TransformerConfig if recipe.data.text is None else LanguageConfig
        settings = given.model_dump(exclude_unset=True) if given is not None else {}
        sized = not settings.keys().isdisjoint(SIZES)
        if not sized:
            preset = _size(kind, settings, vocabulary, corpus, machine, recipe.training)
            settings = {"longest": 256, **settings, "preset": preset}
        plan = cls(kind.model_validate(settings), vocabulary, corpus, machine, recipe.training)
        if kind is TransformerConfig:
            settings = {"norm": plan.norm, **settings}
            if not sized:  # a model that is described is the same one on every device
                settings = {"positions": plan.positions, **settings}
        return replace(plan, model=kind.model_validate({"dropout": plan.dropout, **settings}))

    @cached_property
    def speed(self) -> float:
        """Target tokens per second, predicted."""
        return self.machine.tokens_per_second(self.model, self.vocabulary) / _work(self.training)

    @property
    def affordable(self) -> float:
        """Target tokens for which there is time."""
        return math.inf if self.training.time is None else seconds(self.training.time) * self.speed

    @property
    def epochs(self) -> int | None:
        """Passes over the data at the most, where nothing else sets an end."""
        if self.training.epochs is not None or self.training.steps is not None:
            return self.training.epochs
        repeats = round(min(300.0, max(10.0, TOKENS / self.corpus.tokens)))
        return repeats if self.training.time is None else max(repeats, TIMED_EPOCHS)

    @cached_property
    def tokens(self) -> float:
        """Target tokens that will be learned from, repetitions included."""
        ends = [self.affordable]
        if self.epochs is not None:
            ends.append(self.epochs * self.corpus.tokens)
        if self.training.steps is not None:
            ends.append(self.training.steps * min(float(self._usual_batch * self.together), self.corpus.tokens))
        return min(ends)

    @property
    def together(self) -> int:
        """Batches to an update."""
        return self.training.accumulate * self.machine.processes

    @property
    def _usual_batch(self) -> int:
        given = self.training.batch_tokens
        if isinstance(given, int):
            return given
        if self.machine.device.type == "cuda":
            return max(25_000 if self.model.dim >= 512 else LARGEST_BATCH, self.model.longest)
        return max(2048, self.model.longest)

    @property
    def batch(self) -> int:
        """Tokens of a batch: on a CPU as many as leave enough updates, on a GPU as many as fill it."""
        if self.machine.device.type == "cuda" or self.training.steps is not None:
            return self._usual_batch
        wanted = 2 ** int(math.log2(max(self.tokens / UPDATES / self.together, 1)))
        return max(SMALLEST_BATCH, self.model.longest, min(wanted, LARGEST_BATCH))

    @property
    def validation_pairs(self) -> int | None:
        """Pairs whose loss a validation measures: in a time budget, for a hundredth of it."""
        if self.training.time is None:
            return None
        return max(50, int(0.03 * self.tokens * self.corpus.pairs / self.corpus.tokens))  # a third of an update's work

    @property
    def passes(self) -> float:
        """Epochs that will be done."""
        return self.tokens / self.corpus.tokens

    @property
    def norm(self) -> NormPlace:
        """Post learns more, but only with few layers and after a long enough warm-up; pre always learns."""
        shallow = max(getattr(self.model, f"{side}_layers", 0) for side in ("encoder", "decoder")) <= POST_LAYERS
        return "post" if shallow and self.updates >= POST_UPDATES else "pre"

    @property
    def positions(self) -> PositionKind:
        """Rotary ones are learned sooner; on a GPU, which takes far more updates, sinusoids are free of cost."""
        on_cpu, even = self.machine.device.type == "cpu", getattr(self.model, "width", 1) % 2 == 0
        return "rotary" if on_cpu and even else "sinusoidal"

    @property
    def updates(self) -> float:
        """Updates that will be done."""
        if self.training.steps is not None and self.training.time is None:
            return float(self.training.steps)
        given = self.training.batch_tokens
        of_tokens = self.tokens / ((given if isinstance(given, int) else self.batch) * self.together)
        return max(of_tokens, self.passes)  # an epoch has one at least

    @property
    def dropout(self) -> float:
        """By the passes over the data: what is seen often must be harder to learn by heart."""
        doublings = math.log2(max(self.passes / FIRST_EPOCHS, 1.0))
        return round(min(MOST_DROPOUT, DROPOUT_PER_DOUBLING * doublings), 2)

    def warnings(self, training: TrainingConfig) -> Iterator[str]:
        """What the user should know before time is spent."""
        given = self.training
        if training.time is None:
            return
        useful = max(FEWEST_UPDATES * self.tokens / self.updates, self.corpus.needed)
        if self.tokens < useful and self.affordable <= self.tokens:
            told = f"{training.time} is too short for a useful model on this machine: about {self.updates:,.0f} updates"
            told += f", {self.passes:.1f} epochs"
            yield f"warning: {told}; {duration(AMPLE * useful / self.speed)} would be enough for a first one"
        elif given.epochs is None and self.epochs and self.affordable > 1.2 * self.epochs * self.corpus.tokens:
            need = duration(self.tokens / self.speed)
            told = f"training ends after {self.epochs} epochs, in about {need}"
            yield f"{training.time} is longer than this corpus can make use of: {told}; more data would help more"


def _size(
    kind: type[ModelConfig],
    settings: dict[str, Any],
    vocabulary: int,
    corpus: CorpusSize,
    machine: Machine,
    training: TrainingConfig,
) -> Preset:
    """The largest size that the data fills and for which there is time."""
    time, needed = (ASSUMED_TIME, 0.0) if training.time is None else (seconds(training.time), AMPLE * corpus.needed)
    time /= _work(training)
    for preset, pairs, tokens in LARGER:
        if corpus.pairs >= pairs:
            model = kind.model_validate({**settings, "preset": preset})
            if time * machine.tokens_per_second(model, vocabulary) >= max(tokens, needed):
                return preset
    return SMALLEST


def _work(training: TrainingConfig) -> float:
    """Passes through the model for every batch: R-Drop takes two."""
    return 2.0 if training.r_drop else 1.0


def _training(given: TrainingConfig, plan: _Plan, machine: Machine, *, tuned: bool) -> TrainingConfig:
    model, bounded = plan.model, given.time is not None or given.steps is not None
    batch = given.batch_tokens or plan.batch
    tokens = batch if isinstance(batch, int) else LARGEST_BATCH
    warmup = given.warmup if given.warmup is not None else shortened_warmup(warmup_for(model), int(plan.updates))
    packed = machine.half and model.packable and not given.guided_alignment and not _drops_attention(model, machine)
    sentences = given.validation_sentences or min(MOST_SENTENCES, plan.validation_pairs or MOST_SENTENCES)
    if given.layout == "packed" and not model.packable and not isinstance(model, TransformerConfig):
        raise ConfigError(f"training.layout: a {model.architecture} model reads padded batches; leave the setting out")
    chosen: dict[str, Any] = {
        "epochs": plan.epochs,
        "batch_tokens": batch,
        "layout": "packed" if packed else "padded",
        "learning_rate": learning_rate_for(model, tokens * plan.together, warmup, tuned=tuned),
        "schedule": "linear" if bounded or not given.curriculum else "inverse_sqrt",
        "warmup": warmup if given.time is None else warmup_for(model),  # fitted to the time as it passes
        "precision": "bf16" if machine.half else "fp32",
        "validation_pairs": plan.validation_pairs,
        "validation_sentences": sentences,
        "metric": "chrf" if model.reads_source and min(sentences, plan.corpus.held_out) >= FEWEST_SENTENCES else "loss",
        "validate_every": max(1, given.steps // 10) if given.steps is not None and given.time is None else None,
    }
    unset = {name: value for name, value in chosen.items() if getattr(given, name) is None}
    if not model.reads_source and "label_smoothing" not in given.model_fields_set:
        unset["label_smoothing"] = 0.0  # a language model is for its probabilities
    return TrainingConfig.model_validate({**given.model_dump(), **unset})


def _drops_attention(model: ModelConfig, machine: Machine) -> bool:
    """Whether attention weights are dropped where only our own kernel could do so in packed batches."""
    if not isinstance(model, TransformerConfig | LanguageConfig) or model.attention_dropout == 0.0:
        return False
    return not (machine.half and compiles())


def learning_rate_for(model: ModelConfig, batch: int, warmup: int, *, tuned: bool) -> float:
    """The highest rate: lower for wide and deep models, small batches, and post-norm with little warm-up."""
    rate = RATE / model.dim * math.sqrt(min(1.0, RATE_LAYERS / _layers(model)))
    ratio = min(batch, LARGEST_BATCH) / SMALLEST_BATCH
    rate *= ratio**0.5 if ratio < 1 else ratio**0.07
    if getattr(model, "norm", None) == "post":
        rate *= min(1.0, 0.25 + warmup / 100)
    rate /= 4 if tuned else 1  # what was learned before is not to be shaken off
    return float(f"{rate:.2g}")


def _layers(model: ModelConfig) -> int:
    """Layers of both sides together."""
    return max(1, sum(getattr(model, name, 0) for name in ("encoder_layers", "decoder_layers", "layers")))


def warmup_for(model: ModelConfig) -> int:
    """Updates to the highest rate in a long run."""
    return 4000 if model.dim >= 512 else 2000


def vocabulary_for(corpus: CorpusSize) -> int:
    """Subwords a corpus of this size can support; few where lines are words, or where words are few."""
    if corpus.alphabet is not None:
        return LETTERS + 2 * corpus.alphabet
    sizes = ((2_000, 1000), (10_000, 2000), (100_000, 4000), (500_000, 8000), (5_000_000, 16_000))
    size = next((size for limit, size in sizes if corpus.pairs < limit), 32_000)
    if corpus.word_bytes is None:
        return size
    return min(size, LETTERS + 2 * corpus.word_bytes)  # words begin lines, or follow a space: there is no more to learn


def _drawing(given: DecodingConfig, model: ModelConfig) -> DecodingConfig:
    """How texts are asked of a language model: drawn, and as long as it knows, unless the recipe says otherwise."""
    usual = {"sample": True, "longest": model.longest - 1, "limit_extra": model.longest - 1}
    return validated(DecodingConfig, {**usual, **given.model_dump(exclude_unset=True)}, "decoding")


def _summary(recipe: Recipe, plan: _Plan) -> str:
    """What was chosen and why, in one line."""
    training, model = recipe.training, plan.model
    batch = training.batch_tokens
    why = f"{plan.corpus.pairs:,} pairs"
    if training.time is not None:
        why += f" and {training.time} at about {plan.speed:,.0f} tokens/s"
    made = [model.shape_in_words]
    made += [f"{model.norm}-norm"] if isinstance(model, LayeredConfig) else []
    made += [f"{model.positions} positions"] if isinstance(model, TransformerConfig) else []
    made += [f"dropout {model.dropout:g}"]
    made += [f"vocabulary up to {plan.vocabulary:,}"] if recipe.tokenizer.vocabulary is not None else []
    made += [f"batches of {batch:,} tokens" if isinstance(batch, int) else "batches as large as memory allows"]
    made += [f"learning rate {training.learning_rate:g}"]
    made += [f"about {plan.updates:,.0f} updates, {plan.passes:.1f} epochs"]
    if training.time is None and training.steps is None:
        made += [f"at most about {duration(plan.tokens / plan.speed)}"]
    return f"chosen for {why}: {', '.join(made)}"
