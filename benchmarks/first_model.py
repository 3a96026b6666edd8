"""A first model in six minutes on two CPU cores: Headway without any setting beside Hugging Face's Marian.

    python3 -m venv peers/main && peers/main/bin/pip install torch==2.13.0    # the torch of Headway's environment
    peers/main/bin/pip install transformers
    python benchmarks/first_model.py --data FOLDER --out RUNS --python peers/main/bin/python > results.jsonl

Where transformers can be imported beside Headway, `--python` is not needed. FOLDER holds the archives tatoeba_en_de and
multi30k-public, or folders of their content. Both systems learn the same pairs from scratch: 20,000 of Tatoeba by a
seeded sample, and all of Multi30k as plain text. They take turns and never run at the same time; each has the same
cores to itself.

Headway is `headway train --source --target --time`, and nothing set. It holds out up to one pair in twenty for its own
validations, and these count as training time. Marian is a plain loop in fp32, not compiled: joint byte-level BPE, pairs
of like length in a batch, Adam (0.9, 0.98), label smoothing 0.1, gradients clipped at 1, a linear warm-up and then a
linear decay to zero at the end of the time. It learns from all pairs, and its clock stands still while text is
tokenised; it has no validations. The seed that comes first trains Marian with every one of `--marian-settings`; the
setting with the highest BLEU on the validation set of the corpus, which neither system trains on, trains the other
seeds. Headway decodes as `headway translate` does by default, Marian by a beam of `--beam` with its own length penalty.

One JSON line a run with BLEU (sacreBLEU, 13a) and chrF, on the test set for those that count, and a summary line for
each corpus. RUNS keeps every result: given again, the command trains only what is missing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, HeadwayError
from headway.training.config import seconds
from peers.corpora import CORPORA, PARTS, Texts, prepare_texts
from peers.origin import machine, show
from peers.trials import (
    Line,
    Trial,
    code,
    described_run,
    stop_on_sigterm,
    train_command,
    train_together,
)

WORKER = Path(__file__).resolve().parent / "peers" / "marian.py"
HEADWAY, MARIAN = "headway", "marian"
COMMON = {"heads": 4, "dropout": 0.1, "label_smoothing": 0.1, "warmup": 200, "batch_tokens": 2048, "init_std": 0.02}
TINY = {**COMMON, "dim": 128, "hidden": 512, "layers": 4, "vocabulary": 8000, "rate": 1e-3}
MINI = {**TINY, "layers": 2, "vocabulary": 4000, "batch_tokens": 512, "rate": 2e-3, "warmup": 400}
SETTINGS: dict[str, dict[str, Any]] = {
    "tiny": TINY,
    "tiny-fast": {**TINY, "rate": 2e-3},
    "tiny-4000": {**TINY, "vocabulary": 4000},
    "tiny-xavier": {**TINY, "rate": 2e-3, "vocabulary": 4000, "init_std": 128**-0.5},
    "mini": MINI,
    "mini-fast": {**MINI, "rate": 3e-3},
    "mini-plain": {**MINI, "dropout": 0.0},
    "small": {**TINY, "dim": 256, "hidden": 1024, "layers": 3, "rate": 5e-4},
    "wide": {**TINY, "dim": 256, "hidden": 1024, "layers": 2},
}
"""Marian's. The three of `MINI` have the size, vocabulary and batches that Headway chooses; `init_std` is that of
transformers, and for tiny-xavier that of Xavier's initialisation."""


@dataclass
class Contest:
    """Both systems on one corpus."""

    texts: Texts
    options: argparse.Namespace
    shared: Line

    def trial(self, system: str, setting: str, seed: int) -> Trial:
        options, folder = self.options, self.options.out / self.texts.folder.name / f"{system}-{setting}-{seed}"
        request = {**self.shared, "system": system, "setting": setting, "seed": seed}
        sides = self.texts.file("train", "source"), self.texts.file("train", "target")
        if system == HEADWAY:
            settings = {} if seed == 1 else {"training.seed": seed}
            return Trial(folder, request, train_command(*sides, folder / "run", options.time, "cpu", settings))
        request |= {"settings": SETTINGS[setting], "beam": options.beam}
        command = [options.python, str(WORKER), "train", str(folder / "run"), "--seconds", str(seconds(options.time))]
        command += ["--source", str(sides[0]), "--target", str(sides[1]), "--seed", str(seed)]
        return Trial(folder, request, [*command, "--settings", json.dumps(SETTINGS[setting])], finished="report.json")

    def line(self, trial: Trial, *parts: str) -> Line:
        """Train if need be, score what was not scored yet, and say what was found."""
        wanted = ("valid", *parts)
        if trial.lacks(wanted):
            train_together([trial], self.options.threads, pin=True)
        elif trial.request["system"] == HEADWAY and trial.result().get("code") != code():
            print(f"{trial.folder.name}: trained by other source code; remove its folder to repeat", file=sys.stderr)
        result = trial.result()
        missing = [part for part in wanted if part not in result]
        if missing and "failed" not in result:
            ours = trial.request["system"] == HEADWAY
            result |= described_run(trial.run) if ours else json.loads((trial.run / "report.json").read_text("utf-8"))
            for part, outputs in (self.ours if ours else self.theirs)(trial, missing).items():
                sample = self.texts.sample(part, self.options.sentences)
                result[part] = self.texts.scores(outputs, sample)
            trial.keep(result)
        scores = {part: result[part] for part in wanted if part in result}
        return {**trial.request, **scores, **{name: value for name, value in result.items() if name not in PARTS}}

    def ours(self, trial: Trial, parts: list[str]) -> dict[str, list[str]]:
        import headway

        translator, outputs = headway.load(trial.run), {}
        for part in parts:
            outputs[part] = [str(each) for each in translator(self.texts.sample(part, self.options.sentences).sources)]
        return outputs

    def theirs(self, trial: Trial, parts: list[str]) -> dict[str, list[str]]:
        outputs = {}
        for part in parts:
            given, written = trial.folder / f"{part}.source", trial.folder / f"{part}.output"
            sources = self.texts.sample(part, self.options.sentences).sources
            given.write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")
            command = [self.options.python, str(WORKER), "translate", str(trial.run), "--beam", str(self.options.beam)]
            environment = os.environ | {"OMP_NUM_THREADS": str(self.options.threads)}
            command += ["--source", str(given), "--output", str(written)]
            with (trial.folder / "log.txt").open("ab") as log:
                subprocess.run(command, check=True, stdout=log, stderr=log, env=environment)
            outputs[part] = written.read_text(encoding="utf-8").rstrip("\n").split("\n")
        return outputs

    def measure(self) -> Iterator[Line]:
        """All lines of the corpus: the two systems by turns."""
        first, *others = self.options.seeds
        headway = [self.line(self.trial(HEADWAY, "default", first), "test")]
        yield headway[0]
        tried = {}
        for setting in self.options.marian_settings:
            tried[setting] = self.line(self.trial(MARIAN, setting, first))
            yield tried[setting]
        fine = {name: line["valid"]["BLEU"] for name, line in tried.items() if "failed" not in line}
        if not fine or "failed" in headway[0]:
            raise HeadwayError(f"{self.options.out}: a training failed; see the lines above and the log.txt of the run")
        chosen = max(fine, key=fine.__getitem__)
        marian = [self.line(self.trial(MARIAN, chosen, first), "test")]
        yield marian[0]
        for seed in others:
            headway.append(self.line(self.trial(HEADWAY, "default", seed), "test"))
            yield headway[-1]
            marian.append(self.line(self.trial(MARIAN, chosen, seed), "test"))
            yield marian[-1]
        yield {**self.shared, "summary": "first model", **_summary(headway, marian), "marian_setting": chosen}


def _summary(headway: list[Line], marian: list[Line]) -> Line:
    """Mean and standard deviation of the test scores of both systems, and the difference of the means."""
    found: Line = {"seeds": [line["seed"] for line in headway]}
    for measure in ("BLEU", "chrF"):
        means = []
        for name, lines in ((HEADWAY, headway), (MARIAN, marian)):
            scores = [line["test"][measure] for line in lines if "test" in line]
            means.append(statistics.mean(scores))
            deviation = round(statistics.stdev(scores), 2) if len(scores) > 1 else None
            found[f"{name}_{measure}"] = {"mean": round(means[-1], 2), "deviation": deviation}
        found[f"difference_{measure}"] = round(means[0] - means[1], 2)
    return found


def check_transformers(python: str) -> None:
    """Refuse an interpreter that has no transformers."""
    found = subprocess.run([python, "-c", "import transformers"], check=False, capture_output=True)
    if found.returncode:
        told = "cannot import transformers; install it (see --help) or name another interpreter by --python"
        raise ConfigError(f"{python}: {told}")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    found.add_argument("--out", type=Path, required=True, help="folder of runs and results")
    names = [name for name, corpus in CORPORA.items() if corpus.measure == "BLEU"]
    found.add_argument("--corpora", nargs="+", choices=names, default=["tatoeba-20k", "multi30k"])
    found.add_argument("--time", default="6m", help="of every training")
    found.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    found.add_argument("--marian-settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    found.add_argument("--python", default=sys.executable, help="an interpreter that has transformers")
    found.add_argument("--beam", type=int, default=5, help="of Marian")
    found.add_argument("--threads", type=int, default=2, help="cores to train on")
    found.add_argument("--pairs", type=int, help="training pairs of a corpus, in place of its usual number")
    found.add_argument("--sentences", type=int, help="of validation and test set, at most")
    return found


def main() -> int:
    options = parser().parse_args()
    stop_on_sigterm()
    try:
        check_transformers(options.python)
        for name in options.corpora:
            texts = prepare_texts(name, options.data.resolve(), options.out.resolve() / "data", options.pairs)
            shared = {"corpus": name, "machine": machine("cpu"), "time": options.time, "threads": options.threads}
            shared |= {"pairs": options.pairs or texts.corpus.pairs, "sentences": options.sentences}
            for line in Contest(texts, options, shared).measure():
                show(line)
    except KeyboardInterrupt:
        return 130
    except HeadwayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
