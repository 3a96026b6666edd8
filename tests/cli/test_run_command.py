"""`headway run`: a conversation, in a terminal and away from one."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from headway.cli.conversation import HELP, Conversation
from headway.cli.suggestions import next_words
from headway.errors import ConfigError
from headway.sentence import Sentence
from headway.translator import load
from lively import save_lively


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return save_lively(tmp_path_factory.mktemp("models") / "lively")


@pytest.fixture(scope="module")
def translator(model_folder):
    return load(model_folder)


def typed(*lines):
    return "".join(f"{line}\n" for line in lines).encode()


def test_away_from_a_terminal_lines_go_in_and_translations_come_out(headway, model_folder, translator):
    texts = ["Zoë", "", "un chien mange tout ."]
    assert headway("run", model_folder, stdin=typed(*texts)).lines == translator(texts)


def test_commands_change_what_comes_after_them(headway, model_folder, translator, tmp_path):
    page = tmp_path / "page.html"
    stdin = typed(
        "Zoë", "/best 3", "/set beam=1", "Zoë mange", "/begin la reine", f"/attention {page}", "/quit", "never"
    )
    outcome = headway("run", model_folder, stdin=stdin)
    best = translator("Zoë", beam=3, nbest=3)
    listed = [
        f"{each.score:8.4f}  {text}" for each, text in zip(best.hypotheses, (best, *best.alternatives), strict=True)
    ]
    begun = translator("Zoë mange", beam=1, prefix="la reine")
    assert outcome.lines == [translator("Zoë"), *listed, translator("Zoë mange", beam=1), begun]
    assert outcome.err == f"headway: written: {page}\n"
    assert begun.startswith("la reine")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_away_from_a_terminal_notes_stand_apart_and_what_is_no_command_is_text(headway, model_folder, translator):
    texts = ["/nothing", "/etc/hosts mange", "/", "Le chat voit la pomme . " * 9]
    outcome = headway("run", model_folder, stdin=typed(*texts))
    assert outcome.lines == translator([text.strip() for text in texts])
    assert outcome.err.startswith("headway: longer than 31 tokens: read it in ") and outcome.err.count("\n") == 1


def test_options_hold_from_the_beginning(headway, model_folder, translator):
    options = ("--beam", 1, "--prefix", "la reine", "--set", "longest=5")
    wanted = translator("Zoë", beam=1, prefix="la reine", longest=5)
    assert headway("run", model_folder, *options, stdin=typed("Zoë")).lines == [wanted]


def test_help_and_settings_are_told(headway, model_folder):
    assert headway("run", model_folder, stdin=typed("/help")).lines == list(HELP.values())
    assert "beam = 7" in headway("run", model_folder, stdin=typed("/set beam=7", "/set")).lines


@pytest.mark.parametrize(
    ("line", "told"),
    [("/best", "no translation yet"), ("/set bean=2", "did you mean beam"),
     ("/set beam", "not of the form"), ("/begin", "no translation yet"), ("/attention x.html", "no translation yet")],
)  # fmt: skip
def test_a_mistake_is_one_line(line, told, headway, model_folder):
    assert told in headway("run", model_folder, stdin=typed(line)).only_complaint


def test_a_mistake_changes_no_setting_and_nothing_is_forgotten(translator):
    said, shown = [], []

    def show(growing):
        shown.extend(growing)
        return shown[-1]

    conversation = Conversation(translator, Sentence(""), {"beam": 3}, show=show, say=said.append)
    conversation.answer("Zoë")
    for line, told in (
        ("/nothing", "/nothing: no such command"),
        ("/set beam=0", "beam"),
        ("/best x", "not a whole number"),
        ("/attention /no/where.html", "where"),
    ):
        with pytest.raises(ConfigError, match=told):
            conversation.answer(line)
    assert conversation.settings == {"beam": 3}
    assert conversation.last == translator("Zoë", beam=3) == shown[-1]
    assert len(shown) > 2  # it grew


def test_what_can_be_completed_is_offered(translator):
    conversation = Conversation(translator, Sentence(""), {}, show=lambda growing: list(growing)[-1], say=print)
    assert conversation.completions("/be") == ["/best", "/begin"]
    assert conversation.completions("Zoë") == []
    assert "beam=" in conversation.completions("/set b")
    assert conversation.completions("/begin ") == []
    conversation.answer("Zoë")
    offered = conversation.completions("/begin la reine ")
    assert offered == next_words(translator, "Zoë", "la reine ")


def test_the_likeliest_words_are_offered_first_and_go_on_with_what_was_begun(translator):
    offered = next_words(translator, "Zoë", "")
    assert len(offered) > 2 and len(set(offered)) == len(offered)
    greedy = translator("Zoë", beam=1)
    assert offered[0] == greedy.split()[0]
    after = next_words(translator, "Zoë", "la reine ")
    assert after != offered
    assert after[0] == translator("Zoë", beam=1, prefix="la reine").removeprefix("la reine").split()[0]
    begun = next_words(translator, "Zoë", "la reine ma")
    assert begun and all(word.startswith("ma") for word in begun) and "mange" in begun
    assert next_words(translator, " ", "") == []
    assert next_words(translator, "Zoë", "la reine " * 99) == []


CONTROLLED = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); from headway.cli import main; main(sys.argv[1:])"
"""The command, with the terminal as the one whose keys may interrupt it."""


class Terminal:
    """A real terminal with the command in it."""

    def __init__(self, model_folder, **environment):
        self.screen, theirs = pty.openpty()
        given = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "100"} | environment
        command = [sys.executable, "-c", CONTROLLED, "run", str(model_folder), "--device", "cpu"]
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        # A shell that starts the tests in the background lets them ignore Ctrl-C, and the command would inherit that.
        heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        self.process = subprocess.Popen(command, env=given, start_new_session=True, preexec_fn=heeding, **streams)  # noqa: PLW1509  # no threads
        os.close(theirs)
        self.seen = ""

    def type(self, keys):
        os.write(self.screen, keys.encode())

    def until(self, text, seconds=600.0):
        """Everything shown until `text` is."""
        ends = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], max(0.0, ends - time.monotonic()))
            assert ready, (text, self.seen)
            self.seen += os.read(self.screen, 4096).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def interrupted(self, text):
        """Press Ctrl-C until `text` is shown: one pressed while the last key is being read is lost by readline."""
        for _ in range(20):
            time.sleep(0.3)
            self.type("\x03")
            if select.select([self.screen], [], [], 2.0)[0]:
                break
        self.until(text)

    def left(self):
        code = self.process.wait(600)
        os.close(self.screen)
        return code


COLOURED = re.compile("\x1b\\[3[0-9]m")


def test_a_terminal_shows_colours_offers_words_and_survives_mistakes_and_interrupts(model_folder, translator):
    terminal = Terminal(model_folder)
    legend = terminal.until("\n> ")
    assert "sure (90% and more)" in legend and COLOURED.search(legend)
    terminal.type("Zoë\r")
    shown = terminal.until("\n> ")
    assert COLOURED.search(shown) and translator("Zoë").split()[0] in shown
    terminal.type("/nothing\r")
    assert "headway: /nothing: no such command" in terminal.until("\n> ")
    terminal.type("/begin la reine mang\t")
    terminal.until("mange")
    terminal.type("\r")
    assert "la reine mange" in terminal.until("\n> ")
    terminal.type("half a line")
    terminal.until("half a line")
    terminal.interrupted("> ")
    terminal.type("\x1b[A\x1b[A\r")  # back to an earlier line
    assert "no such command" in terminal.until("\n> ")
    terminal.type("\x04")
    assert terminal.left() == 0


def test_no_colours_where_they_are_not_wanted(model_folder):
    terminal = Terminal(model_folder, NO_COLOR="1")
    shown = terminal.until("\n> ")
    terminal.type("Zoë\r")
    shown += terminal.until("\n> ")
    terminal.type("/quit\r")
    assert terminal.left() == 0
    assert not COLOURED.search(shown)
    assert "sure (90% and more)" in shown


def test_what_a_model_writes_cannot_move_the_cursor():
    from headway.cli.run import printable

    assert printable("a\x1b[2Jb\u202e c") == "a\ufffd[2Jb\ufffd c"
