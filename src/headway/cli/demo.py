"""`headway demo`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headway.disk import first_other, owned, present, remove_own
from headway.errors import ConfigError, FolderError
from headway.folders import members, refuse_changes, seal_files, verify_folder, write_folder
from headway.run_folder import clear_run

if TYPE_CHECKING:
    from headway.data.demos import Demo
    from headway.recipe import Recipe

CORPUS, PAGE = "corpus", "attention.html"


def command(
    name: Literal["phrases", "dates"] = "phrases",
    /,
    *,
    out: Path | None = None,
    seconds: int = 120,
    again: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train on a built-in corpus in a few minutes, score it on unseen sentences, translate one and draw its attention.

    Parameters
    ----------
    name
        phrases: French to English; dates: dates in many languages to ISO.
    out
        The run folder; runs/demo-NAME by default.
    seconds
        The time to train for.
    again
        Remove an earlier demo in the run folder first.
    """
    if not 1 <= seconds <= 86_400:
        raise ConfigError(f"--seconds {seconds}: give 1 or more, and at most 86400")
    folder = out or Path("runs") / f"demo-{name}"
    recipe = _recipe(folder, seconds)
    earlier = again and (owned(folder) or members(folder / CORPUS))
    if not earlier and present(folder) and first_other(folder, ()) is not None:  # an empty one does
        raise FolderError(f"{folder}: already there; --again replaces an earlier demo, --out chooses another folder")
    from headway.assemble import choose_device, train
    from headway.cli.terminal import Terminal, duration
    from headway.data.demos import DEMOS
    from headway.evaluation import score
    from headway.translator import load

    began = time.monotonic()
    demo = DEMOS[name]()
    if earlier:
        _clear(folder)
    _write(demo, folder / CORPUS)
    with Terminal() as screen:
        train(recipe, folder, device=choose_device("cpu"), screen=screen)
        screen.say(f"trained in {duration(time.monotonic() - began)}")
    translator = load(folder)
    references = [pair.target for pair in demo.test]
    outputs = [str(text) for text in translator([pair.source for pair in demo.test])]
    reached = score(outputs, references)
    baseline = score([demo.baseline(pair.source) for pair in demo.test], references)
    shown = translator(demo.example)
    page = folder / PAGE
    shown.attention.save(page)
    seal_files(folder, [PAGE], {"kind": "demo"})
    print(f"{len(demo.test)} sentences never seen in training:")
    print(f"  model     BLEU {reached['BLEU'].value:6.2f}   exactly right {reached.exact:6.2f} %")
    told = f"BLEU {baseline['BLEU'].value:6.2f}   exactly right {baseline.exact:6.2f} %   ({demo.baseline_name})"
    print(f"  baseline  {told}")
    print(f"{demo.example}  ->  {shown}")
    print(f"attention page: {page}")
    print(f'more: headway translate {folder}, headway attention {folder} "{demo.example}"')


def _clear(folder: Path) -> None:
    """Remove an earlier demo, after checking that Headway wrote all of it."""
    refuse_changes(folder / CORPUS)
    page = members(folder)
    if page:
        verify_folder(folder)
    elif present(folder / PAGE):
        raise FolderError(f"{folder / PAGE}: was not written by Headway; move it elsewhere, or choose another --out")
    clear_run(folder)
    for name in (CORPUS, *page):
        remove_own(folder / name)


def _write(demo: "Demo", folder: Path) -> None:
    def fill(aside: Path) -> None:
        for split in ("train", "valid", "test"):
            pairs = getattr(demo, split)
            for side in ("source", "target"):
                text = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
                (aside / f"{split}.{side}").write_text(text, encoding="utf-8")

    write_folder(folder, fill, {"kind": "corpus"})


def _recipe(folder: Path, seconds: int) -> "Recipe":
    from headway.config import validated
    from headway.recipe import Recipe

    corpus = {
        f"{prefix}{side}": f"{split}.{side}"
        for prefix, split in (("", "train"), ("valid_", "valid"))
        for side in ("source", "target")
    }
    tree = {
        "data": {"folder": str(folder / CORPUS), **corpus},
        "training": {"time": f"{seconds}s", "samples": 1},
    }
    return validated(Recipe, tree, "demo")
