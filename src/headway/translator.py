"""A trained model with its tokenizers: text in, text out, and what it looked at."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headway.config import validated
from headway.data.lexicon import Lexicon
from headway.data.tokenizer import Tokenizer
from headway.engine import Backend, Engine
from headway.engine.readiness import Precision, ready
from headway.errors import ConfigError
from headway.inspection import Attention
from headway.models.model import Model, autoregressive, translating
from headway.nn.stacks import Weights
from headway.objectives import GuidedHead
from headway.passages import joined
from headway.reading import Reader, Reading, numbered
from headway.runtime.threads import limit_torch_threads
from headway.saved import Saved, model_folder, read_saved, write_saved
from headway.search import DecodingConfig, Hypothesis, Request, Symbols
from headway.sentence import Sentence, phrase_tokens, prefix_tokens, seed_of, spellings, surfaces
from headway.sequences import Sequences
from headway.translation import Translation

__all__ = ["Sentence", "Translation", "Translator", "load", "model_folder"]

START, END = "⟨s⟩", "⟨/s⟩"
"""How control symbols are shown: unlike anything a text holds."""

Text = str | Sentence


@dataclass(frozen=True)
class Translator:
    """A model that is ready to be used; it holds no state, so that any number of threads may call it."""

    model: Model
    source: Tokenizer
    target: Tokenizer
    decoding: DecodingConfig
    backend: Backend | None = None
    """What finds the outputs; None for our own engine with this model alone."""
    guided: GuidedHead | None = None
    """The head of cross attention that was taught which words translate which, where one was."""

    @overload
    def __call__(self, text: Text, **options: Any) -> Translation: ...
    @overload
    def __call__(self, text: Sequence[Text], **options: Any) -> list[Translation]: ...
    def __call__(
        self,
        text: Text | Sequence[Text],
        *,
        tags: Sequence[str] = (),
        prefix: str = "",
        required: Sequence[str] = (),
        banned: Sequence[str] = (),
        document: bool = False,
        **options: Any,
    ) -> Translation | list[Translation]:
        """Translate a text, or each of a list; `options` are those of `DecodingConfig`, such as `beam=1`.

        `tags` are put before every source, as in training; one that the model does not know is a `ConfigError`. Outputs
        begin with `prefix`, hold all phrases of `required` and none of `banned`; a `Sentence` asks for its own beside
        these. With `document` a text may hold several sentences, which are translated one by one.
        """
        common = Sentence("", tags, prefix, required, banned)
        given = [text] if isinstance(text, str | Sentence) else text
        asked = [(Sentence(each) if isinstance(each, str) else each).asked(common) for each in given]
        found = self.translate(asked, self.settings(options), document=document)
        return found[0] if isinstance(text, str | Sentence) else found

    def settings(self, options: Mapping[str, Any]) -> DecodingConfig:
        """The settings of decoding with some changed; what cannot be is a `ConfigError`."""
        if not options:
            return self.decoding
        return validated(DecodingConfig, {**self.decoding.model_dump(), **options}, "decoding")

    def translate(
        self,
        asked: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        document: bool = False,
        named: Callable[[int], str] = numbered,
    ) -> list[Translation]:
        """Translate sentences; `named` says what an error calls the one at a place."""
        readings = self._reader(decoding, named)(asked, document=document)
        requests = [
            request
            for place, reading in enumerate(readings)
            for request in self._requests(reading, decoding, named(place))
        ]
        found = iter(self.search(requests, decoding))
        return [self._translation(reading, [next(found) for _ in reading.pieces]) for reading in readings]

    def stream(
        self,
        text: Text,
        *,
        tags: Sequence[str] = (),
        prefix: str = "",
        required: Sequence[str] = (),
        banned: Sequence[str] = (),
        document: bool = False,
        **options: Any,
    ) -> Iterator[str]:
        """The output as it grows: beginnings of it, each longer than the one before, and at last the `Translation`.

        What was given once is not taken back.
        """
        common = Sentence("", tags, prefix, required, banned)
        asked = (Sentence(text) if isinstance(text, str) else text).asked(common)
        decoding = self.settings(options)
        (reading,) = self._reader(decoding, numbered)([asked], document=document)
        found: list[list[Hypothesis]] = []
        told = ""
        for request in self._requests(reading, decoding, numbered(0)):
            searching = self._growing(request, decoding)
            while not isinstance(grown := next(searching), list):
                begun = self._begun(reading, found, grown)
                if len(begun) > len(told) and begun.startswith(told):
                    told = begun
                    yield told
            found.append(grown)
        yield self._translation(reading, found)

    def _growing(self, request: Request, decoding: DecodingConfig) -> Iterator[tuple[int, ...] | list[Hypothesis]]:
        """The tokens that are certain, after every step, and at last what was found."""
        engine = self._speller if request.banned else self.engine
        if request.source and isinstance(engine, Engine) and engine.stepwise and not decoding.mbr:
            search = engine.begin(
                [request], decoding.model_copy(update={"longest": min(decoding.longest, self.longest)})
            )
            while search.live:
                with torch.inference_mode():
                    search.advance()
                if search.live:
                    yield search.stable(0)
            (found,) = search.answers()
        else:  # nothing is certain before the end
            (found,) = self.search([request], decoding)
        yield found

    def _begun(self, reading: Reading, found: Sequence[Sequence[Hypothesis]], tokens: Sequence[int]) -> str:
        """What is certain of the output when these tokens are, after what was found for the pieces before."""
        texts = [self.detokenize(each[0].tokens) if each else "" for each in found]
        last = commonprefix((self.detokenize(tokens[:-1]), self.detokenize(tokens)))  # noqa: RUF071  # characters
        last = last.rstrip("\ufffd")  # the last token may write half a character
        return joined([*reading.gaps[: len(texts) + 1], ""], [*texts, last]).rstrip() if last else ""

    @property
    def longest(self) -> int:
        """The most tokens of a source, without its end symbol."""
        return self.engine.longest

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

    @cached_property
    def engine(self) -> Backend:
        """What finds the outputs."""
        return self.backend or Engine(self.model, self.symbols)

    @cached_property
    def _speller(self) -> Backend:
        """The engine, knowing what every token spells; that takes a while to find out."""
        if not isinstance(self.engine, Engine):
            return self.engine
        return replace(self.engine, symbols=replace(self.engine.symbols, surfaces=surfaces(self.target)))

    @property
    def symbols(self) -> Symbols:
        """What a search must know of the vocabulary."""
        forbidden = {self.target.padding, self.target.start, *self.target.tags.values()} - {self.target.end}
        return Symbols(self.target.start, self.target.end, tuple(sorted(forbidden)), self.source.end)

    def request(self, tokens: Sequence[int], decoding: DecodingConfig | None = None) -> Request:
        """What a search is asked for a source of these tokens; one longer than the model knows is cut."""
        source = tuple(tokens[: self.longest])
        return Request(source, seed=seed_of((decoding or self.decoding).seed, source))

    def search(
        self,
        requests: Sequence[Request],
        decoding: DecodingConfig | None = None,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for every request, in order; an empty source gets none, unless the model reads no source.

        `check` is called before every batch and may raise to stop.
        """
        decoding = decoding or self.decoding
        engine = self._speller if any(request.banned for request in requests) else self.engine
        found = engine.search(requests, decoding, check=check)
        return [self._agreed(each, decoding) for each in found] if decoding.mbr else found

    def _agreed(self, found: list[Hypothesis], decoding: DecodingConfig) -> list[Hypothesis]:
        """Those most like the others first (minimum Bayes risk)."""
        from headway.evaluation.agreement import consensus  # sacreBLEU takes a while to import

        weights = None
        if found and not decoding.sample:  # samples are as frequent as they are likely; a beam's outputs are not
            best = max(each.log_probability for each in found)
            weights = [math.exp(each.log_probability - best) for each in found]
        order = consensus([self.detokenize(each.tokens) for each in found], weights)
        return [found[place] for place in order[: decoding.nbest]]

    def _reader(self, decoding: DecodingConfig, named: Callable[[int], str]) -> Reader:
        translating(self.model, "translate")
        return Reader(self.source, self.longest, decoding.long, named)

    def _requests(self, reading: Reading, decoding: DecodingConfig, where: str) -> list[Request]:
        """One for every piece: the first begins with the prefix, and none holds what is banned."""
        asked, requests = reading.sentence, [self.request(piece.tokens, decoding) for piece in reading.pieces]
        if not (asked.prefix or asked.required or asked.banned):
            return requests
        if asked.required and len(requests) > 1:
            raise ConfigError(f"{where}: is read in {len(requests)} pieces; give them one by one with what is required")
        try:
            prefix = prefix_tokens(self.target, asked.prefix)
            required = tuple(phrase_tokens(self.target, phrase) for phrase in asked.required)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if len(prefix) + sum(map(len, required)) >= self.longest:
            raise ConfigError(f"{where}: prefix and required phrases are longer than the model writes; shorten them")
        banned = tuple(dict.fromkeys(form for phrase in asked.banned for form in spellings(self.target, phrase)))
        requests = [replace(each, required=required, banned=banned) for each in requests]
        return [replace(each, prefix=prefix) for each in requests[:1]] + requests[1:]

    def _translation(self, reading: Reading, found: Sequence[Sequence[Hypothesis]]) -> Translation:
        asked = reading.sentence
        pieces = [
            Translation(self, piece.text, each, cut=piece.cut, tags=asked.tags)
            for piece, each in zip(reading.pieces, found, strict=True)
        ]
        return (
            pieces[0] if reading.whole else Translation.of_passages(self, asked.text, pieces, reading.gaps, asked.tags)
        )

    def _source(self, sentences: list[list[int]]) -> Sequences:
        padded = Sequences.pad([[*ids, self.source.end] for ids in sentences], self.source.padding)
        return padded.to(self.device)

    @torch.inference_mode()
    def attention(self, source: str, tokens: Sequence[int], *, tags: Sequence[str] = ()) -> Attention:
        """Read `source` and write `tokens` once more, keeping the weights of every layer and head."""
        shown = [f"⟨{tag}⟩" for tag in tags]
        pieces = [*zip(self.source.tagged(tags), shown, strict=True), *self.source.pieces(source)][: self.longest]
        model = autoregressive(self.model, "attention")
        encoded = model.encode(self._source([[token for token, _ in pieces]]), need_weights=True)
        given = Sequences.pad([[self.target.start, *tokens]], self.target.padding).to(self.device)
        decoded = model.decode(given, encoded, need_weights=True)
        written, read = self._written(tokens), len(pieces) + 1
        made = len(written) + 1
        if not (encoded.weights or decoded.self_weights or decoded.cross_weights):
            told = f"attention: this {model.config.architecture} model has none"
            raise ConfigError(f"{told}; use one that looks at its source")
        return Attention(
            source=(*(text for _, text in pieces), END),
            target_in=(START, *written),
            target_out=(*written, END),
            encoder=_stacked(encoded.weights, read, read),
            decoder=_stacked(decoded.self_weights, made, made),
            cross=_stacked(decoded.cross_weights, made, read),
            translation=self.detokenize(tokens),
            sentence=source,
            guided=self.guided,
        )

    @torch.inference_mode()
    def following(self, source: Sequence[int], tokens: Sequence[int]) -> Float[Tensor, " vocabulary"]:
        """The log-probability of every token to come after `tokens` in the output for a source."""
        given = Sequences.pad([[self.target.start, *tokens]], self.target.padding).to(self.device)
        model = autoregressive(self.model, "completion")
        states = model(self._source([list(source)]), given)
        found = self.model.output(states[0, -1:])[0].log_softmax(-1)
        found[list(self.symbols.forbidden)] = -torch.inf
        return found

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
        self,
        folder: Path,
        *,
        scores: Mapping[str, float] | None = None,
        readme: str = "",
        step: int | None = None,
        replace: bool = False,
    ) -> None:
        """Write a model folder: weights, configuration, tokenizers, model card and manifest.

        With `replace` it takes the place of an older one, if that is just what Headway wrote.
        """
        import headway

        saved = Saved(self.model, self.source, self.target, self.decoding, self.guided)
        write_saved(
            folder,
            saved,
            version=headway.__version__,
            scores=scores or {},
            readme=readme,
            step=step,
            replace=replace,
        )


def load(
    folder: str | Path,
    *,
    device: str | torch.device = "cpu",
    ensemble: Sequence[str | Path] = (),
    shortlist: str | Path | None = None,
    precision: Precision = "fp32",
) -> Translator:
    """Load a model folder, the `best` model of a run folder, or a checkpoint; nothing in it is ever executed.

    The models of `ensemble` decode together with it and must have its vocabulary. `shortlist` is a file of
    `headway shortlist`. In half precision, bf16 or fp16, a GPU decodes faster and a few outputs may differ.
    """
    limit_torch_threads()
    first = read_saved(Path(folder), device)
    model = ready(first.model, precision)
    translator = Translator(model, first.source, first.target, first.decoding, guided=first.guided)
    others = [ready(_alike(first, read_saved(Path(each), device), each), precision) for each in ensemble]
    if not others and shortlist is None:
        return translator
    lexicon = None
    if shortlist is not None:
        lexicon = Lexicon.load(Path(shortlist))
        lexicon.check(first.source, first.target, str(shortlist))
    return replace(translator, backend=Engine(first.model, translator.symbols, tuple(others), lexicon))


def _alike(first: Saved, other: Saved, where: str | Path) -> Model:
    """The other model, if it has the vocabulary of the first."""
    prints = [[each.source.fingerprint(), each.target.fingerprint()] for each in (first, other)]
    if prints[0] != prints[1]:
        raise ConfigError(f"{where}: has another vocabulary than the first model; models decode together only in one")
    if first.model.config.reads_source != other.model.config.reads_source:
        told = "one of the two is a language model, which reads no source"
        raise ConfigError(f"{where}: {told}; let it rescore outputs, by --rescore")
    return other.model


def _stacked(weights: Weights, queries: int, keys: int) -> Float[np.ndarray, "_layers _heads query key"]:
    """All layers as one array; of no layer, where the model has no such attention."""
    if not weights:
        return np.zeros((0, 0, queries, keys), dtype=np.float32)
    return torch.stack([each[0] for each in weights]).float().cpu().numpy()
