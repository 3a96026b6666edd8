"""One system behind a pipe: builds its model, then times one optimiser step for every batch number it reads.

    PYTHON benchmarks/peers/training.py SYSTEM [--batches 8] [--threads 2] [--dtype float32|bfloat16]

Answers one JSON line to each line of standard input. Every peer keeps its own layers and its own loss; all of them get
torch's fused Adam.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace

import torch
import workload
from torch import nn
from torch.nn import functional
from workload import BEGIN, DIM, DROPOUT, END, HEADS, HIDDEN, LAYERS, PADDING, SMOOTHING, UNKNOWN, VOCABULARY, Batch

Objective = Callable[[Batch], torch.Tensor]
System = tuple[nn.Module, Objective]


def sinusoids(positions: int) -> torch.Tensor:
    rates = torch.exp(torch.arange(0, DIM, 2) * (-math.log(10_000) / DIM))
    angles = torch.arange(positions)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with what it leaves to its users: embeddings, positions, masks, projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIM, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=DIM**-0.5)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(DIM, HEADS, LAYERS, LAYERS, HIDDEN, DROPOUT, batch_first=True)
        self.register_buffer("positions", sinusoids(workload.LONGEST))

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.embedding(tokens) * DIM**0.5 + self.positions[: tokens.shape[1]])

    def forward(self, source: torch.Tensor, target: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        absent = source == PADDING
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=later,
            src_key_padding_mask=absent,
            tgt_key_padding_mask=target == PADDING,
            memory_key_padding_mask=absent,
        )
        logits = functional.linear(states, self.embedding.weight, self.bias).flatten(0, 1).float()
        return functional.cross_entropy(logits, labels.flatten(), ignore_index=PADDING, label_smoothing=SMOOTHING)


def torch_eager() -> System:
    model = TorchTransformer()
    return model, lambda batch: model(*batch.padded())


def torch_compiled() -> System:
    model = TorchTransformer()
    compiled = torch.compile(model, dynamic=True)
    return model, lambda batch: compiled(*batch.padded())


def marian() -> System:
    """Hugging Face's Marian with the label smoother of its Trainer."""
    from transformers import MarianConfig, MarianMTModel
    from transformers.trainer_pt_utils import LabelSmoother

    model = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=DIM,
            encoder_layers=LAYERS,
            decoder_layers=LAYERS,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=HIDDEN,
            decoder_ffn_dim=HIDDEN,
            dropout=DROPOUT,
            attention_dropout=DROPOUT,
            activation_dropout=DROPOUT,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=workload.LONGEST,
            pad_token_id=PADDING,
            eos_token_id=END,
            decoder_start_token_id=PADDING,
            forced_eos_token_id=None,
            use_cache=False,
        )
    )
    smoother = LabelSmoother(SMOOTHING)

    def objective(batch: Batch) -> torch.Tensor:
        source, target, labels = batch.padded(begin=PADDING)
        output = model(input_ids=source, attention_mask=(source != PADDING).long(), decoder_input_ids=target)
        return smoother({"logits": output.logits}, labels.masked_fill(labels == PADDING, -100))

    return model, objective


def joeynmt() -> System:
    """JoeyNMT's model and batch, and the loss normalised by tokens as its TrainManager does."""
    from joeynmt.batch import Batch as JoeyBatch
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    symbols = {"unk": UNKNOWN, "pad": PADDING, "bos": BEGIN, "eos": END, "sep": None}
    special = SimpleNamespace(lang_tags=[])
    for name, number in symbols.items():
        setattr(special, f"{name}_token", None if number is None else f"<{name}>")
        setattr(special, f"{name}_id", number)
    vocabulary = Vocabulary([f"w{number}" for number in range(4, VOCABULARY)], special)
    stack = {
        "type": "transformer",
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "embeddings": {"embedding_dim": DIM, "scale": True, "dropout": DROPOUT},
        "hidden_size": DIM,
        "ff_size": HIDDEN,
        "dropout": DROPOUT,
        "layer_norm": "post",
        "activation": "relu",
    }
    tied = {"tied_embeddings": True, "tied_softmax": True}
    model = build_model({"encoder": stack, "decoder": dict(stack), **tied}, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", SMOOTHING)

    def objective(batch: Batch) -> torch.Tensor:
        given = JoeyBatch(
            src=workload.rectangle([[*source, END] for source, _ in batch.pairs], PADDING),
            src_length=batch.source_lengths(),
            src_prompt_mask=None,
            trg=workload.rectangle([[BEGIN, *target, END] for _, target in batch.pairs], PADDING),
            trg_prompt_mask=None,
            indices=torch.arange(len(batch.pairs)),
            device=torch.device("cpu"),
            pad_index=PADDING,
            eos_index=END,
            is_train=True,
        )
        given.sort_by_src_length()
        total, _, _, _ = model(return_type="loss", **vars(given))
        return given.normalize(total, "tokens")

    return model, objective


def headway() -> System:
    """Headway as its trainer runs on a CPU: padded batches, freed memory kept."""
    from headway.allocator import keep_freed_memory
    from headway.data.batches import Batch as HeadwayBatch
    from headway.models.transformer import Transformer, TransformerConfig
    from headway.objectives import LabelSmoothedLikelihood
    from headway.sequences import Sequences

    keep_freed_memory()
    config = TransformerConfig(
        dim=DIM,
        heads=HEADS,
        hidden=HIDDEN,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        longest=workload.LONGEST,
        dropout=DROPOUT,
        attention_dropout=DROPOUT,
        activation_dropout=DROPOUT,
    )
    model = Transformer(config, VOCABULARY, VOCABULARY)
    likelihood = LabelSmoothedLikelihood(SMOOTHING)

    def objective(batch: Batch) -> torch.Tensor:
        given = HeadwayBatch(
            source=Sequences.pad([[*source, END] for source, _ in batch.pairs], PADDING),
            target=Sequences.pad([[BEGIN, *target] for _, target in batch.pairs], PADDING),
            labels=Sequences.pad([[*target, END] for _, target in batch.pairs], PADDING).tokens,
            units=batch.target_tokens,
        )
        loss = likelihood(model, given)
        return loss.total / loss.units

    return model, objective


SYSTEMS = {"headway": headway, "torch": torch_eager, "torch-compiled": torch_compiled, "marian": marian}
SYSTEMS["joeynmt"] = joeynmt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    # Libraries print as they load: only our answers may reach the pipe.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    work = workload.batches(options.batches)
    model, objective = SYSTEMS[options.system]()
    model.train()
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)

    def precision() -> AbstractContextManager[None]:
        return torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bfloat16")

    for line in sys.stdin:
        batch = work[int(line)]
        started, worked = time.perf_counter(), time.process_time()
        adam.zero_grad(set_to_none=True)
        with precision():
            loss = objective(batch)
        loss.backward()
        adam.step()
        final = loss.item()
        answer = {"seconds": time.perf_counter() - started, "processor_seconds": time.process_time() - worked}
        answers.write(json.dumps(answer | {"tokens": batch.target_tokens, "loss": final}) + "\n")


if __name__ == "__main__":
    main()
