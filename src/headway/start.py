"""Beginning where another model ended: its tokenizers, its shape and its weights; or from word vectors."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from headway.config import Settings, validated
from headway.data.config import DataConfig
from headway.data.extension import extend, pieces_of_new
from headway.data.preparation import Report, Split, vocabulary_texts
from headway.data.tokenizer import JsonTokenizer, Tokenizer, TokenizerConfig
from headway.data.vectors import read_vectors
from headway.errors import ConfigError
from headway.models.model import Autoregressive, Model, ModelConfig
from headway.models.transformer import Transformer
from headway.nn.embedding import Embedding
from headway.training.checkpoint import load_parameters, parameters
from headway.translator import Translator, load

FREE = frozenset({"preset", "dropout", "attention_dropout", "activation_dropout"})
"""Settings of a model that may differ from those of the folder: no weight depends on them."""
TABLES = {"source_embedding.weight": 0, "target_embedding.weight": 1, "output.weight": 1, "output.bias": 1, "ends": 0}
"""Weights with a row a token, and whose: 0 is source, 1 is target."""
SMALL, SMALL_WIDTH = 0.02, 256
"""Standard deviation of the embeddings of a new Transformer up to this width; wider ones begin with logits as small."""


class StartConfig(Settings):
    """Which trained model to go on from."""

    model: Path
    """A model folder or a run folder: its tokenizers, shape and weights are where training begins."""
    extend: int = Field(0, ge=0, le=1 << 20)
    """Tokens added to its vocabulary at most, learnt from the new corpus; the old ones keep their ids."""


@dataclass(frozen=True)
class Start:
    """A trained model from which a run begins."""

    config: StartConfig
    origin: Translator

    def model_config(self, given: ModelConfig | None) -> ModelConfig:
        """The shape of the folder's model with the dropout that was given; any other shape is refused by name."""
        own = self.origin.model.config
        learned = getattr(own, "positions", None) == "learned"  # only such a table has a row for every position
        free = FREE if learned else FREE | {"longest"}
        asked = given.model_dump(exclude_unset=True) if given is not None else {}
        kind = asked.get("architecture", own.architecture if given is None else given.architecture)
        if kind != own.architecture:
            raise ConfigError(f"{self.config.model}: is a {own.architecture} model; set model.architecture so")
        wrong = [name for name, value in asked.items() if name not in free and value != getattr(own, name)]
        if wrong:
            names = ", ".join(f"model.{name}" for name in wrong)
            raise ConfigError(f"{self.config.model}: its model has another {names}; leave the setting out")
        changed = {name: value for name, value in asked.items() if name in free}
        return validated(type(own), {**own.model_dump(), **changed}, "model")

    def tokenizer_config(self, given: TokenizerConfig) -> TokenizerConfig:
        """What the folder's tokenizers are, with the dropout that was given; another kind is refused by name."""
        source, target = self.origin.source, self.origin.target
        own = {"kind": _kind(target) or given.kind, "joint": source is target, "file": None}
        asked = given.model_dump(exclude_unset=True)
        wrong = [name for name, value in own.items() if name in asked and asked[name] != value]
        sizes = (None, target.size, target.size + self.config.extend)
        wrong += ["vocabulary"] if asked.get("vocabulary") not in sizes else []
        if wrong:
            names = ", ".join(f"tokenizer.{name}" for name in wrong)
            raise ConfigError(f"{self.config.model}: its tokenizers have another {names}; leave the setting out")
        return given.model_copy(update={**own, "vocabulary": given.vocabulary or sizes[-1]})

    def tokenizers(self, data: DataConfig, split: Split, report: Report) -> tuple[Tokenizer, Tokenizer]:
        """The folder's tokenizers, with new tags and, if that was asked for, what is frequent in the training pairs."""
        source, target, count = self.origin.source, self.origin.target, self.config.extend
        tags = data.every_tag()
        if source is target:
            joint = extend(source, vocabulary_texts(data, split, report, (0, 1)), count, tags)
            return joint, joint
        return (
            extend(source, vocabulary_texts(data, split, report, (0,)), count, tags),
            extend(target, vocabulary_texts(data, split, report, (1,)), count),
        )

    def fill(self, model: Model, source: Tokenizer, target: Tokenizer) -> None:
        """Give a new model the folder's weights; a new token begins as the mean of the tokens it is made of.

        Its bias begins lower than theirs by log(1 + new tokens): it is then never the likeliest token, and all new
        ones together take no more probability from the old than the likeliest of these has.
        """
        weights = parameters(self.origin.model)
        sides = pieces_of_new(self.origin.source, source), pieces_of_new(self.origin.target, target)
        for name, side in TABLES.items():
            if name in weights and sides[side]:
                rows = torch.stack([weights[name][each].mean(0) for each in sides[side]])
                if name == "output.bias":
                    rows = rows - math.log(1 + len(rows))
                weights[name] = torch.cat([weights[name], rows])
        load_parameters(model, weights, str(self.config.model))
        model.prepare(map(source.spelling, range(source.size)))


def open_start(config: StartConfig) -> Start:
    """Load the model a run begins from; its folder is verified first and nothing in it is executed."""
    return Start(config, load(config.model))


def initialise_tables(model: Autoregressive[Any, Any], log_frequencies: NDArray[np.float64]) -> None:
    """Set the weights with a row per token so that training does not start with what can be known before.

    Output biases are the log-probabilities of the tokens. The embeddings of a Transformer are small: Adam's steps do
    not depend on the size of a weight, so small ones change sooner.
    """
    with torch.no_grad():
        model.output.bias.copy_(torch.from_numpy(log_frequencies))
        if isinstance(model, Transformer):
            tables = {model.source_embedding.weight, model.target_embedding.weight, model.output.weight}
            for table in tables:  # one, where all are tied
                table.mul_(SMALL * math.sqrt(min(1.0, SMALL_WIDTH / table.shape[1])) / table.std())


def start_from_vectors(embedding: Embedding, path: Path, tokenizer: Tokenizer) -> int:
    """Set the embedding of every token that is a word of the vector file; returns how many were found.

    A looked-up embedding then is the vector itself.
    """
    words = tokenizer.words()
    vectors, width = read_vectors(path, words.keys())
    if width != embedding.weight.shape[1]:
        raise ConfigError(f"{path}: vectors of {width} features, model.dim is {embedding.weight.shape[1]}; set it so")
    with torch.no_grad():
        for word, vector in vectors.items():
            embedding.weight[words[word]] = torch.from_numpy(vector) / embedding.scale
    return len(vectors)


def _kind(tokenizer: Tokenizer) -> str | None:
    """What `TokenizerConfig` calls such a tokenizer; None for one that is not ours."""
    if not isinstance(tokenizer, JsonTokenizer):
        return None
    tree = json.loads(tokenizer.backend.to_str())
    if tree["model"]["type"] == "WordLevel":
        return "characters" if (tree["pre_tokenizer"] or {}).get("type") == "Split" else "words"
    return "bpe" if tree["model"]["type"] == "BPE" else None
