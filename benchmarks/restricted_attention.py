"""Restricted self-attention beside attention to everything: time and memory, forwards and backwards. JSON lines.

python benchmarks/restricted_attention.py --lengths 1024 2048 4096 8192 --window 64
python benchmarks/restricted_attention.py --lengths 4096 16384 65536 --device cuda --precision bf16

Implementations take turns in one process for their seconds; each has a fresh process for its peak of memory, which is
what it takes beyond its inputs: resident memory on a CPU, the allocator's count on a GPU. `materialised` makes every
score a number in memory; `fused` is torch's scaled_dot_product_attention to all positions; `masked` the same with the
window as a mask; `restricted` what Headway does.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from headway.nn.attention import Visible, attend
from peers.origin import show

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def materialised(query, key, value, visible):
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    scores = (query / query.shape[-1] ** 0.5) @ key.mT
    if visible.causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu(1), -1e30)
    return (scores.softmax(-1) @ value).transpose(1, 2)


def fused(query, key, value, visible):
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, is_causal=visible.causal).transpose(1, 2)


def masked(query, key, value, visible):
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    allowed = visible.allowed(query.shape[2], key.shape[2], query.device)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed).transpose(1, 2)


def as_headway_does(query, key, value, visible):
    return attend(query, key, value, visible).output


IMPLEMENTATIONS = {"materialised": materialised, "fused": fused, "masked": masked, "restricted": as_headway_does}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--window", type=int, default=64, help="r: half of it on either side, or the last r")
    parser.add_argument("--causal", action="store_true", help="as in the decoder")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--implementations", nargs="+", choices=IMPLEMENTATIONS, default=list(IMPLEMENTATIONS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peak-of", choices=IMPLEMENTATIONS, help=argparse.SUPPRESS)  # what a fresh process is asked
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.peak_of:
        print(peak(given, given.lengths[0], given.peak_of))
        return
    for length in given.lengths:
        report(given, length)


def inputs(given, length):
    torch.manual_seed(1)
    shape = given.batch, length, 3, given.heads, given.width
    whole = torch.randn(shape, device=given.device, dtype=PRECISIONS[given.precision])
    pull = torch.randn(given.batch, length, given.heads, given.width).to(whole)
    return [x.requires_grad_() for x in whole.unbind(2)], pull


def visible(given):
    return Visible(causal=given.causal, window=given.window - 1 if given.causal else given.window // 2)


def learn(given, name, leaves, pull):
    torch.autograd.grad(IMPLEMENTATIONS[name](*leaves, visible(given)), leaves, pull)
    if given.device == "cuda":
        torch.cuda.synchronize()


def peak(given, length, name):
    learn(given, name, *inputs(given, 512))  # libraries set themselves up
    held = inputs(given, length)
    if given.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        learn(given, name, *held)
        return torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # from here on Linux looks for the peak anew
    before = resident("VmRSS")
    learn(given, name, *held)
    return resident("VmHWM") - before


def resident(what):
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith(f"{what}:"))
    return 1024 * int(line.split()[1])


def peak_in_a_fresh_process(given, length, name):
    options = ["--lengths", length, "--window", given.window, "--batch", given.batch, "--heads", given.heads]
    options += ["--width", given.width, "--device", given.device, "--precision", given.precision]
    options += ["--threads", given.threads, "--peak-of", name, *(["--causal"] if given.causal else [])]
    command = [sys.executable, __file__, *map(str, options)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(ended.stdout) if ended.returncode == 0 else None  # there was no such memory


def report(given, length):
    facts = {"n": length, "r": given.window, "causal": given.causal, "batch": given.batch, "heads": given.heads}
    facts |= {"width": given.width, "precision": given.precision, "rounds": given.rounds}
    facts["device"] = torch.cuda.get_device_name() if given.device == "cuda" else f"CPU, {given.threads} threads"
    peaks = {name: peak_in_a_fresh_process(given, length, name) for name in given.implementations}
    seconds = {name: [] for name, bytes_taken in peaks.items() if bytes_taken is not None}
    held = inputs(given, length)
    for number in range(given.rounds + 1):
        for name, values in seconds.items():
            began = time.perf_counter()
            learn(given, name, *held)
            if number:  # the first warms up
                values.append(time.perf_counter() - began)
    for name, bytes_taken in peaks.items():
        values = seconds.get(name)
        told = values and {"median": statistics.median(values), "least": min(values), "most": max(values)}
        show({**facts, "implementation": name, "seconds": told, "peak_bytes": bytes_taken})


if __name__ == "__main__":
    main()
