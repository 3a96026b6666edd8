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
rate for CMUdict, of what `headway translate` writes by default. The first seed trains the default and every setting of
the grid; the other seeds train the default and the best settings. Of those the best is the one with the best mean on
the validation set, and the table compares it with the default on the test set.

Runs of all corpora go side by side in rounds of always the same number, each on cores of its own; a round with too few
is filled up with runs that are thrown away. RUNS keeps every result: given again, the command trains only what is
missing, so that the table can be made in several sittings (`--rounds` ends one). With `--grid FILE` the best settings
are those of an earlier grid, and only they and the default are trained. A result is used again if corpus, settings,
seed, time, device, threads and side-by-side are the same; where the library's source has changed since, a line on
standard error says so, and `--again` trains these settings anew.
"""

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch

from headway.errors import HeadwayError
from peers.corpora import CORPORA, PARTS, Sample, Texts, prepare_texts
from peers.origin import machine, show
from peers.trials import (
    Line,
    Trial,
    code,
    described_run,
    run_together,
    stop_on_sigterm,
    train_command,
    train_together,
    translate_command,
)

DEFAULT = "default"
USUAL = ["multi30k", "tatoeba-20k", "europarl-30k", "cmudict"]
FILLER = 1 << 20
"""The first seed of runs that only keep the machine as busy as the others have it."""


def setting(
    size: str | tuple[int, int],
    norm: str,
    dropout: float,
    batch: int,
    rate: float,
    vocabulary: int | None = None,
    *,
    positions: str = "rotary",
) -> dict[str, Any]:
    """Settings of one point of a grid; a size is a preset, or features and layers of each side.

    A vocabulary that is not named is left to Headway's choice, as is the warm-up.
    """
    shape: dict[str, Any] = {"model.preset": size}
    if not isinstance(size, str):
        dim, layers = size
        shape = {"model.dim": dim, "model.heads": dim // 64, "model.hidden": 4 * dim}
        shape |= {"model.encoder_layers": layers, "model.decoder_layers": layers}
    return {
        **shape,
        "model.norm": norm,
        "model.positions": positions,
        "model.dropout": dropout,
        "training.batch_tokens": batch,
        "training.learning_rate": rate,
        **({} if vocabulary is None else {"tokenizer.vocabulary": vocabulary}),
    }


CPU = {
    "tiny-post": setting("tiny", "post", 0.1, 512, 3e-3),
    "mini-4000": setting("mini", "post", 0.1, 512, 3e-3, 4000),
    "mini-pre": setting("mini", "pre", 0.1, 512, 3e-3),
    "wide-post": setting((256, 2), "post", 0.1, 1024, 1.5e-3),
    "tiny-pre": setting("tiny", "pre", 0.1, 1024, 2e-3),
    "small-pre": setting("small", "pre", 0.1, 2048, 1e-3),
    "tiny-large-batch": setting("tiny", "pre", 0.3, 4096, 3e-3, 8000),
    "base-pre": setting("base", "pre", 0.1, 2048, 4e-4),
}
"""The first four are the most promising ones."""
GPU = {
    "gpu-small-sinusoidal": setting("small", "post", 0.3, 4096, 1.6e-3, positions="sinusoidal"),
    "gpu-small-less-dropout": setting("small", "post", 0.2, 4096, 1.6e-3, positions="sinusoidal"),
    "gpu-small-higher-rate": setting("small", "post", 0.2, 4096, 2.5e-3, positions="sinusoidal"),
    "gpu-small-larger-batch": setting("small", "post", 0.2, 8192, 3e-3, positions="sinusoidal"),
    "gpu-small-rotary": setting("small", "post", 0.3, 4096, 1.6e-3),
    "gpu-small-fast": setting("small", "pre", 0.2, 8192, 3e-3, positions="sinusoidal"),
    "gpu-tiny-post": setting("tiny", "post", 0.1, 4096, 3e-3),
    "gpu-wide-post": setting((512, 3), "post", 0.3, 4096, 8e-4, 8000, positions="sinusoidal"),
}
"""For minutes on a GPU, which takes dozens to hundreds of updates a second."""
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
    earlier: list[Line] | None = None
    """The lines of an earlier grid, which is not trained again."""

    def trial(self, name: str, seed: int) -> Trial:
        options, folder = self.options, self.options.out / self.texts.folder.name / f"{name}-{seed}"
        request = {**self.shared, "setting": name, "settings": self.settings[name], "seed": seed}
        settings = self.settings[name] | ({} if seed == 1 and name == DEFAULT else {"training.seed": seed})
        sides = (self.texts.file("train", "source"), self.texts.file("train", "target"))
        command = train_command(*sides, folder / "run", options.time, options.device, settings)
        return Trial(folder, request, command)

    @cached_property
    def samples(self) -> dict[str, Sample]:
        """What is translated: the validation and the test set."""
        return {part: self.texts.sample(part, self.options.sentences) for part in PARTS[1:]}

    def ask(self, trial: Trial) -> list[str]:
        """Write down the sources of both sets and give the command that translates them."""
        given, sources = trial.folder / "source", chain(*(each.sources for each in self.samples.values()))
        given.write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")
        (trial.folder / "output").unlink(missing_ok=True)
        return translate_command(trial.run, given, trial.folder / "output", self.options.device)

    def score(self, trial: Trial) -> None:
        """Keep the scores of what was translated."""
        outputs = (trial.folder / "output").read_text(encoding="utf-8").split("\n")
        scores, first = {}, 0
        for part, sample in self.samples.items():
            scores[part] = self.texts.scores(outputs[first : first + len(sample.sources)], sample)
            first += len(sample.sources)
        trial.keep(trial.result() | scores | described_run(trial.run))

    def line(self, trial: Trial) -> Line:
        return {**trial.request, **trial.result()}

    def rank(self, name: str, seeds: list[int]) -> float:
        """The mean on the validation set, more being better; a run that failed is worse than all."""
        return statistics.mean(self.value(self.line(self.trial(name, seed))) for seed in seeds)

    def value(self, line: Line) -> float:
        """The score of a run on the validation set, more being better."""
        return float("-inf") if "failed" in line else self.texts.better(line["valid"][self.texts.corpus.headline])

    def first(self) -> list[Trial]:
        """The default and every setting of the grid, or the best of an earlier grid, with the first seed."""
        names = self.settings if self.earlier is None else (DEFAULT, *self.best())
        return [self.trial(name, self.options.seeds[0]) for name in names]

    def best(self) -> list[str]:
        """The settings that the validation set finds best, of this grid or of an earlier one."""
        first, names = self.options.seeds[0], [name for name in self.settings if name != DEFAULT]
        if self.earlier is None:
            scores = {name: self.rank(name, [first]) for name in names}
        else:
            lines = (line for line in self.earlier if (line["corpus"], line.get("seed")) == (self.texts.name, first))
            scores = {line["setting"]: self.value(line) for line in lines if line["setting"] in names}
        return sorted(scores, key=scores.__getitem__, reverse=True)[: self.options.best]

    def others(self) -> list[Trial]:
        """The default and the best settings with the other seeds."""
        return [self.trial(name, seed) for seed in self.options.seeds[1:] for name in (DEFAULT, *self.best())]

    def choice(self) -> Line:
        """The best setting by the mean on the validation set."""
        best = self.best()
        chosen = max(best, key=lambda name: self.rank(name, self.options.seeds))
        return {"summary": "choice", **self.shared, "best": chosen, "among": best}


def train_all(work: list[tuple[Grid, Trial]], options: argparse.Namespace) -> None:
    """Train what was not trained yet, and translate and score both sets, in rounds of any corpora."""
    count, pin = options.side_by_side, torch.device(options.device).type == "cpu"
    waiting = [each for each in work if each[1].lacks(PARTS[1:])]
    known = [each for each in work if each not in waiting]
    for _, trial in known:
        if trial.result().get("code") != code():
            print(f"{trial.folder.name}: trained by other source code; --again trains it anew", file=sys.stderr)
    score_all(known, options)
    for start in range(0, len(waiting), count):
        if options.rounds is not None and options.rounds <= 0:
            raise _OverError
        chosen = waiting[start : start + count]
        fillers = [work[0][0].trial(DEFAULT, FILLER + place) for place in range(count - len(chosen))]
        train_together([*(trial for _, trial in chosen), *fillers], options.threads, pin=pin)
        for filler in fillers:
            filler.remove()
        score_all(chosen, options)
        if options.rounds is not None:
            options.rounds -= 1


def score_all(work: list[tuple[Grid, Trial]], options: argparse.Namespace) -> None:
    """Translate and score those that were trained and not scored yet; on a GPU half as many at once, for its memory."""
    todo = [(grid, trial) for grid, trial in work if "failed" not in trial.result() and "test" not in trial.result()]
    pin = torch.device(options.device).type == "cpu"
    count = options.side_by_side if pin else max(1, options.side_by_side // 2)
    for start in range(0, len(todo), count):
        chosen = todo[start : start + count]
        commands = [(grid.ask(trial), trial.log) for grid, trial in chosen]
        for place, status, _ in run_together(commands, options.threads, pin=pin):
            grid, trial = chosen[place]
            if status:
                trial.keep(trial.result() | {"failed": f"cannot be translated with: {trial.problem()}"})
            else:
                grid.score(trial)


def read_lines(path: Path) -> tuple[dict[tuple[Any, ...], Line], list[Line]]:
    """Results by what they are of, the latest of each, and the choices of settings."""
    results: dict[tuple[Any, ...], Line] = {}
    choices: dict[tuple[Any, ...], Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        where = _where(line)
        if line.get("summary") == "choice":
            choices[where] = line
        else:
            results[(*where, line["setting"], line["seed"])] = line
    return results, list(choices.values())


def _where(line: Line) -> tuple[Any, ...]:
    return line["corpus"], line["machine"], line["time"], line["side_by_side"]


def table(path: Path) -> str:
    """Markdown tables: the default beside the best setting on the test set, and all settings on the validation set."""
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
        shown = [_spread(scores) for scores in found.values()]
        where = f"| {choice['corpus']} | {_machine(choice)} | {choice['time']} | {corpus.headline} "
        rows += [f"{where}| {shown[0]} | {choice['best']} | {shown[1]} | {better:+.2f} |"]
    seeds = sorted({key[-1] for key in results})
    told = f"Test set, mean and standard deviation of the seeds {', '.join(map(str, seeds))}."
    return "\n".join([*rows, "", told, "", *_grids(results)])


def _grids(results: dict[tuple[Any, ...], Line]) -> list[str]:
    """Every setting on the validation set, a column for each corpus and machine."""
    first = min(key[-1] for key in results)
    lines = [line for key, line in results.items() if key[-1] == first]
    places = list(dict.fromkeys(map(_where, lines)))
    names = list(dict.fromkeys(line["setting"] for line in lines))
    by_place = {(_where(line), line["setting"]): line for line in lines}
    titles = (f"{place[0]}, {CORPORA[place[0]].headline}" for place in places)
    rows = [f"| setting | {' | '.join(titles)} |", "| --- " * (1 + len(places)) + "|"]
    for name in names:
        cells = [_validated(by_place.get((place, name))) for place in places]
        rows += [f"| {name} | {' | '.join(cells)} |"]
    return [*rows, "", f"Validation set, seed {first}."]


def _validated(line: Line | None) -> str:
    """The score on the validation set; a run that failed has none."""
    if line is None:
        return ""
    return "failed" if "failed" in line else f"{line['valid'][CORPORA[line['corpus']].headline]:.2f}"


def _machine(line: Line) -> str:
    """The machine, and how many runs shared it."""
    return line["machine"] + (f", {line['side_by_side']} runs at once" if line["side_by_side"] > 1 else "")


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
    found.add_argument("--corpora", nargs="+", choices=CORPORA, default=USUAL)
    found.add_argument("--time", default="6m", help="of every training")
    found.add_argument("--settings", nargs="+", choices=[*LISTS, *CPU, *GPU], help="by default the list of the device")
    found.add_argument("--add", nargs="+", action="append", default=[], metavar="WORD", help="NAME SETTING=VALUE ...")
    found.add_argument("--grid", type=Path, metavar="FILE", help="choose the best settings by these JSON lines")
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
    grids, earlier = [], None
    if options.grid is not None:
        earlier = [json.loads(line) for line in options.grid.read_text(encoding="utf-8").splitlines()]
    for name in options.corpora:
        texts = prepare_texts(name, options.data.resolve(), options.out.resolve() / "data", options.pairs)
        shared = {"corpus": name, "machine": machine(options.device), "time": options.time}
        shared |= {"side_by_side": options.side_by_side, "threads": options.threads}
        shared |= {"pairs": options.pairs or texts.corpus.pairs, "sentences": options.sentences}
        grids.append(Grid(texts, settings, options, shared, earlier))
    for grid, again, seed in product(grids, options.again, options.seeds):
        grid.trial(again, seed).remove()
    stages = [(Grid.first,), (Grid.others,)] if earlier is None else [(Grid.first, Grid.others)]
    for stage in stages:
        work = [(grid, trial) for part in stage for grid in grids for trial in part(grid)]
        train_all(work, options)
        for grid, trial in work:
            show(grid.line(trial))
    for grid in grids:
        if grid.best():
            show(grid.choice())


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
