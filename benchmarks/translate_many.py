"""A large file through `headway translate`: speed, memory over time, and going on after a kill.

python benchmarks/translate_many.py [lines] [workers]

A tiny model that was never trained, generated lines, the real command. Once unbroken; once killed at half and gone on
with by --append. Prints one JSON line; memory is the resident size of the command and all its workers together.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.search import DecodingConfig
from headway.translator import Translator
from peers.origin import show

WORDS = ("the", "cat", "dog", "sees", "eats", "keeps", "apple", "bread", "flower", "tree", "and", "all", "old", "red")
EVERY = 0.25
"""Seconds between two looks at memory and output."""


def make(folder: Path, lines: int) -> tuple[Path, Path]:
    """A model and a file of lines."""
    drawn = random.Random(1)
    source = folder / "source"
    with source.open("w", encoding="utf-8") as file:
        for number in range(lines):
            file.write(f"{' '.join(drawn.choices(WORDS, k=drawn.randint(2, 14)))} {number} .\n")
    torch.manual_seed(1)
    tokenizer = Tokenizer.train(WORDS, TokenizerConfig(vocabulary=300))
    config = TransformerConfig(dim=32, heads=2, hidden=64, encoder_layers=1, decoder_layers=1, longest=64)
    model = Transformer(config, tokenizer.size, tokenizer.size).eval()
    Translator(model, tokenizer, tokenizer, DecodingConfig(beam=2, longest=8)).save(folder / "model")
    return folder / "model", source


def resident(process: int) -> float:
    """Megabytes of a process and its descendants."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    own = next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS:")), 0.0)
    return own + sum(resident(int(child)) for child in children)


class Watched:
    """The command at work, looked at from outside."""

    def __init__(self, model: Path, source: Path, output: Path, *options: str) -> None:
        command = [sys.executable, "-m", "headway", "translate", str(model), "--device", "cpu", "--input", str(source)]
        self.seen = output if "--append" in options else output.with_name(f".{output.name}.tmp")
        self.process = subprocess.Popen([*command, "--output", str(output), *options])
        self.read = self.lines = 0
        self.memory: list[tuple[int, float]] = []
        """Lines written, and megabytes then."""

    def run(self, until: int | None = None) -> None:
        """Watch to the end, or kill the command when so many lines are written."""
        while self.process.poll() is None:
            self.look()
            self.memory.append((self.lines, resident(self.process.pid)))
            if until is not None and self.lines >= until:
                self.process.kill()
                self.process.wait()
                return
            time.sleep(EVERY)
        if self.process.returncode:
            sys.exit(f"the command failed with {self.process.returncode}")

    def look(self) -> None:
        """Count the lines that were written since."""
        if not self.seen.exists():
            return
        with self.seen.open("rb") as file:
            file.seek(self.read)
            while piece := file.read(1 << 20):
                self.read += len(piece)
                self.lines += piece.count(b"\n")


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    options = ["--workers", sys.argv[2]] if len(sys.argv) > 2 else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model, source = make(folder, lines)
        began = time.monotonic()
        whole = Watched(model, source, folder / "whole", *options)
        whole.run()
        seconds = time.monotonic() - began
        broken = Watched(model, source, folder / "broken", "--append", *options)
        broken.run(until=lines // 2)
        again = Watched(model, source, folder / "broken", "--append", *options)
        again.run()
        output = (folder / "whole").read_bytes()
        early = next((each for done, each in whole.memory if done >= lines // 20), 0.0)
        late = [each for done, each in whole.memory if done <= lines - lines // 20]  # before the workers leave
        found = {
            "lines_in": lines,
            "lines_out": output.count(b"\n"),
            "seconds": round(seconds, 1),
            "lines_per_second": round(lines / seconds),
            "first_mb": round(early),
            "last_mb": round(late[-1]),
            "peak_mb": round(max(each for _, each in whole.memory)),
            "killed_at_line": broken.lines,
            "identical": output == (folder / "broken").read_bytes(),
        }
        show(found)


if __name__ == "__main__":
    main()
