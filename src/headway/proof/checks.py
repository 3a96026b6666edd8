"""Every check by name: the only registry, a plain dict."""

from collections.abc import Callable

from headway.errors import FolderError
from headway.models.model import NonAutoregressive
from headway.proof import answers, states, stored
from headway.proof.finding import Finding
from headway.proof.subject import Subject

Check = Callable[[Subject], Finding]

CHECKS: dict[str, Check] = {
    "folder": stored.folder,
    "weights": stored.weights,
    "tokenizer": stored.tokenizer,
    "look-ahead": states.look_ahead,
    "layout": states.layout,
    "cache": states.cache,
    "ancestry": states.ancestry,
    "batch": answers.batch,
    "padding": answers.padding,
    "search": answers.search,
    "greedy": answers.greedy,
    "rescoring": answers.rescoring,
    "n-best": answers.nbest,
}
"""In the order they are run: what a folder holds first, since nothing else can be looked at if that is damaged."""


STEPWISE = frozenset({"look-ahead", "layout", "cache", "ancestry", "search", "greedy", "rescoring", "n-best"})
"""Checks of what only a model has that writes one token after the other."""


def look(name: str, subject: Subject) -> Finding:
    """Run one check; a model that breaks down in it fails it. A folder that does not load is a `FolderError`."""
    try:
        if name in STEPWISE and isinstance(subject.model, NonAutoregressive):
            return Finding(str(CHECKS[name].__doc__).splitlines()[0], "the model writes all tokens at once", None)
        return CHECKS[name](subject)
    except FolderError:
        raise
    except Exception as error:  # noqa: BLE001  # a broken model may raise anything
        reason = " ".join(str(error).split())[:200]
        return Finding(str(CHECKS[name].__doc__).splitlines()[0], f"{type(error).__name__}: {reason}", False)
