"""Every architecture by name: the only registry, a plain dict."""

from headway.models.transformer import Transformer, TransformerConfig

ModelConfig = TransformerConfig
Model = Transformer

CATALOG: dict[str, tuple[type[ModelConfig], type[Model]]] = {"transformer": (TransformerConfig, Transformer)}
"""From the name in a recipe to the configuration and the module."""
