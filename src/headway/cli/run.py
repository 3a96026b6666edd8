"""`headway run`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import AskedOptions, EngineOptions, SearchOptions

if TYPE_CHECKING:
    from rich.text import Text

    from headway.cli.conversation import Conversation
    from headway.translator import Translation

LEVELS = ((0.9, "green", "sure"), (0.5, "yellow", "likely"), (0.0, "red", "doubtful"))
"""How a word is coloured whose probability is at least so much."""
PROMPT = "> "


def command(
    model: Path,
    /,
    *,
    search: SearchOptions = SearchOptions(),  # noqa: B008  # frozen
    asked: AskedOptions = AskedOptions(),  # noqa: B008  # frozen
    engine: EngineOptions = EngineOptions(),  # noqa: B008  # frozen
) -> None:
    """Translate what you type, as you type it: outputs appear as they grow, coloured by how sure the model is.

    '/help' lists what else can be asked for: more outputs, a given beginning, other settings. Without a terminal, lines
    in and translations out; any other word with a slash is then text, and notes go to standard error.

    Parameters
    ----------
    model
        A model folder, a run folder, or a checkpoint of a run.
    """
    from headway.cli.conversation import Conversation
    from headway.models.model import translating

    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    screen = Screen() if terminal else None
    translator = engine.load(model, _told)
    translating(translator.model, "run")
    translator.source.tagged(asked.tag or ())  # refuses an unknown one, even where there is no line
    conversation = Conversation(
        translator,
        asked.sentence(),
        search.settings(),
        show=screen.show if screen else _plain,
        say=screen.say if screen else print,
        note=screen.say if screen else _told,
        typed=screen is not None,
    )
    if screen:
        _talk(conversation, screen)
        return
    from headway.cli.files import lines_of, written

    with written(None) as output:
        for line in lines_of(None):
            if not conversation.answer(line or ""):
                break
            output.flush()


class Screen:
    """A terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console: Console = Console(highlight=False)

    def show(self, growing: "Iterator[str]") -> "Translation":
        """Let an output grow, then colour it."""
        from rich.live import Live
        from rich.text import Text

        last = ""
        with Live(Text(""), console=self.console, refresh_per_second=12, transient=True) as live:
            for last in growing:
                live.update(Text(printable(last)))
        translation: Translation = last  # type: ignore[assignment]  # the last of a stream is one
        self.console.print(coloured(translation))
        return translation

    def say(self, line: str) -> None:
        """Show a line."""
        from rich.text import Text

        self.console.print(Text(printable(line)), soft_wrap=True)

    def legend(self) -> None:
        """Say what the colours mean."""
        from rich.text import Text

        parts = [(f"{word} ({least:.0%} and more)" if least else word, colour) for least, colour, word in LEVELS]
        shown = Text("words the model is ")
        for place, part in enumerate(parts):
            shown.append(", " if place else "").append(*part)
        self.console.print(shown.append("; /help for more, Ctrl-D to leave"))


def printable(text: str) -> str:
    """The text without what moves a cursor: a model may write anything."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def coloured(translation: "Translation") -> "Text":
    """The output, every word in the colour of its least probable piece."""
    from rich.text import Text

    words: list[tuple[str, float]] = []
    for piece, probability in translation.confidence:
        if words and not piece[0].isspace():
            before, least = words[-1]
            words[-1] = before + piece, min(least, probability)
        else:
            words.append((piece, probability))
    text = Text()
    for word, probability in words:
        text.append(printable(word), next(colour for least, colour, _ in LEVELS if probability >= least))
    return text


def _plain(growing: "Iterator[str]") -> "Translation":
    *_, last = growing
    print(last)
    return last  # type: ignore[return-value]  # the last of a stream is a translation


def _told(line: str) -> None:
    print(f"headway: {line}", file=sys.stderr)


def _talk(conversation: "Conversation", screen: Screen) -> None:
    """Ask and answer until the user leaves; a mistake is told and forgotten."""
    from headway.cli import complain
    from headway.errors import HeadwayError

    _complete(conversation)
    screen.legend()
    going = True
    while going:
        try:
            line = input(PROMPT)
            going = not line.strip() or conversation.answer(line)
        except EOFError:
            going = False
            screen.say("")
        except KeyboardInterrupt:  # of the line, or of the search
            screen.say("")
        except HeadwayError as error:
            complain(str(error), error.exit_code)


def _complete(conversation: "Conversation") -> None:
    """Let Tab complete, and the arrows go back to earlier lines, where Python can read lines so."""
    try:
        import readline
    except ImportError:
        return
    found: list[str] = []

    def completer(text: str, state: int) -> str | None:
        if state == 0:
            line = readline.get_line_buffer()[: readline.get_endidx()]
            found[:] = [each for each in conversation.completions(line) if each.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(completer)
    readline.set_completer_delims(" \t")
    readline.parse_and_bind("tab: complete")
