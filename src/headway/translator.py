"""A trained model with its tokenizers: text in, text out, and what it looked at."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, ValidationError
from torch import Tensor

from headway.config import Settings, validated
from headway.data.tokenizer import Tokenizer
from headway.errors import FolderError
from headway.folders import plain_file, verify_folder, write_folder
from headway.inspection import Attention
from headway.models.catalog import CATALOG, Model, ModelConfig
from headway.search import DecodingConfig, Hypothesis, decode
from headway.sequences import Sequences
from headway.training.checkpoint import load_parameters, parameters, read_tensors, write_tensors

DECODED_TOGETHER = {"cpu": 4096, "cuda": 1 << 16}
"""Source cells decoded in one batch, by kind of device."""


class Card(Settings):
    """What a model folder says of itself in `config.json`."""

    headway: str
    """The version that wrote it."""
    model: ModelConfig
    """The shape of the model."""
    source_vocabulary: int
    """Tokens of the source tokenizer."""
    target_vocabulary: int
    """Tokens of the target tokenizer."""
    joint: bool
    """Both sides share one tokenizer."""
    tokenizer: str
    """The name of the tokenizer file."""
    decoding: DecodingConfig = DecodingConfig()
    """How to decode unless told otherwise."""
    scores: dict[str, float] = Field(default_factory=dict)
    """What the model reached on its validation set."""


class Translation(str):
    """The text of one output; it also knows its score, its alternatives and what the model looked at."""

    source: str
    score: float
    alternatives: tuple[str, ...]
    """The texts of the other hypotheses, best first, where nbest asked for them."""
    hypotheses: tuple[Hypothesis, ...]
    """What the search found, best first; nothing for a blank source."""
    _translator: "Translator"

    cut: bool
    """The source was longer than the model knows and only its beginning was read."""
    tags: tuple[str, ...]
    """What was put before the source."""

    def __new__(
        cls,
        translator: "Translator",
        source: str,
        found: Sequence[Hypothesis],
        *,
        cut: bool = False,
        tags: Sequence[str] = (),
    ) -> "Translation":
        """The best of the hypotheses found for a source."""
        texts = [translator.detokenize(each.tokens) for each in found]
        text = super().__new__(cls, texts[0] if texts else "")
        text.source, text._translator = source, translator
        text.hypotheses, text.alternatives = tuple(found), tuple(texts[1:])
        text.score, text.cut, text.tags = found[0].score if found else 0.0, cut, tuple(tags)
        return text

    @property
    def attention(self) -> Attention:
        """The weights of every layer and head with which this output was read and written."""
        tokens = self.hypotheses[0].tokens if self.hypotheses else ()
        return self._translator.attention(self.source, tokens, tags=self.tags)


@dataclass(frozen=True)
class Translator:
    """A model that is ready to be used; it holds no state, so that any number of threads may call it."""

    model: Model
    source: Tokenizer
    target: Tokenizer
    decoding: DecodingConfig

    @overload
    def __call__(self, text: str, *, tags: Sequence[str] = (), **options: Any) -> Translation: ...
    @overload
    def __call__(self, text: Sequence[str], *, tags: Sequence[str] = (), **options: Any) -> list[Translation]: ...
    def __call__(
        self, text: str | Sequence[str], *, tags: Sequence[str] = (), **options: Any
    ) -> Translation | list[Translation]:
        """Translate a text, or each of a list; `options` are those of `DecodingConfig`, such as `beam=1`.

        `tags` are put before every source, as in training; one that the model does not know is a `ConfigError`.
        """
        if isinstance(text, str):
            return self([text], tags=tags, **options)[0]
        decoding = self.decoding
        if options:
            decoding = validated(DecodingConfig, {**decoding.model_dump(), **options}, "decoding")
        translator = replace(self, decoding=decoding)
        sentences = translator.tokenize(text, tags=tags)
        found = zip(text, sentences, translator.search(sentences), strict=True)
        return [
            Translation(translator, source, each, cut=len(ids) > self.longest, tags=tags) for source, ids, each in found
        ]

    @property
    def longest(self) -> int:
        """The most tokens of a source, without its end symbol."""
        return self.model.config.longest - 1

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.model.output.weight.device

    def tokenize(self, texts: Sequence[str], *, tags: Sequence[str] = ()) -> list[list[int]]:
        """The token ids of every text after the tags; blank texts have none."""
        first, encoded = self.source.tagged(tags), self.source.encode(texts)
        return [first + ids if text.strip() else [] for ids, text in zip(encoded, texts, strict=True)]

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of target tokens, always one line."""
        return " ".join(self.target.decode(tokens).splitlines()).strip()

    def search(
        self, sentences: Sequence[Sequence[int]], *, check: Callable[[], None] = lambda: None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for every tokenised source, in order; an empty source gets none.

        A source is cut at the longest the model knows. `check` is called before every batch and may raise to stop.
        """
        sentences = [ids[: self.longest] for ids in sentences]
        answers: list[list[Hypothesis]] = [[] for _ in sentences]
        for group in _groups(sentences, DECODED_TOGETHER.get(self.device.type, 4096)):
            check()
            found = self._search_group([sentences[index] for index in group])
            for index, each in zip(group, found, strict=True):
                answers[index] = each
        return answers

    @torch.inference_mode()
    def _search_group(self, sentences: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        longest = min(self.decoding.longest, self.model.config.longest - 1)
        state = self.model.start(self.model.encode(self._source([list(ids) for ids in sentences])))
        return decode(
            self.model,
            state,
            self.decoding.model_copy(update={"longest": longest}),
            start=self.target.start,
            end=self.target.end,
            source_lengths=[len(ids) for ids in sentences],
            forbidden=sorted({self.target.padding, self.target.start, *self.target.tags.values()} - {self.target.end}),
        )

    def _source(self, sentences: list[list[int]]) -> Sequences:
        padded = Sequences.pad([[*ids, self.source.end] for ids in sentences], self.source.padding)
        return padded.to(self.device)

    @torch.inference_mode()
    def attention(self, source: str, tokens: Sequence[int], *, tags: Sequence[str] = ()) -> Attention:
        """Read `source` and write `tokens` once more, keeping the weights of every layer and head."""
        shown = [f"⟨{tag}⟩" for tag in tags]
        pieces = [*zip(self.source.tagged(tags), shown, strict=True), *self.source.pieces(source)][: self.longest]
        encoded = self.model.encode(self._source([[token for token, _ in pieces]]), need_weights=True)
        given = Sequences.pad([[self.target.start, *tokens]], self.target.padding).to(self.device)
        decoded = self.model.decode(given, encoded, need_weights=True)
        written = self._written(tokens)
        return Attention(
            source=(*(text for _, text in pieces), END),
            target_in=(START, *written),
            target_out=(*written, END),
            encoder=_stacked(encoded.weights),
            decoder=_stacked(decoded.self_weights),
            cross=_stacked(decoded.cross_weights),
            translation=self.detokenize(tokens),
            sentence=source,
        )

    def _written(self, tokens: Sequence[int]) -> list[str]:
        """Target tokens as the reader sees them: the text each adds to those before it."""
        texts = [self.target.decode(tokens[:count]) for count in range(len(tokens) + 1)]
        return [after[len(commonprefix((before, after))) :] or "·" for before, after in pairwise(texts)]  # noqa: RUF071  # characters

    def embed(self, texts: Sequence[str]) -> Iterator[list[tuple[str, Float[np.ndarray, " dim"]]]]:
        """For every text, its tokens as the user wrote them, each with its contextual vector from the encoder."""
        for text in texts:
            pieces = self.source.pieces(text)[: self.longest]
            with torch.inference_mode():
                encoded = self.model.encode(self._source([[token for token, _ in pieces]]))
                states = encoded.states[0].float().cpu().numpy()
            yield [(piece, states[place]) for place, (_, piece) in enumerate(pieces)]

    def save(
        self, folder: Path, *, scores: Mapping[str, float] | None = None, readme: str = "", step: int | None = None
    ) -> None:
        """Write a model folder: weights, configuration, tokenizers, model card and manifest."""
        import headway

        joint = self.source is self.target
        card = Card(
            headway=headway.__version__,
            model=self.model.config,
            source_vocabulary=self.source.size,
            target_vocabulary=self.target.size,
            joint=joint,
            tokenizer=self.source.file_name,
            decoding=self.decoding,
            scores=dict(scores or {}),
        )

        def fill(aside: Path) -> None:
            (aside / "config.json").write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
            write_tensors(aside / "model.safetensors", parameters(self.model))
            for tokenizer, name in zip((self.source, self.target), _tokenizer_names(card), strict=True):
                tokenizer.save(aside / name)
            (aside / "README.md").write_text(readme or "# A Headway model\n", encoding="utf-8")

        write_folder(folder, fill, {"kind": "model", "step": step})


START, END = "⟨s⟩", "⟨/s⟩"
"""How control symbols are shown: unlike anything a text holds."""


def load(folder: str | Path, *, device: str | torch.device = "cpu") -> Translator:
    """Load a model folder, or the `best` model of a run folder; nothing in it is ever executed."""
    path = model_folder(Path(folder))
    sealed = verify_folder(path)["files"]
    card = _card(path)
    names = _tokenizer_names(card)
    unsealed = {"config.json", "model.safetensors", *names} - sealed.keys()
    if unsealed:
        raise FolderError(f"{path}: its manifest does not name {', '.join(sorted(unsealed))}; use another copy")
    source = Tokenizer.load(path / names[0])
    target = source if card.joint else Tokenizer.load(path / names[1])
    for tokenizer, size, name in (
        (source, card.source_vocabulary, names[0]),
        (target, card.target_vocabulary, names[1]),
    ):
        if tokenizer.size != size:
            raise FolderError(
                f"{path / name}: {tokenizer.size} tokens, the model has {size}; they do not belong together"
            )
    return Translator(_model(path, card, device), source, target, card.decoding)


def model_folder(folder: Path) -> Path:
    """The model folder itself, where a run folder may be given."""
    return folder / "best" if (folder / "best").is_dir() else folder


def _card(path: Path) -> Card:
    config = path / "config.json"
    if not plain_file(config) or config.stat().st_size > 1 << 20:
        raise FolderError(f"{config}: missing or too large; this is not a Headway model folder")
    try:
        tree = json.loads(config.read_bytes())
        return Card.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))[:80] or "config"
        raise FolderError(f"{config}: {name}: {problem['msg']}; use another copy of the folder") from None
    except (ValueError, RecursionError):
        raise FolderError(f"{config}: not valid JSON; use another copy of the folder") from None


def _tokenizer_names(card: Card) -> tuple[str, str]:
    """The two files of the tokenizers; never a path that the folder chose."""
    if card.tokenizer not in ("tokenizer.json", "tokenizer.model"):
        raise FolderError(f"config.json: {card.tokenizer!r} is not a tokenizer file; it is tokenizer.json or .model")
    if card.joint:
        return card.tokenizer, card.tokenizer
    return f"source.{card.tokenizer}", f"target.{card.tokenizer}"


def _model(path: Path, card: Card, device: str | torch.device) -> Model:
    _, architecture = CATALOG[card.model.architecture]
    weights = path / "model.safetensors"
    sizes = card.source_vocabulary, card.target_vocabulary
    held = weights.stat().st_size
    if held < 4 * card.model.fewest_parameters(card.target_vocabulary):
        raise FolderError(f"{weights}: {held} bytes cannot be the weights that config.json describes; use another copy")
    try:
        model = architecture(card.model, *sizes)
    except ValueError as error:
        raise FolderError(f"{path / 'config.json'}: {error}; use another copy of the folder") from None
    needed = 4 * sum(weight.numel() for weight in model.parameters())
    if not needed <= held <= needed + (16 << 20):  # names and shapes take far less than 16 MiB
        raise FolderError(f"{weights}: {held} bytes, the model of config.json has {needed}; use another copy")
    load_parameters(model, read_tensors(weights), str(weights))
    return model.eval().to(device)


def _groups(sentences: Sequence[Sequence[int]], cells: int) -> Iterator[list[int]]:
    """Indices of sentences that are not empty, of like length together, in batches of bounded size."""
    order = sorted((index for index, ids in enumerate(sentences) if ids), key=lambda index: len(sentences[index]))
    group: list[int] = []
    for index in order:
        if group and (len(group) + 1) * (len(sentences[index]) + 1) > cells:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def _stacked(weights: Iterable[Tensor]) -> Float[np.ndarray, "layers heads query key"]:
    return torch.stack([each[0] for each in weights]).float().cpu().numpy()
