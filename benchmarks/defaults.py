"""Are the default settings good ones: the default beside a grid of settings, each trained for the same time.

    python benchmarks/defaults.py --data FOLDER --out RUNS > results.jsonl
    python benchmarks/defaults.py --data FOLDER --out RUNS --corpora tatoeba-20k --time 2m --settings tiny-pre wide-post
    python benchmarks/defaults.py --data FOLDER --out RUNS --device cuda --side-by-side 4
    python benchmarks/defaults.py --table results.jsonl

FOLDER holds archives, or folders of their content: multi30k-public, tatoeba_en_de, europarl_en_de-300k, cmudict_g2p.
Training pairs are all of Multi30k (plain text, English to German) and of CMUdict (letters to phonemes without stress),
and a seeded sample of 20,000 of Tatoeba and 30,000 of Europarl. Every run is a `headway train --source --target --time`
in a process of its own, which holds out pairs for its own validation; the default has no `--set`.

A setting is chosen on the validation set of the corpus, which no run sees: BLEU of all its sentences, or the word error
rate for CMUdict, decoded as `headway translate` does by default. The first seed trains the default and every setting of
the grid; the other seeds train the default and the best settings, which are then scored on the test set as well. Of
those the best is the one with the best mean on the validation set.

Runs go side by side in rounds of always the same number, each on cores of its own; a round with too few is filled up
with runs that are thrown away. RUNS keeps every result: given again, the command trains only what is missing, so that
the table can be made in several sittings (`--rounds` ends one). A result is used again if corpus, settings, seed, time,
device, threads and side-by-side are the same; where the library's source has changed since, a line on standard error
says so, and `--again` trains these settings anew.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.errors import HeadwayError
from peers.corpora import CORPORA, PARTS, Texts, prepare_texts
from peers.trials import (
    Line,
    Trial,
    code,
    described_run,
    machine,
    show,
    stop_on_sigterm,
    train_command,
    train_together,
)

DEFAULT = "default"
FILLER = 1 << 20
"""The first seed of runs that only keep the machine as busy as the others have it."""


def setting(
    size: str | tuple[int, int], norm: str, dropout: float, batch: int, rate: float, warmup: int, vocabulary: int
) -> dict[str, Any]:
    """Settings of one point of a grid; a size is a preset, or features and layers of each side."""
    shape: dict[str, Any] = {"model.preset": size}
    if not isinstance(size, str):
        dim, layers = size
        shape = {"model.dim": dim, "model.heads": dim // 64, "model.hidden": 4 * dim}
        shape |= {"model.encoder_layers": layers, "model.decoder_layers": layers}
    return {
        **shape,
        "model.norm": norm,
        "model.dropout": dropout,
        "training.batch_tokens": batch,
        "training.learning_rate": rate,
        "training.warmup": warmup,
        "tokenizer.vocabulary": vocabulary,
    }


CPU = {
    "tiny-post": setting("tiny", "post", 0.1, 512, 3e-3, 300, 4000),
    "mini-8000": setting("mini", "post", 0.1, 512, 3e-3, 400, 8000),
    "mini-pre": setting("mini", "pre", 0.1, 512, 3e-3, 200, 4000),
    "wide-post": setting((256, 2), "post", 0.1, 1024, 1.5e-3, 300, 4000),
    "tiny-pre": setting("tiny", "pre", 0.1, 1024, 2e-3, 200, 4000),
    "small-pre": setting("small", "pre", 0.1, 2048, 1e-3, 200, 4000),
    "tiny-large-batch": setting("tiny", "pre", 0.3, 4096, 3e-3, 200, 8000),
    "base-pre": setting("base", "pre", 0.1, 2048, 4e-4, 100, 4000),
}
GPU = {
    "gpu-small-post": setting("small", "post", 0.3, 8192, 1e-3, 1000, 8000),
    "gpu-small-pre": setting("small", "pre", 0.3, 25_000, 2e-3, 1000, 4000),
    "gpu-base-post": setting("base", "post", 0.3, 25_000, 5e-4, 2000, 8000),
    "gpu-base-pre": setting("base", "pre", 0.3, 8192, 5e-4, 1000, 4000),
    "gpu-tiny-post": setting("tiny", "post", 0.3, 8192, 3e-3, 1000, 8000),
    "gpu-tiny-pre": setting("tiny", "pre", 0.1, 4096, 3e-3, 1000, 4000),
    "gpu-wide-pre": setting((512, 2), "pre", 0.3, 8192, 1e-3, 1000, 4000),
    "gpu-small-few-tokens": setting("small", "post", 0.1, 4096, 1e-3, 1000, 2000),
}
"""For minutes on a GPU, which takes hundreds of updates a second."""
LISTS = {"cpu": CPU, "gpu": GPU}


class _OverError(Exception):
    """The rounds of this sitting are over."""


@dataclass
class Grid:
    """The settings of a comparison and the runs of one corpus."""

    texts: Texts
    settings: dict[str, dict[str, Any]]
    options: argparse.Namespace
    shared: Line
    """What the lines of all runs say."""

    def trial(self, name: str, seed: int) -> Trial:
        options, folder = self.options, self.options.out / self.texts.folder.name / f"{name}-{seed}"
        request = {**self.shared, "setting": name, "settings": self.settings[name], "seed": seed}
        settings = self.settings[name] | ({} if seed == 1 and name == DEFAULT else {"training.seed": seed})
        sides = (self.texts.file("train", "source"), self.texts.file("train", "target"))
        command = train_command(*sides, folder / "run", options.time, options.device, settings)
        return Trial(folder, request, command)

    def train(self, trials: Iterable[Trial], *parts: str) -> None:
        """Train what was not trained yet and score it on the validation set, in rounds."""
        count, waiting = self.options.side_by_side, []
        for trial in trials:
            if trial.lacks(("valid", *parts)):
                waiting.append(trial)
            elif trial.result().get("code") != code():
                print(f"{trial.folder.name}: trained by other source code; --again trains it anew", file=sys.stderr)
        for first in range(0, len(waiting), count):
            if self.options.rounds is not None and self.options.rounds <= 0:
                raise _OverError
            chosen = waiting[first : first + count]
            fillers = [self.trial(DEFAULT, FILLER + place) for place in range(count - len(chosen))]
            pin = torch.device(self.options.device).type == "cpu"
            train_together([*chosen, *fillers], self.options.threads, pin=pin)
            for filler in fillers:
                filler.remove()
            if self.options.rounds is not None:
                self.options.rounds -= 1
            for trial in chosen:
                self.line(trial, *parts)

    def line(self, trial: Trial, *parts: str) -> Line:
        """The result of a trained run with the scores of `parts`; what was scored before is not scored again."""
        result, wanted = trial.result(), ("valid", *parts)
        missing = [part for part in wanted if part not in result]
        if missing and "failed" not in result:
            import headway

            translator = headway.load(trial.run, device=torch.device(self.options.device))
            for part in missing:
                sample = self.texts.sample(part, self.options.sentences)
                outputs = [str(each) for each in translator(sample.sources)]
                result[part] = self.texts.scores(outputs, sample)
            result["parameters"] = sum(weight.numel() for weight in translator.model.parameters())
            trial.keep(result | described_run(trial.run))
        result = trial.result()
        scores = {part: result[part] for part in wanted if part in result}
        return {**trial.request, **scores, **{name: value for name, value in result.items() if name not in PARTS}}

    def rank(self, name: str, seeds: list[int]) -> float:
        """The mean on the validation set, more being better; a run that failed is worse than all."""
        lines = [self.line(self.trial(name, seed)) for seed in seeds]
        if any("failed" in line for line in lines):
            return float("-inf")
        return statistics.mean(self.texts.better(line["valid"][self.texts.corpus.headline]) for line in lines)

    def measure(self) -> Iterator[Line]:
        """All lines of a corpus."""
        first, *others = self.options.seeds
        grid = [name for name in self.settings if name != DEFAULT]
        self.train(self.trial(name, first) for name in (DEFAULT, *grid))
        yield from (self.line(self.trial(name, first)) for name in (DEFAULT, *grid))
        best = sorted(grid, key=lambda name: self.rank(name, [first]), reverse=True)[: self.options.best]
        self.train((self.trial(name, seed) for seed in (first, *others) for name in (DEFAULT, *best)), "test")
        for name in (DEFAULT, *best):
            yield from (self.line(self.trial(name, seed), "test") for seed in self.options.seeds)
        if best:
            chosen = max(best, key=lambda name: self.rank(name, self.options.seeds))
            yield {"summary": "choice", **self.shared, "best": chosen, "among": best}


def read_lines(path: Path) -> tuple[dict[tuple[Any, ...], Line], list[Line]]:
    """Results by what they are of, the latest of each, and the choices of settings."""
    results: dict[tuple[Any, ...], Line] = {}
    choices: dict[tuple[Any, ...], Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        where = _where(line)
        if line.get("summary") == "choice":
            choices[where] = line
        elif "test" in line:
            results[(*where, line["setting"], line["seed"])] = line
    return results, list(choices.values())


def _where(line: Line) -> tuple[Any, ...]:
    return line["corpus"], line["machine"], line["time"], line["side_by_side"]


def table(path: Path) -> str:
    """A Markdown table: the default and the best setting of every corpus and machine, on the test set."""
    results, choices = read_lines(path)
    rows = ["| corpus | machine | time | score | default | best of the grid | its score | default better by |"]
    rows += ["| --- " * 8 + "|"]
    for choice in choices:
        corpus = CORPORA[choice["corpus"]]
        found = {
            name: [
                line["test"][corpus.headline]
                for key, line in results.items()
                if key[:-1] == (*_where(choice), name) and "failed" not in line
            ]
            for name in (DEFAULT, choice["best"])
        }
        if not all(found.values()):
            continue
        default, best = (statistics.mean(scores) for scores in found.values())
        better = (best - default) if corpus.lower_is_better else (default - best)
        beside = f", {choice['side_by_side']} runs at once" if choice["side_by_side"] > 1 else ""
        told = f"| {choice['corpus']} | {choice['machine']}{beside} | {choice['time']} | {corpus.headline} "
        shown = [_spread(scores) for scores in found.values()]
        rows += [f"{told}| {shown[0]} | {choice['best']} | {shown[1]} | {better:+.2f} |"]
    seeds = sorted({key[-1] for key in results})
    return "\n".join([*rows, "", f"Test set, mean and standard deviation of the seeds {', '.join(map(str, seeds))}."])


def _spread(scores: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(scores):.2f}" + (f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else "")


def chosen_settings(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The default and the settings that were named, a list of them, or added."""
    named: dict[str, dict[str, Any]] = {DEFAULT: {}}
    for name in options.settings or ["cpu" if torch.device(options.device).type == "cpu" else "gpu"]:
        named |= LISTS[name] if name in LISTS else {name: (CPU | GPU)[name]}
    for name, *words in options.add:
        pairs = (word.split("=", 1) for word in words)
        named[name] = {key: _value(text) for key, text in pairs}
    return named


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--data", type=Path, help="folder of the corpora")
    found.add_argument("--out", type=Path, help="folder of runs and results")
    found.add_argument("--table", type=Path, metavar="FILE", help="print a Markdown table of these JSON lines, no more")
    found.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA))
    found.add_argument("--time", default="6m", help="of every training")
    found.add_argument("--settings", nargs="+", choices=[*LISTS, *CPU, *GPU], help="by default the list of the device")
    found.add_argument("--add", nargs="+", action="append", default=[], metavar="WORD", help="NAME SETTING=VALUE ...")
    found.add_argument("--again", nargs="+", default=[], metavar="NAME", help="train these settings anew")
    found.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    found.add_argument("--best", type=int, default=2, help="settings that are trained with every seed")
    found.add_argument("--side-by-side", type=int, default=1, help="runs at once, always as many")
    found.add_argument("--rounds", type=int, help="rounds of runs in this sitting, at most")
    found.add_argument("--threads", type=int, default=2, help="of every run")
    found.add_argument("--pairs", type=int, help="training pairs of a corpus, in place of its usual number")
    found.add_argument("--sentences", type=int, help="of validation and test set, at most")
    found.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return found


def measure(options: argparse.Namespace, settings: dict[str, dict[str, Any]]) -> None:
    """Show the lines of every corpus."""
    for name in options.corpora:
        texts = prepare_texts(name, options.data.resolve(), options.out.resolve() / "data", options.pairs)
        shared = {"corpus": name, "machine": machine(options.device, options.threads), "time": options.time}
        shared |= {"side_by_side": options.side_by_side, "threads": options.threads}
        shared |= {"pairs": options.pairs or texts.corpus.pairs, "sentences": options.sentences}
        grid = Grid(texts, settings, options, shared)
        for again in options.again:
            for seed in options.seeds:
                grid.trial(again, seed).remove()
        for line in grid.measure():
            show(line)


def main() -> int:
    options = parser().parse_args()
    if options.table is not None:
        print(table(options.table))
        return 0
    if options.data is None or options.out is None:
        parser().error("--data and --out are needed, or --table")
    settings = chosen_settings(options)
    if unknown := set(options.again) - settings.keys():
        parser().error(f"--again: not among the settings: {', '.join(sorted(unknown))}")
    stop_on_sigterm()
    try:
        measure(options, settings)
    except KeyboardInterrupt:
        return 130
    except _OverError:
        print("the rounds of this sitting are over; give the command again", file=sys.stderr)
    except HeadwayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
