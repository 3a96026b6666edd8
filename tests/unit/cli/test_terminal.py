"""What a person sees of a run, away from a terminal."""

import pytest

from headway.cli.terminal import Terminal, bar, duration
from headway.training.trainer import Update


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (61.0, "1 min 1 s"), (3661.0, "1 h 1 min")]
)
def test_a_duration_reads_as_people_write_it(seconds, text):
    assert duration(seconds) == text


def test_work_is_told_once_and_updates_now_and_then(capsys):
    with Terminal(every=10) as screen:
        for done in range(3):
            screen.working("reading", done, 3)
        screen.say("[red]as it is[/red]")
        for step in range(1, 21):
            screen.updated(Update(step, 20, 0, 1.5, 1e-3, 1.0, 100.0, 5.0))
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[:2] == ["reading ...", "[red]as it is[/red]"]
    assert [line.split(":")[0] for line in lines[2:]] == ["step 1/20", "step 10/20", "step 20/20"]
    assert lines[2].endswith("learning rate 1.00e-03, epoch 1, 5 s left")


@pytest.mark.parametrize(("share", "full", "told"), [(0.0, 0, "0 %"), (0.5, 15, "50 %"), (1.0, 30, "100 %")])
def test_a_bar_is_as_full_as_it_says(share, full, told):
    drawn, _, percent = bar(share).partition(" ")
    assert (drawn, percent) == ("━" * full + "┄" * (30 - full), told)
