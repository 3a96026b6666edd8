"""Hugging Face's Marian trained from scratch for a given time, in a plain loop as a careful user writes it.

    PYTHON benchmarks/peers/marian.py train RUN --source FILE --target FILE --seconds 360 --seed 1 --settings JSON
    PYTHON benchmarks/peers/marian.py translate RUN --source FILE --output FILE

Needs torch, transformers and tokenizers, not Headway. RUN/report.json is written when training has ended. The clock
starts at the first batch: reading, the vocabulary and tokenisation are done by then.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from torch.nn import functional

PADDING, END, UNKNOWN = 0, 1, 2
SPECIALS = ["<pad>", "</s>", "<unk>"]
LONGEST = 256
CLIP = 1.0

Pairs = list[tuple[list[int], list[int]]]


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n")


def learn_tokenizer(texts: list[str], size: int) -> Any:
    """Byte-level BPE of both sides together."""
    found = tokenizers.Tokenizer(models.BPE())
    found.normalizer = normalizers.Prepend(" ")
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    settings = {"vocab_size": size, "special_tokens": SPECIALS, "initial_alphabet": alphabet, "show_progress": False}
    found.train_from_iterator(texts, trainers.BpeTrainer(**settings))
    return found


def encode(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return [[*each.ids[: LONGEST - 1], END] for each in tokenizer.encode_batch(texts)]


def build_model(settings: dict[str, Any], vocabulary: int) -> Any:
    from transformers import MarianConfig, MarianMTModel

    sides = {}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_layers": settings["layers"], f"{side}_attention_heads": settings["heads"]}
        sides |= {f"{side}_ffn_dim": settings["hidden"]}
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=settings["dim"],
        dropout=settings["dropout"],
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        init_std=settings["init_std"],
        scale_embedding=True,
        max_position_embeddings=2 * LONGEST,
        pad_token_id=PADDING,
        eos_token_id=END,
        bos_token_id=None,
        decoder_start_token_id=PADDING,
        forced_eos_token_id=None,
        **sides,
    )
    return MarianMTModel(config)


def pad(rows: list[list[int]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [PADDING] * (width - len(row)) for row in rows])


def batches(pairs: Pairs, tokens: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of like length together, at most so many tokens on the larger side, padding included; without end."""
    rng = np.random.default_rng(seed)
    lengths = np.array([[len(source), len(target)] for source, target in pairs])
    while True:
        order = np.lexsort((lengths[:, 0] + rng.random(len(pairs)), lengths[:, 1] + rng.uniform(0, 2, len(pairs))))
        groups: list[list[int]] = [[]]
        width = 0
        for place in order:
            width = max(width, int(lengths[place].max()))
            if groups[-1] and (len(groups[-1]) + 1) * width > tokens:
                groups.append([])
                width = int(lengths[place].max())
            groups[-1].append(int(place))
        for number in rng.permutation(len(groups)):
            group = [pairs[place] for place in groups[number]]
            yield pad([source for source, _ in group]), pad([target for _, target in group])


def train(options: argparse.Namespace) -> None:
    """Train until the time is over, and leave weights, vocabulary and a report in the run folder."""
    import transformers

    settings = json.loads(options.settings)
    texts = read_lines(options.source), read_lines(options.target)
    tokenizer = learn_tokenizer([*texts[0], *texts[1]], settings["vocabulary"])
    pairs = list(zip(*(encode(tokenizer, side) for side in texts), strict=True))
    torch.manual_seed(options.seed)
    model = build_model(settings, tokenizer.get_vocab_size()).train()
    adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    steps = tokens = 0
    total, began = 0.0, time.perf_counter()
    for source, target in batches(pairs, settings["batch_tokens"], options.seed):
        spent = time.perf_counter() - began
        if spent >= options.seconds:
            break
        steps += 1
        for group in adam.param_groups:
            group["lr"] = settings["rate"] * min(steps / settings["warmup"], 1.0 - spent / options.seconds)
        given = functional.pad(target[:, :-1], (1, 0), value=PADDING)
        logits = model(input_ids=source, attention_mask=source != PADDING, decoder_input_ids=given).logits
        loss = functional.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PADDING, label_smoothing=settings["label_smoothing"]
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
        adam.zero_grad(set_to_none=True)
        total, tokens = loss.item(), tokens + int((target != PADDING).sum())
    seconds = time.perf_counter() - began
    options.run.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.run / "tokenizer.json"))
    model.save_pretrained(options.run)
    report = {
        "updates": steps,
        "training_seconds": round(seconds, 1),
        "tokens_per_second": round(tokens / seconds),
        "last_loss": round(total, 3),
        "parameters": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        "known_tokens": tokenizer.get_vocab_size(),
        "attention": model.config._attn_implementation,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
    (options.run / "report.json").write_text(json.dumps(report), encoding="utf-8")


def translate(options: argparse.Namespace) -> None:
    """Translate a file by beam search, sentences of like length together."""
    from transformers import MarianMTModel

    tokenizer = tokenizers.Tokenizer.from_file(str(options.run / "tokenizer.json"))
    model = MarianMTModel.from_pretrained(options.run).eval()
    model.generation_config.max_length = None
    sources = encode(tokenizer, read_lines(options.source))
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    outputs = [""] * len(sources)
    for first in range(0, len(order), options.batch):
        places = order[first : first + options.batch]
        tokens = pad([sources[place] for place in places])
        with torch.inference_mode():
            found = model.generate(
                tokens,
                attention_mask=(tokens != PADDING).long(),
                num_beams=options.beam,
                do_sample=False,
                early_stopping=True,
                suppress_tokens=[PADDING],
                max_new_tokens=min(LONGEST, 2 * tokens.shape[1] + 20),
            )
        for place, row in zip(places, found[:, 1:].tolist(), strict=True):
            outputs[place] = tokenizer.decode(row[: row.index(END)] if END in row else row)
    lines = (" ".join(output.split()) for output in outputs)  # one line each, whatever was generated
    options.output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["train", "translate"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings", help="JSON")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="sentences translated at once")
    options = parser.parse_args()
    {"train": train, "translate": translate}[options.work](options)


if __name__ == "__main__":
    main()
