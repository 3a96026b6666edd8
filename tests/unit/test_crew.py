"""Worker processes that answer in order."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from headway import crew as module
from headway.crew import AHEAD, Crew, affordable
from headway.errors import DataError, HeadwayError
from headway.runtime.cores import Cores


def squarer(offset):
    def square(number):
        time.sleep(0.02 * (number % 3 == 0))
        return number * number + offset, os.getpid()

    return square


def complainer():
    def complain(number):
        if number == 3:
            raise DataError("three: is too many; take two")
        return number

    return complain


def sleeper():
    def sleep(number):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)

    return sleep


def glutton():
    def eat(number):
        raise MemoryError

    return eat


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_come_in_the_order_of_the_questions_from_all_workers():
    with Crew(squarer, 5, workers=2) as crew:
        found = list(crew.answers(iter(range(30))))
    assert [answer for answer, _ in found] == [number * number + 5 for number in range(30)]
    processes = {process for _, process in found}
    assert len(processes) == 2 and os.getpid() not in processes
    assert not any(map(alive, processes))


def test_no_more_is_read_ahead_than_keeps_the_workers_busy():
    read = []

    def questions():
        for number in count():
            read.append(number)
            yield number

    with Crew(squarer, 0, workers=2) as crew:
        answers = crew.answers(questions())
        for place in range(20):
            next(answers)
            assert len(read) <= place + 2 + 2 * AHEAD
        time.sleep(0.2)
        assert len(read) <= 20 + 2 * AHEAD


def test_an_error_comes_after_the_answers_to_all_questions_before_it():
    with Crew(complainer, workers=2) as crew:
        answers = crew.answers(iter(range(9)))
        assert [next(answers) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(DataError, match="three: is too many"):
            next(answers)

    def broken():
        yield 0
        raise DataError("line 2: is not UTF-8")

    with Crew(complainer, workers=2) as crew:
        answers = crew.answers(broken())
        assert next(answers) == 0
        with pytest.raises(DataError, match="line 2"):
            next(answers)


def test_a_worker_that_dies_is_told_at_once_in_one_line():
    with Crew(sleeper, workers=2) as crew, pytest.raises(HeadwayError, match=r"a worker process died \(signal 9\)"):
        list(crew.answers(iter([1, 2])))  # the other one would take an hour


def test_questions_that_do_not_come_do_not_keep_answers_back():
    go_on = threading.Event()

    def questions():
        yield 1
        go_on.wait(600)
        yield 2

    with Crew(squarer, 0, workers=2) as crew:
        answers = crew.answers(questions())
        assert next(answers)[0] == 1
        go_on.set()
        assert next(answers)[0] == 4
        assert list(answers) == []


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_crew import squarer\nfrom headway.crew import Crew\nfrom itertools import count\n"
        "if __name__ == '__main__':\n"
        "    with Crew(squarer, 0, workers=2) as crew:\n"
        "        for _, process in crew.answers(count()): print(process, flush=True)\n"
    )
    (tmp_path / "script.py").write_text(script)
    with subprocess.Popen([sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True) as parent:
        processes = set()
        while len(processes) < 2:
            processes.add(int(parent.stdout.readline()))
        parent.kill()
        parent.stdout.read()
    ends = time.monotonic() + 120
    while any(map(alive, processes)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not any(map(alive, processes))


def test_a_program_that_does_not_read_all_answers_ends_all_the_same(tmp_path):
    text = (
        "from headway.crew import Crew\nfrom itertools import count\n"
        "def doubler(): return lambda number: 2 * number\n"
        "def answers():\n"
        "    with Crew(doubler, workers=1) as crew: yield from crew.answers(count(1))\n"
        "if __name__ == '__main__':\n"
        "    given = answers()\n"
        "    print(next(given))\n"
    )
    (tmp_path / "script.py").write_text(text)
    # Workers write where their parent does: the output ends when all have ended.
    script = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(script, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


@pytest.mark.parametrize(
    ("quota", "taken", "free", "found"),
    [
        (None, 300, 100_000, 8), (None, 300, 1000, 3), (None, 300, 10, 1), (1.5, 300, 100_000, 2),
        (None, None, 1000, 8), (None, 300, None, 8),  # a system that says nothing of memory
    ],
)  # fmt: skip
def test_no_more_processes_are_started_than_cores_or_memory_allow(quota, taken, free, found, monkeypatch):
    monkeypatch.setattr(module, "read_cores", lambda: Cores(8, 8, 8, quota))
    monkeypatch.setattr(module, "own_memory", {"VmRSS": taken}.get)
    monkeypatch.setattr(module, "free_memory", lambda: free)
    assert affordable() == found


def test_a_worker_without_memory_says_nothing_of_its_own(capfd):
    with pytest.raises(HeadwayError, match=r"died \(exit code 1\)"), Crew(glutton, workers=1) as crew:
        list(crew.answers(iter([1])))
    assert capfd.readouterr().err == ""
