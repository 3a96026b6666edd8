"""Decoding speed on one GPU: Headway's captured search beside Hugging Face `generate` on the same work.

    python benchmarks/decode_gpu.py                      # all cells; --batches 1 32 --beams 4 for some

Both decode 30 source tokens into exactly 30 output tokens with a Transformer base (6+6 layers, 512 features, 8 heads,
2,048 hidden, 37,000 tokens, tied) of random weights in bf16. They take turns, in random order, repeat after repeat. One
JSON line a system and cell: median tokens per second, lowest and highest; then one line a cell with the ratio. With
`--model FOLDER --text FILE` a trained model translates real text at natural lengths instead, captured and step by step,
in fp32, fp16 and bf16, and how many outputs agree is told too.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

import torch

from headway.engine import Engine
from headway.engine.readiness import ready
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig, Request, Symbols
from peers.origin import show

VOCABULARY, TOKENS = 37_000, 30
START, END = 0, 1


def headway(beam: int, captured: bool = True):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(preset="base"), VOCABULARY, VOCABULARY).eval().cuda()
    model = ready(model, "bf16")
    model.capturable = captured
    engine = Engine(model, Symbols(START, END, (START,)))
    config = DecodingConfig(
        beam=beam, length_penalty=0.0, limit_ratio=0.0, limit_extra=TOKENS, shortest_extra=TOKENS, longest=TOKENS
    )

    def decode(sources: list[list[int]]) -> list[list[int]]:
        found = engine.search([Request(tuple(source[:-1])) for source in sources], config)
        return [list(each[0].tokens) for each in found]

    return decode


def marian(beam: int):
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="relu",
        pad_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
        scale_embedding=True,
        max_position_embeddings=512,
        share_encoder_decoder_embeddings=True,
    )
    torch.manual_seed(0)
    model = MarianMTModel(config).to("cuda", torch.bfloat16).eval()

    def decode(sources: list[list[int]]) -> list[list[int]]:
        tokens = torch.tensor(sources, device="cuda")
        found = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=TOKENS,
            max_new_tokens=TOKENS,
        )
        return found[:, 1:].tolist()

    return decode


def cell(systems: dict, batch: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of every repeat of every system, after one to warm up."""
    numbers = random.Random(batch)
    sources = [[numbers.randrange(4, VOCABULARY) for _ in range(TOKENS - 1)] + [END] for _ in range(batch)]
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for repeat in range(repeats + 2):
        for name in numbers.sample(list(systems), len(systems)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            found = systems[name](sources)
            torch.cuda.synchronize()
            if repeat > 1:
                seconds[name].append(time.perf_counter() - start)
            assert all(len(each) == TOKENS for each in found), (name, {len(each) for each in found})
    return seconds


def forced(options: argparse.Namespace) -> None:
    for beam in options.beams:
        systems = {"headway": headway(beam), "marian": marian(beam)}
        if options.eager:
            systems["headway-uncaptured"] = headway(beam, captured=False)
        for batch in options.batches:
            seconds = cell(systems, batch, options.repeats)
            speed = {name: [batch * TOKENS / each for each in times] for name, times in seconds.items()}
            middle = {name: statistics.median(each) for name, each in speed.items()}
            for name, each in speed.items():
                line = {"system": name, "beam": beam, "batch": batch, "tokens_per_second": round(middle[name])}
                line |= {"lowest": round(min(each)), "highest": round(max(each)), "repeats": len(each)}
                show(line | {"ms_per_step": round(1e3 * batch / middle[name], 3)})
            ratio = round(middle["headway"] / middle["marian"], 2)
            show({"beam": beam, "batch": batch, "ratio_to_marian": ratio})
        del systems
        torch.cuda.empty_cache()


def natural(options: argparse.Namespace) -> None:
    from headway.translator import load

    lines = options.text.read_text(encoding="utf-8").splitlines()
    outputs: dict[str, list[str]] = {}
    for precision in ("fp32", "fp16", "bf16"):
        for captured in (True, False):
            translator = load(options.model, device="cuda")
            ready(translator.model, precision)
            translator.model.capturable = captured
            name = f"{precision}, {'captured' if captured else 'step by step'}"
            for repeat in range(3):
                start = time.perf_counter()
                outputs[name] = [str(each) for each in translator(lines, beam=options.beams[-1])]
                torch.cuda.synchronize()
                seconds = time.perf_counter() - start
                line = {"mode": name, "repeat": repeat, "sentences_per_second": round(len(lines) / seconds, 1)}
                same = sum(a == b for a, b in zip(outputs[name], outputs["fp32, captured"], strict=True))
                show(line | {"same_as_fp32_captured": same / len(lines)})
    if options.output:
        for name, texts in outputs.items():
            (options.output / f"{name.replace(', ', '-').replace(' ', '-')}.txt").write_text("\n".join(texts) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 256, 1024])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--eager", action="store_true", help="also Headway without captured steps")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if bool(options.model) != bool(options.text):
        parser.error("--model and --text go together")
    natural(options) if options.model else forced(options)


if __name__ == "__main__":
    main()
