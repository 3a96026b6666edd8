"""Options that several commands share."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import CoercionError, Parameter, convert

from headway.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from headway.rescoring import Rescorer
    from headway.sentence import Sentence
    from headway.translator import Translator

Strings = Annotated[list[str] | None, Parameter(negative="")]
"""An option that may be repeated."""
Flag = Annotated[bool, Parameter(negative="")]
HEAVIEST = 1000
"""The greatest weight of a model in a choice between outputs."""
WIDEST = 64
"""The widest beam that the settings of decoding allow."""


def read(kind: Any, tokens: Sequence[Any]) -> Any:
    """Read the value of any option: whole numbers have no fraction, others are finite, and paths name something."""
    try:
        return convert(kind, tokens, converter=_read)
    except CoercionError as error:
        known = [READABLE[each] for each in (error.target_type, *get_args(error.target_type)) if each in READABLE]
        if known and error.token is not None:
            error.msg = f"{error.token.value!r} is not {known[0]}"
        raise


def _read(kind: Any, word: str) -> Any:
    if kind not in (int, float, str, Path) or (kind is Path and (not word or "\0" in word)):
        raise ValueError
    value = kind(word)
    if kind is float and not isfinite(value):
        raise ValueError
    return value


def _time(kind: Any, tokens: Sequence[Any]) -> str:
    """Check a duration before anything else is done; read here, `-5s` is one that is refused, not an option."""
    from headway.training.config import seconds

    del kind
    seconds(tokens[0].value)
    return str(tokens[0].value)


Time = Annotated[str | None, Parameter(converter=_time, allow_leading_hyphen=True)]
"""A wall-clock budget."""
READABLE = {
    int: "a whole number",
    float: "a finite number",
    Path: "the name of a file or folder",
}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How outputs are searched for."""

    beam: int | None = None
    """Hypotheses kept for every sentence; 1 is greedy."""
    nbest: int | None = None
    """Outputs for every line."""
    length_penalty: float | None = None
    """How much longer outputs are favoured."""
    sample: Flag = False
    """Draw outputs at random instead of searching for the likeliest."""
    seed: int | None = None
    """Chooses the samples."""
    mbr: int | None = None
    """Outputs compared with each other to return the one most like the others."""
    long: Literal["split", "truncate", "refuse"] | None = None
    """A source longer than the model knows is translated piece by piece, cut short, or refused."""
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None
    """Any other setting of decoding, as in temperature=0.8; may be repeated."""

    def settings(self) -> dict[str, Any]:
        """What was given, as settings of decoding; those of --set win."""
        from headway.config import override

        names = ("beam", "nbest", "length_penalty", "seed", "mbr", "long")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        given |= {"sample": True} if self.sample else {}
        return override(given, [each.removeprefix("decoding.") for each in self.set_ or ()])


def widened(settings: dict[str, Any], beam: int) -> dict[str, Any]:
    """The settings with a beam wide enough for the outputs that are asked for, unless they say how wide it is."""
    wanted = [settings.get(name, 0) for name in ("nbest", "mbr")]
    needed = max((each for each in wanted if isinstance(each, int)), default=0)
    if "beam" in settings or settings.get("sample") or needed <= beam:
        return settings
    if needed > WIDEST:
        raise ConfigError(f"nbest or mbr {needed}: a beam keeps at most {WIDEST}; lower it, or give --sample")
    return settings | {"beam": needed}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AskedOptions:
    """What is asked of every output."""

    tag: Strings = None
    """A tag put before every source, as the model was trained with; may be repeated."""
    prefix: str = ""
    """How every output must begin."""
    require: Strings = None
    """A phrase every output must hold; may be repeated."""
    ban: Strings = None
    """A word or phrase no output may hold; may be repeated."""

    def sentence(self) -> "Sentence":
        """The same as a sentence without a text."""
        from headway.sentence import Sentence

        return Sentence("", self.tag or (), self.prefix, self.require or (), self.ban or ())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RescoringOptions:
    """Which other models have a say in the choice between outputs."""

    rescore: Annotated[list[Path] | None, Parameter(negative="")] = None
    """A language model, or another translation model, that judges the outputs of the beam; may be repeated."""
    rescore_weight: Annotated[list[float] | None, Parameter(negative="")] = None
    """What its log-probability counts for; repeated, one for each --rescore. 1 by default."""
    rescore_own: float = 1.0
    """What the score of the model itself counts for; 0 leaves the choice to the others."""

    def check(self, search: SearchOptions) -> None:
        """Refuse what cannot be."""
        given, weights = len(self.rescore or ()), len(self.rescore_weight or ())
        if not given and (weights or self.rescore_own != 1.0):
            raise ConfigError("--rescore: missing; name the model whose weight is given")
        if weights not in (0, 1, given):
            raise ConfigError(f"--rescore-weight: {weights} for {given} models; give one for each, or one for all")
        if not all(abs(weight) <= HEAVIEST for weight in (*(self.rescore_weight or ()), self.rescore_own)):
            raise ConfigError(f"--rescore-weight, --rescore-own: give at least -{HEAVIEST}, and at most {HEAVIEST}")
        if given and search.settings().get("mbr"):
            raise ConfigError("--rescore: --mbr chooses otherwise; leave one of them out")

    def load(self, device: "torch.device") -> "list[Rescorer]":
        """The other models, each with its weight."""
        from headway.rescoring import Rescorer
        from headway.translator import load

        folders, weights = self.rescore or [], self.rescore_weight or [1.0]
        weights = weights if len(weights) == len(folders) else weights * len(folders)
        pairs = zip(folders, weights, strict=True)
        return [Rescorer(load(folder, device=device), weight) for folder, weight in pairs]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What computes."""

    ensemble: Annotated[list[Path] | None, Parameter(negative="")] = None
    """A further model with the same vocabulary that decodes together with the first; may be repeated."""
    shortlist: Path | None = None
    """A file of 'headway shortlist': only tokens that a source may call for are considered."""
    engine: Literal["headway", "ctranslate2"] = "headway"
    """What finds the outputs."""
    int8: Flag = False
    """Compute with whole numbers of 8 bits, where the engine can."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The numbers of our own engine on a GPU; halves are faster, and a few outputs may differ."""
    device: str | None = None
    """cpu, cuda or cuda:N; the best there is by default."""

    def load(self, model: Path, tell: Any = lambda _: None) -> "Translator":
        """The model, ready to be used in this way."""
        from dataclasses import replace

        from headway.allocator import keep_freed_memory
        from headway.assemble import choose_device
        from headway.translator import load

        keep_freed_memory()

        device = choose_device("cpu" if self.engine == "ctranslate2" and self.device is None else self.device)
        translator = load(
            model,
            device=device,
            ensemble=self.ensemble or (),
            shortlist=self.shortlist,
            precision=self.precision,
        )
        if self.engine == "headway" and not self.int8:
            return translator
        from headway.interop.ctranslate2 import backend_for

        backend = backend_for(translator, self.engine, int8=self.int8, tell=tell)
        return translator if backend is None else replace(translator, backend=backend)
