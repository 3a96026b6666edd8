"""A conversation with a model: sentences in, translations out, and commands that begin with a slash."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.options import widened
from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.sentence import Sentence
    from headway.translator import Translation, Translator

HELP = {
    "/best": "/best [N]         the best outputs for the last sentence, with their scores",
    "/begin": "/begin TEXT       an output for the last sentence that begins so; Tab offers what comes next",
    "/set": "/set NAME=VALUE   change a setting of decoding, as in beam=8; without one, show all",
    "/attention": "/attention FILE   what the model looked at: a page (.html) or a picture (.png, .svg)",
    "/help": "/help             this list",
    "/quit": "/quit             leave, as Ctrl-D does",
}
BEST = 5
"""Outputs that /best shows where no number is given."""

Show = Callable[["Iterator[str]"], "Translation"]
"""Shows an output as it grows, and returns the last of it."""
Say = Callable[[str], None]


class Conversation:
    """Answers what a user types; it remembers the last translation and the settings.

    Notes about an answer go to `note`, or where answers go. Lines that nobody `typed` with care are text unless they
    are commands.
    """

    def __init__(
        self,
        translator: "Translator",
        common: "Sentence",
        settings: dict[str, Any],
        *,
        show: Show,
        say: Say,
        note: Say | None = None,
        typed: bool = True,
    ) -> None:
        self.translator, self.common, self.settings = translator, common, settings
        self.show, self.say, self.note, self.typed = show, say, note or say, typed
        self.last: Translation | None = None
        self._decoding()  # refuses what cannot be

    def answer(self, line: str) -> bool:
        """Answer one line; False when the user wants to leave."""
        word, _, rest = line.strip().partition(" ")
        if word == "/quit":
            return False
        if word in HELP or (self.typed and word.startswith("/") and word != "/"):
            self._command(word, rest.strip())
        else:
            self._translate(line.strip(), self.common.prefix)
        return True

    def _command(self, word: str, rest: str) -> None:
        if word == "/help":
            for told in HELP.values():
                self.say(told)
        elif word == "/set":
            self._set(rest)
        elif word == "/best":
            self._best(rest)
        elif word == "/begin":
            self._translate(self._spoken().source, rest)
        elif word == "/attention":
            self._draw(Path(rest or "attention.html"))
        else:
            raise ConfigError(f"{word}: no such command; /help lists them")

    def _translate(self, text: str, prefix: str) -> None:
        from headway.sentence import Sentence

        common = Sentence("", self.common.tags, prefix, self.common.required, self.common.banned)
        asked = Sentence(text).asked(common)
        found = self.show(self.translator.stream(asked, **self._options()))
        self.last = found if text else self.last
        if found.cut or found.passages:
            pieces = "only its beginning" if found.cut else f"it in {len(found.passages)} passages"
            self.note(f"longer than {self.translator.longest} tokens: read {pieces}")

    def _draw(self, path: Path) -> None:
        try:
            self._spoken().attention.save(path)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another") from None
        self.note(f"written: {path}")

    def _best(self, rest: str) -> None:
        try:
            count = int(rest or BEST)
        except ValueError:
            raise ConfigError(f"/best {rest}: not a whole number; give one or none") from None
        from headway.sentence import Sentence

        last = self._spoken()
        asked = Sentence(last.source).asked(self.common)
        beam = self.translator.decoding.beam
        found = self.translator(asked, **widened({**self.settings, "nbest": count}, beam))
        for text, each in zip((str(found), *found.alternatives), found.hypotheses, strict=True):
            self.say(f"{each.score:8.4f}  {text}")

    def _set(self, rest: str) -> None:
        from headway.config import override

        if rest:
            before, self.settings = self.settings, override(self.settings, [rest.removeprefix("decoding.")])
            try:
                self._decoding()
            except ConfigError:
                self.settings = before
                raise
            return
        for name, value in self._decoding().items():
            self.say(f"{name} = {value}")

    def _options(self) -> dict[str, Any]:
        return widened(self.settings, self.translator.decoding.beam)

    def _decoding(self) -> dict[str, Any]:
        return self.translator.settings(self._options()).model_dump()

    def _spoken(self) -> "Translation":
        if self.last is None:
            raise ConfigError("there is no translation yet; type a sentence first")
        return self.last

    def completions(self, line: str) -> list[str]:
        """What the last word of a line may become."""
        from headway.cli.suggestions import next_words

        word, blank, rest = line.partition(" ")
        if not blank:
            return [name for name in HELP if name.startswith(word)] if word.startswith("/") else []
        if word == "/set":
            return [f"{name}=" for name in self._decoding() if name.startswith(rest)]
        if word == "/begin" and self.last is not None:
            return next_words(self.translator, self.last.source, rest, tags=tuple(self.common.tags))
        return []
