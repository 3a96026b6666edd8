"""Systems that train on one GPU, each behind `run(first, count)`: what users have, and Headway's own loop."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.throughput import LONGEST
from peers.gpu_work import (
    CLIP,
    DROPOUT,
    END,
    FIRST,
    KNOWN,
    PADDING,
    SMOOTHING,
    START,
    Integers,
    Size,
    Work,
    drawn,
    sorted_work,
    tally,
)

RATE = 1e-4

Objective = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class System:
    """What trains, on which batches."""

    run: Callable[[int, int], object]
    """Takes so many steps from one of a number on, batch after batch, round and round; does not wait for the GPU."""
    work: Work
    told: dict[str, Any]
    """What has to be said beside its figures."""
    passes: int = 2
    """Passes over all batches after which nothing is compiled or captured any more."""


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with what it leaves to its users: embeddings, positions, masks, projection."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.scale = math.sqrt(size.dim)
        self.embedding = nn.Embedding(size.vocabulary, size.dim, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=size.dim**-0.5)
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            size.dim, size.heads, size.layers, size.layers, size.hidden, DROPOUT, batch_first=True
        )
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        rates = torch.exp(torch.arange(0, size.dim, 2) * (-math.log(10_000) / size.dim))
        angles = torch.arange(KNOWN)[:, None] * rates
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        absent, width = source == PADDING, target.shape[1]
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(width, device=source.device),
            tgt_is_causal=True,  # and no mask of the target's padding, which stands last and has no label
            src_key_padding_mask=absent,
            memory_key_padding_mask=absent,
        )
        return states @ self.embedding.weight.T


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=PADDING, label_smoothing=SMOOTHING
    )


def marian_model(size: Size, *, longest: int = KNOWN, **changed: Any) -> nn.Module:
    """Hugging Face's Marian of a size, with random weights."""
    from transformers import MarianConfig, MarianMTModel

    sides = {}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_layers": size.layers, f"{side}_attention_heads": size.heads, f"{side}_ffn_dim": size.hidden}
    settings = {
        "vocab_size": size.vocabulary,
        "d_model": size.dim,
        "dropout": DROPOUT,
        "attention_dropout": 0.0,
        "activation_dropout": DROPOUT,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": longest,
        "pad_token_id": PADDING,
        "eos_token_id": END,
        "decoder_start_token_id": START,
        "forced_eos_token_id": None,
        "use_cache": False,
        **sides,
        **changed,
    }
    return MarianMTModel(MarianConfig(**settings))


def marian_objective(model: nn.Module, padding: int = PADDING) -> Objective:
    def objective(source: Tensor, target: Tensor) -> Tensor:
        present = source != padding
        given = {"input_ids": source, "attention_mask": present, "decoder_input_ids": target[:, :-1]}
        labels = target[:, 1:].flatten()
        logits = model(**given, use_cache=False).logits.flatten(0, 1).float()
        return functional.cross_entropy(logits, labels, ignore_index=padding, label_smoothing=SMOOTHING)

    return objective


def compiled(objective: Objective, mode: str | None = None) -> Objective:
    """Model and loss in one, for batches of any shape."""
    return torch.compile(objective, dynamic=True, mode=mode)


def peer_update(model: nn.Module, objective: Objective, device: torch.device) -> Callable[[tuple[Tensor, Tensor]], Any]:
    """A step as a careful user writes it: nothing in it waits for the GPU."""
    adam = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update(batch: tuple[Tensor, Tensor]) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = objective(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
        adam.zero_grad(set_to_none=True)
        return loss

    update.optimiser = adam
    return update


def _peer(model: nn.Module, objective: Objective, work: Work, device: torch.device, **told: Any) -> System:
    update = peer_update(model, objective, device)
    passes = 3 if told.pop("captured", False) else 2

    def run(first: int, count: int) -> None:
        for number in range(first, first + count):
            update(work.batches[number % len(work)])

    return System(run, work, told, passes)


def torch_transformer(size: Size, work: Work, device: torch.device) -> System:
    model = TorchTransformer(size).to(device).train()
    note = "attention dropout set to 0 in its modules by hand: its constructor has one for all"
    return _peer(
        model, lambda source, target: smoothed(model(source, target[:, :-1]), target[:, 1:]), work, device, note=note
    )


def marian(size: Size, work: Work, device: torch.device) -> System:
    model = marian_model(size).to(device).train()
    return _peer(model, marian_objective(model), work, device, attention=model.config._attn_implementation)


def marian_compiled(size: Size, work: Work, device: torch.device) -> System:
    model = marian_model(size).to(device).train()
    note = "model and loss compiled together, dynamic=True"
    return _peer(model, compiled(marian_objective(model)), work, device, note=note)


def marian_captured(size: Size, work: Work, device: torch.device) -> System:
    model = marian_model(size).to(device).train()
    objective = compiled(marian_objective(model), "reduce-overhead")
    note = f'the same with mode="reduce-overhead": CUDA graphs, of {len(work)} shapes only'
    return _peer(model, objective, work, device, note=note, captured=True)


PEERS = {
    "torch.nn.Transformer": torch_transformer,
    "marian": marian,
    "marian-compiled": marian_compiled,
    "marian-captured": marian_captured,
}
OURS = ("headway", "headway-attention-dropout", "headway-uncaptured")


def headway(name: str, size: Size, count: int, device: torch.device) -> System:
    """Headway's trainer in its real loop, fed from memory."""
    changed = {"attention_dropout": DROPOUT} if name == "headway-attention-dropout" else {}
    trainer = headway_trainer(size.model(**changed), size.vocabulary, size.tokens, device)
    if name == "headway-uncaptured":
        trainer.captured = None
    work = headway_work(size, count, device, trainer.config.layout)
    trainer.feed = Memory(work.batches)
    told = {"layout": trainer.config.layout, "precision": trainer.config.precision}
    return System(partial(loop, trainer), work, told | {"captured": trainer.captured is not None})


@dataclass(frozen=True)
class Memory:
    """A feed of batches that are there already."""

    batches: list[Any]

    def epoch(self, number: int, start: int, *, rank: int = 0, world: int = 1) -> tuple[int, Iterator[Any]]:
        del number, rank, world
        return len(self.batches), iter(self.batches[start:])


class Unkept:
    """Checkpoints of a run that is not kept."""

    def prune(self, newest: int, keep: set[int]) -> None:
        del newest, keep


def loop(trainer: Any, first: int, count: int) -> None:
    """So many steps of the trainer's own loop, without a validation at their end."""
    assert trainer.progress.step == first
    last = first + count
    trainer.progress = dataclasses.replace(trainer.progress, steps=last, validated=last)
    trainer.fit()


def headway_work(size: Size, count: int, device: torch.device, layout: str) -> Work:
    """Batches as Headway's feed gives them: packed in any order, or padded rows of like length; in pinned memory."""
    from headway.data.batches import Batch

    if layout == "padded":
        rows = sorted_work(size, count, torch.device("cpu"))
        batches = []
        for source, given in rows.batches:
            labels = given[:, 1:]
            target = _padded(given[:, :-1].masked_fill(labels == PADDING, PADDING))
            labels = labels[:, : target.longest].contiguous()
            batches.append(pinned(Batch(_padded(source), target, labels, int(target.lengths.sum())), device))
        return dataclasses.replace(rows, batches=batches)
    sizes = drawn(size, count)
    batches = [pinned(packed_batch(each, size.vocabulary), device) for each in sizes]
    return Work(batches, *(tally(sizes, side) for side in (0, 1)))


def _padded(rows: Tensor) -> Any:
    """Rows that end in padding, as narrow as they can be."""
    from headway.sequences import Sequences

    lengths = (rows != PADDING).sum(1)
    longest = int(lengths.max())
    return Sequences(rows[:, :longest].contiguous(), lengths, longest, int(lengths.min()) == longest)


def packed_batch(sizes: Integers, vocabulary: int) -> Any:
    """Pairs of these lengths, one after the other, of random tokens."""
    from headway.data.batches import Batch
    from headway.sequences import Sequences

    sides = []
    for lengths in torch.from_numpy(sizes):
        tokens = torch.randint(FIRST, vocabulary, (int(lengths.sum()),))
        sides.append(Sequences(tokens, lengths.clone(), int(lengths.max()), True))
    source, target = sides
    ends = target.lengths.cumsum(0)
    target.tokens[ends - target.lengths] = START
    labels = target.tokens.roll(-1)
    labels[ends - 1] = source.tokens[source.lengths.cumsum(0) - 1] = END
    return Batch(source, target, labels, len(labels))


def pinned(value: Any, device: torch.device) -> Any:
    """The same with all its tensors in memory a GPU reads directly."""
    if device.type != "cuda":
        return value
    if isinstance(value, Tensor):
        return value.pin_memory()
    if dataclasses.is_dataclass(value):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        return dataclasses.replace(value, **{name: pinned(each, device) for name, each in fields.items()})
    return value


def headway_trainer(
    model: dict[str, Any], vocabulary: int, tokens: int, device: torch.device, longest: int = LONGEST, **training: Any
) -> Any:
    """A trainer as a run has it, of a corpus that is nowhere; it trains on what its feed is set to.

    No sentence may have more than `longest` tokens, end symbol included.
    """
    from headway.assemble import trainer_of
    from headway.choices import CorpusSize, Machine, choose
    from headway.config import validated
    from headway.recipe import Recipe
    from headway.screen import Silent
    from headway.training.journal import Unwritten
    from headway.training.parallel import ALONE
    from headway.training.signals import Stopper

    tree = {
        "data": {"source": "none.en", "target": "none.de"},
        "model": model,
        "training": {
            "steps": 1 << 30,
            "batch_tokens": tokens,
            "learning_rate": RATE,
            "warmup": 4000,
            "schedule": "inverse_sqrt",
            "clip": CLIP,
            "label_smoothing": SMOOTHING,
            **training,
        },
    }
    recipe = choose(validated(Recipe, tree, "benchmark"), CorpusSize(1_000_000, 25e6), Machine(device)).recipe
    with tempfile.TemporaryDirectory(prefix="headway-benchmark-") as folder:
        trainer = trainer_of(recipe, _nowhere(vocabulary, longest), Path(folder), device, Silent(), ALONE, Stopper())
        trainer.journal.close()
    trainer.journal, trainer.checkpoints = Unwritten(), Unkept()
    return trainer


def _nowhere(vocabulary: int, longest: int) -> Any:
    """What preparing gives, but no pair."""
    from headway.data.preparation import Prepared, Split
    from headway.data.store import TokenStore
    from headway.data.tokenizer import JsonTokenizer, TokenizerConfig

    class Nothing(TokenStore):
        source_lengths = target_lengths = np.array([longest - 1], np.int32)

        def __init__(self) -> None:
            self.manifest = {"pairs": 0}

        def gather(self, side: Any, pairs: Any) -> Any:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)

    symbols = JsonTokenizer.train(["ab ab ba"], TokenizerConfig(vocabulary=300))
    symbols.size = vocabulary
    return Prepared(symbols, symbols, Nothing(), Split(0, [], 0, {}, {}))
