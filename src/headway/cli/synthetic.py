"""What `headway distill` and `headway backtranslate` have in common: a run folder with text that a model has made."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.recipes import overrides, read_recipe
from headway.errors import FolderError

if TYPE_CHECKING:
    import torch

    from headway.cli.terminal import Terminal
    from headway.recipe import Recipe
    from headway.synthesis import Translations
    from headway.translator import Translator

PAIRS = "pairs"
STAND_IN = 2000
"""Lines that a recipe is tried on."""


def sides_of(folder: Path) -> dict[str, str]:
    """The two files of a folder of pairs, as a recipe names them."""
    return {side: str((folder / side).resolve()) for side in ("source", "target")}


class Run:
    """A run folder that is filled with synthetic pairs first and trained in afterwards."""

    def __init__(
        self,
        out: Path,
        device: "torch.device",
        *,
        resume: bool = False,
        time: str | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        from headway.config import override
        from headway.run_folder import check_run_folder

        self.out = out
        self.device = device
        self.overrides = overrides(list(settings), training__time=time)
        self.given = override({}, self.overrides)
        check_run_folder(out)
        self.begun = (out / "config.toml").exists()
        if self.begun and not resume:
            raise FolderError(f"{out}: already holds a run; go on with --resume, or choose another --out")
        if resume and not out.is_dir():
            raise FolderError(f"{out}: holds nothing to resume; leave out --resume to begin")

    def load(self, model: Path, beam: int | None) -> "Translator":
        """The model that makes the text, with its own search or the beam that was asked for."""
        from dataclasses import replace

        from headway.config import validated
        from headway.models.model import translating
        from headway.search import DecodingConfig
        from headway.translator import load

        translator = load(model, device=self.device)
        translating(translator.model, "translate")
        options = translator.decoding.model_dump() | {"nbest": 1} | ({} if beam is None else {"beam": beam})
        return replace(translator, decoding=validated(DecodingConfig, options, "options"))

    def recipe(self, chosen: Mapping[str, Any], folder: Path) -> "Recipe":
        """The recipe of the model to be trained on the pairs in a folder: `chosen`, and what the user set on top."""
        from headway.config import override, validated
        from headway.recipe import Recipe

        tree = {"data": sides_of(folder / PAIRS), **chosen}
        return validated(Recipe, override(tree, self.overrides), "options")

    def rehearse(self, work: "Translations", recipe_in: Callable[[Path], "Recipe"], screen: "Terminal") -> None:
        """Refuse, before the first translation, what training would refuse after the last one.

        The lines, each with its words turned round for a translation, are prepared in a folder that is not kept; given
        that folder, `recipe_in` names the pairs in it.
        """
        from headway.screen import Silent
        from headway.synthesis import write_pairs
        from headway.trial import sample

        lines = islice(work.lines(), 0, None, -(-work.total // STAND_IN))
        pairs = [(" ".join(reversed(line.split())), line) for line in lines if line.strip()]
        with tempfile.TemporaryDirectory(prefix="headway-") as name:
            folder = Path(name)
            write_pairs(folder / PAIRS, lambda _: pairs, {})
            recipe = recipe_in(folder)
            screen.working("trying the recipe", 0, None)
            sample(recipe, folder / "sample", most=STAND_IN, device=self.device, screen=Silent())

    def make(
        self,
        work: "Translations",
        pairs: Callable[[Counter[str]], Iterable[tuple[str, str]]],
        facts: Mapping[str, Any],
        screen: "Terminal",
    ) -> Path:
        """Translate, write the pairs, say how many there are, and return their folder."""
        from headway.run_folder import held
        from headway.synthesis import write_pairs

        folder = self.out / PAIRS
        with held(self.out):
            work.make(screen.working)
            counts = write_pairs(folder, pairs, {**work.origin, **facts})
        left = "".join(f", {count} {why}" for why, count in counts.items() if count and why != "pairs")
        screen.say(f"{counts.get('pairs', 0)} pairs in {folder}{', left out:' + left[1:] if left else ''}")
        return folder

    def train(self, recipe: "Recipe", screen: "Terminal", *, resume: bool = False) -> None:
        """Train in the run folder, as `headway train` does."""
        from headway.assemble import train

        train(recipe, self.out, device=self.device, screen=screen, resume=resume)

    def go_on(self) -> None:
        """Resume the training that has begun in the run folder."""
        from headway.cli.terminal import Terminal

        recipe = read_recipe(None, self.overrides, self.out)
        with Terminal(recipe.training.log_every) as screen:
            self.train(recipe, screen, resume=True)
