"""G1: a run that is killed again and again ends bit for bit like one that was never touched."""

import re
import time
from dataclasses import dataclass, field

from runs import Runs, Watched, result, saved_step

VARIANTS = [
    {"training__layout": "padded"},
    {"training__layout": "packed", "training__save_every": 3, "training__ema": 0.9},
]
"""With a checkpoint at every validation, and with more of them."""
INTERVALS = [4, 3]
AIMED = [
    "counting", "storing", "planning", "step 1", "step 7", "validating", "saving", "pruning", "averaging", "writing",
]  # fmt: skip
"""Phases that kills are aimed at; as many again come at any time."""


@dataclass
class Kills:
    """Kills one run after the other and keeps count of where they hit and what they cost."""

    runs: Runs
    chance: object
    whole: float
    """Seconds an unbroken run takes."""
    left: int
    count: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    lost: int = 0

    def broken(self, out, settings) -> int:
        """Run to the end, killed on the way as long as kills are left; returns how many there were."""
        before = self.count
        while True:
            saved = saved_step(out)
            watched = self.runs.watch("watched", self.runs.arguments(out, **settings))
            if self.left:
                self._kill(watched)
            ended = watched.wait()
            check(ended, saved)
            if ended.code == 0:
                return self.count - before
            assert ended.code == -9, ended.err
            self._count(watched)
            self.lost = max(self.lost, watched.step - saved_step(out))

    def _kill(self, watched: Watched) -> None:
        """Kill it at some moment of the run, or some milliseconds after it has entered some phase."""
        aim = self.chance.choice(AIMED) if self.chance.random() < 0.5 else None
        times = self.chance.choice((1, 1, 1, 2))
        moment = time.monotonic() + self.chance.uniform(0, 0.7 * self.whole if aim is None else 4 * self.whole)
        while (left := moment - time.monotonic()) > 0 and not watched.ended:
            if aim in watched.hear(left):  # hears no further than that
                times -= 1
                if times == 0:
                    time.sleep(self.chance.choice((0, 0, 0.001, 0.005, 0.02)))
                    break
        watched.trial.kill()

    def _count(self, watched: Watched) -> None:
        self.left, self.count = self.left - 1, self.count + 1
        phase = next((each for each in reversed(watched.phases) if each != "saying"), "starting")
        phase = re.sub(r"step \d+", "training", phase)
        self.hits[phase] = self.hits.get(phase, 0) + 1


def check(ended, saved) -> None:
    """It went on from the newest checkpoint that was there."""
    resumed = re.findall(r"^resuming at step (\d+)$", ended.err, re.MULTILINE)
    assert resumed in ([], [str(saved)]), (resumed, saved)
    assert "Traceback" not in ended.err, ended.err
    assert "skipped a checkpoint" not in ended.err, ended.err


def test_a_run_killed_at_random_times_ends_bit_for_bit_like_an_unbroken_one(runs, chance, tally, tmp_path):
    kills = Kills(runs, chance, 0.0, tally.expect(50, 1000))
    wanted = []
    for number, settings in enumerate(VARIANTS):
        began = time.monotonic()
        assert runs.train(tmp_path / f"whole-{number}", **settings).code == 0
        kills.whole = time.monotonic() - began
        wanted.append(result(tmp_path / f"whole-{number}"))
    number = 0
    while kills.left:
        variant = number % len(VARIANTS)
        out = tmp_path / f"run-{number}"
        hit = kills.broken(out, VARIANTS[variant])
        assert result(out) == wanted[variant]
        assert kills.lost <= 2 * max(INTERVALS)  # since the newest checkpoint, and while one was being written
        tally.passed += hit
        number += 1
    tally.saw(runs=number, updates_lost=kills.lost)
    assert tally.passed == kills.count == tally.count
    assert {"saving", "validating", "training"} <= kills.hits.keys(), kills.hits
