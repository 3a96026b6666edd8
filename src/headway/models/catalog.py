"""Every architecture by name: the only registry, a plain dict."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from headway.config import validated
from headway.errors import ConfigError
from headway.models.bytenet import ByteNet, ByteNetConfig
from headway.models.convolutional import Convolutional, ConvolutionalConfig
from headway.models.ctc import Ctc, CtcConfig
from headway.models.fertility import FertilityConfig, FertilityTransformer
from headway.models.hierarchical import Hierarchical, HierarchicalConfig
from headway.models.language import LanguageConfig, LanguageModel
from headway.models.maskpredict import MaskPredict, MaskPredictConfig
from headway.models.model import Model, ModelConfig
from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.models.transformer import Transformer, TransformerConfig

CATALOG: dict[str, tuple[type[ModelConfig], type[Model]]] = {
    "transformer": (TransformerConfig, Transformer),
    "recurrent": (RecurrentConfig, Recurrent),
    "convolutional": (ConvolutionalConfig, Convolutional),
    "bytenet": (ByteNetConfig, ByteNet),
    "hierarchical": (HierarchicalConfig, Hierarchical),
    "language": (LanguageConfig, LanguageModel),
    "ctc": (CtcConfig, Ctc),
    "fertility": (FertilityConfig, FertilityTransformer),
    "mask-predict": (MaskPredictConfig, MaskPredict),
}
"""From the name in a recipe to the configuration and the module."""

DEFAULT = "transformer"


def architecture_of(given: Any) -> str:
    """The name of the architecture that settings, read or yet to be read, ask for."""
    name = given.get("architecture", DEFAULT) if isinstance(given, Mapping) else getattr(given, "architecture", "")
    return name if isinstance(name, str) else ""


if TYPE_CHECKING:
    AnyModelConfig = ModelConfig
else:
    AnyModelConfig = Annotated[
        Union[tuple(Annotated[config, Tag(name)] for name, (config, _) in CATALOG.items())],  # noqa: UP007  # made of a list
        Discriminator(
            architecture_of,
            custom_error_type="architecture",
            custom_error_message=f"there is no such architecture; choose of {', '.join(CATALOG)}",
        ),
    ]
    """The settings of one architecture or another, told apart by `architecture`."""


def read_model_config(tree: Mapping[str, Any], where: str) -> ModelConfig:
    """The settings of a model, of whatever architecture they name."""
    name = architecture_of(tree)
    if name not in CATALOG:
        raise ConfigError(f"{where}.architecture: there is no {name!r}; choose of {', '.join(CATALOG)}")
    return validated(CATALOG[name][0], tree, where)
