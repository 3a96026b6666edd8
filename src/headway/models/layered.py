"""The shape of models that are made of the Transformer's layers."""

from dataclasses import fields
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from headway.models.model import ModelConfig
from headway.nn.feedforward import FeedForwardKind
from headway.nn.layers import LayerShape
from headway.nn.positions import PositionKind
from headway.nn.residual import NormPlace

Preset = Literal["mini", "tiny", "small", "base", "big"]
Presets = dict[Preset, dict[str, Any]]

PRESETS: Presets = {
    "mini": {"dim": 128, "heads": 4, "hidden": 512, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1},
    "tiny": {"dim": 128, "heads": 4, "hidden": 256, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
    "small": {"dim": 256, "heads": 4, "hidden": 1024, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.2},
    "base": {"dim": 512, "heads": 8, "hidden": 2048, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1},
    "big": {"dim": 1024, "heads": 16, "hidden": 4096, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.3},
}
"""Sizes by name; `base` and `big` are the paper's (table 3), `tiny` is Wu et al.'s (2021) for 30,000 pairs, `mini` is
for minutes on a CPU."""


class LayeredConfig(ModelConfig):
    """Layers of attention and feed-forward networks."""

    preset: Preset | None = None
    """Sizes by name: mini, tiny, small, base or big; what is set beside it wins."""
    dim: int = Field(256, gt=0, le=16384)
    """Features of a token's state; even, and a multiple of heads."""
    heads: int = Field(4, gt=0, le=256)
    """Attention heads."""
    hidden: int = Field(1024, gt=0, le=65536)
    """Features inside the feed-forward network."""
    norm: NormPlace = "post"
    """Where LayerNorm stands: post as in the paper, pre for deep models and short runs."""
    feedforward: FeedForwardKind = "relu"
    """relu, gelu, gated (SwiGLU), or convolutional (in the encoder; the decoder then has relu)."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of embedding and sub-layer outputs set to zero in training."""
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of attention weights set to zero in training."""
    activation_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of feed-forward activations set to zero in training."""

    presets: ClassVar[Presets] = PRESETS

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset") in list(cls.presets):  # a list: the value may be unhashable
            return {**cls.presets[data["preset"]], **data}
        return data

    @model_validator(mode="after")
    def _sizes_fit(self) -> "LayeredConfig":
        if self.heads * self.width != self.dim and self.given_width is None:
            raise ValueError(f"dim {self.dim} is not divisible by heads {self.heads}")
        if self.dim % 2 or (self.place_kind == "rotary" and self.width % 2):
            raise ValueError(f"dim {self.dim} by {self.heads} heads leaves an odd number of features; use an even one")
        if self.longest * self.dim > 1 << 28:
            raise ValueError(f"a position table of {self.longest} x {self.dim} is over 1 GiB; lower longest")
        return self

    @property
    def place_kind(self) -> PositionKind:
        """How tokens know their places: by fixed waves, unless there is a setting for it."""
        return getattr(self, "positions", "sinusoidal")

    @property
    def given_width(self) -> int | None:
        """Features of a head, where they are not to follow from dim and heads."""
        return None

    @property
    def width(self) -> int:
        """Features of a head."""
        return self.given_width or self.dim // self.heads

    @property
    def shape(self) -> LayerShape:
        """What all layers have in common."""
        return layer_shape(self, positions=self.place_kind, width=self.width)


def layer_shape(config: ModelConfig, **others: Any) -> LayerShape:
    """What all layers of a model have in common: the settings of those names, but `others`."""
    named = {each.name: getattr(config, each.name) for each in fields(LayerShape) if hasattr(config, each.name)}
    return LayerShape(**{**named, **others})


class StackedConfig(LayeredConfig):
    """An encoder and a decoder of such layers."""

    encoder_layers: int = Field(3, gt=0, le=256)
    """Layers of the encoder; a deep encoder with a shallow decoder translates fast."""
    decoder_layers: int = Field(3, gt=0, le=256)
    """Layers of the decoder."""

    @property
    def attending(self) -> int:
        """Every decoder layer looks at the source."""
        return self.decoder_layers

    @property
    def shape_in_words(self) -> str:
        """Layers of encoder and decoder, and the features of a state."""
        return f"{self.encoder_layers}+{self.decoder_layers} layers of {self.dim}"

    def fewest_parameters(self, vocabulary: int) -> int:
        """What the matrices of such a model hold at least: known before any memory is taken for them."""
        attention = 4 * self.heads * self.width
        encoder = self.encoder_layers * (attention + 2 * self.hidden)
        decoder = self.decoder_layers * (2 * attention + 2 * self.hidden)
        learned = self.longest if self.place_kind == "learned" else 0
        return (encoder + decoder + vocabulary + learned) * self.dim
