"""Worker processes that each prepare once and then answer, in the order they were asked."""

import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, TypeVar

from headway.errors import HeadwayError, out_of_memory
from headway.runtime.cores import read_cores
from headway.runtime.memory import free_memory, own_memory

Question = TypeVar("Question")
Answer = TypeVar("Answer")

AHEAD = 3
"""Questions a worker that are read but whose answers are not yet handed on, at most."""


def affordable() -> int:
    """How many processes like this one are reasonable: one a core, and no more than memory has room for."""
    cores = read_cores().available
    taken, free = own_memory("VmRSS"), free_memory()
    if not taken or free is None:  # not Linux, or a part of it hidden
        return cores
    return max(1, min(cores, free // taken))


class Crew(Generic[Question, Answer]):
    """While entered, `workers` processes that answer questions; leaving ends them at once, whatever they do.

    `prepare` is called in every process and returns what answers; it must be importable, with arguments that pickle.
    """

    def __init__(self, prepare: Callable[..., Callable[[Question], Answer]], *arguments: Any, workers: int) -> None:
        self.prepare, self.arguments, self.workers = prepare, arguments, workers
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def __enter__(self) -> "Crew[Question, Answer]":
        context = get_context("spawn")
        resource_tracker.ensure_running()  # or else the first start lets signals through again
        # Ctrl-C reaches all processes of a terminal; only this one is to act on it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(self.workers):
                own, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, self.prepare, self.arguments), daemon=True)
                process.start()
                theirs.close()
                self._processes.append(process)
                self._pipes.append(own)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()  # they hold nothing that could be lost
        for process in self._processes:
            process.join()

    def answers(self, questions: Iterator[Question]) -> Iterator[Answer]:
        """The answer to every question, in order; no more questions are read ahead than keep all workers busy.

        An error of `questions`, or a `HeadwayError` of a worker, is raised after the answers to all questions before.
        A worker that dies is a `HeadwayError` at once.
        """
        shared = _Shared(enumerate(questions), AHEAD * self.workers)
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            threading.Thread(target=_hand_out, args=(shared, pipe, process), daemon=True).start()
        waiting: dict[int, Any] = {}
        place = 0
        while True:
            while place not in waiting:
                number, found = shared.found.get()
                if number < 0:
                    raise found
                waiting[number] = found
            found = waiting.pop(place)
            if isinstance(found, StopIteration):
                return
            if isinstance(found, BaseException):
                raise found
            yield found
            place += 1
            shared.room.release()


class _Shared:
    """What the threads that look after the workers have in common."""

    def __init__(self, questions: Iterator[tuple[int, Any]], ahead: int) -> None:
        self.questions = questions
        self.found: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        """Answers and errors by the number of the question; -1 for what is to be raised at once."""
        self.room = threading.Semaphore(ahead)
        self._reading = threading.Lock()
        self._read = 0
        self._over = False

    def next(self) -> tuple[int, Any] | None:
        """The next question; None when there are no more, or it could not be read."""
        with self._reading:
            if self._over:
                return None
            self.room.acquire()
            try:
                number, question = next(self.questions)
            except BaseException as error:  # noqa: BLE001  # raised where the answers are read
                self._over = True
                self.found.put((self._read, error))
                return None
            self._read = number + 1
            return number, question


def _hand_out(shared: _Shared, pipe: Connection, process: Any) -> None:
    """Ask one worker, one question after the other."""
    while (asked := shared.next()) is not None:
        number, question = asked
        try:
            pipe.send(question)
            shared.found.put((number, pipe.recv()))
        except (EOFError, OSError):
            process.join(5)
            code = process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            told = f"a worker process died ({how}); if memory ran out, lower --workers"
            shared.found.put((-1, HeadwayError(told)))
            return


def _work(pipe: Connection, prepare: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    """What a worker does: prepare, then answer until there is nobody left to ask."""
    try:
        answer = prepare(*arguments)
        while True:
            question = pipe.recv()
            try:
                pipe.send(answer(question))
            except HeadwayError as error:
                pipe.send(error)
    except (EOFError, OSError):  # the other side is gone
        return
    except Exception as error:
        if not out_of_memory(error):
            raise
        sys.exit(1)  # the other side says what to do
