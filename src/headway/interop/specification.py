"""A Headway model in the shape CTranslate2 reads: every weight in its place, every token named by its id."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from headway.errors import ConfigError
from headway.folders import write_folder
from headway.models.model import ModelConfig
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.attention import MultiHeadAttention
from headway.nn.feedforward import FeedForward
from headway.nn.layers import DecoderLayer, EncoderLayer
from headway.nn.positions import LearnedPositions, RelativePositions, SinusoidalPositions
from headway.translator import Translator


def installed() -> Any:
    """The package `ctranslate2`; where it is not installed, a `ConfigError` that says how to install it."""
    try:
        import ctranslate2
    except ImportError:
        raise ConfigError("ctranslate2: not installed; pip install 'headway[ctranslate2]'") from None
    return ctranslate2


def refusal(config: ModelConfig) -> str | None:
    """Why CTranslate2 cannot compute what such a model computes; None where it can."""
    if not isinstance(config, TransformerConfig):
        return f"CTranslate2 has no {config.architecture} models; use a Transformer"
    if config.head_dim is not None:
        return "CTranslate2 has heads of dim / heads features only; leave head_dim out"
    if config.feedforward == "convolutional":
        return "CTranslate2 has no convolutional feed-forward network; use feedforward relu, gelu or gated"
    if config.window is not None:
        return "CTranslate2 has no attention restricted to a window; use a model without model.window"
    if config.positions == "alibi":
        return "CTranslate2 has no alibi positions in an encoder; use other positions"
    return None


def export(translator: Translator, folder: Path, *, int8: bool = False) -> None:
    """Write a folder that CTranslate2 reads, with the tokenizers, a README and a manifest; never over another."""

    def fill(aside: Path) -> None:
        write(translator, aside, int8=int8)
        sides = {"tokenizer": translator.source} if translator.source is translator.target else {}
        for name, tokenizer in (sides or {"source": translator.source, "target": translator.target}).items():
            tokenizer.save(aside / _tokenizer_file(name, tokenizer.file_name))
        (aside / "README.md").write_text(_readme(translator, int8), encoding="utf-8")

    write_folder(folder, fill, {"kind": "ctranslate2", "int8": int8})


def write(translator: Translator, folder: Path, *, int8: bool) -> None:
    """Write the files that CTranslate2 reads into an existing folder."""
    ctranslate2 = installed()
    reason = refusal(translator.model.config)
    if reason is not None:
        raise ConfigError(f"ctranslate2: {reason}")
    assert isinstance(translator.model, Transformer)  # no other is let through
    specification = _specification(ctranslate2.specs, translator.model)
    for size, register in (
        (translator.source.size, specification.register_source_vocabulary),
        (translator.target.size, specification.register_target_vocabulary),
    ):
        register([str(token) for token in range(size)])
    target = translator.target
    names = {"unk_token": target.unknown, "bos_token": target.start, "eos_token": target.end}
    for name, token in (names | {"decoder_start_token": target.start}).items():
        setattr(specification.config, name, str(token))
    specification.validate()
    specification.optimize(quantization="int8" if int8 else None)
    specification.save(str(folder))


def _specification(specs: Any, model: Transformer) -> Any:
    config = model.config
    activations = specs.Activation
    common: dict[str, Any] = {
        "num_heads": config.heads,
        "pre_norm": config.norm == "pre",
        "activation": {"relu": activations.RELU, "gelu": activations.GELU}.get(config.feedforward, activations.SWISH),
        "ffn_glu": config.feedforward == "gated",
        "relative_position": config.positions == "relative",
    }
    if config.positions == "rotary":
        common |= {"rotary_dim": 0, "rotary_interleave": False}
    encoder = specs.transformer_spec.TransformerEncoderSpec(config.encoder_layers, **common)
    decoder = specs.transformer_spec.TransformerDecoderSpec(config.decoder_layers, **common)
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    decoder.projection.weight, decoder.projection.bias = _array(model.output.weight), _array(model.output.bias)
    if isinstance(model.positions, SinusoidalPositions | LearnedPositions):
        table = _array(model.positions.table)
        encoder.position_encodings.encodings = decoder.position_encodings.encodings = table
    elif config.positions == "rotary":
        del encoder.position_encodings
    for stack, layers in ((encoder, model.encoder), (decoder, model.decoder)):
        if isinstance(layers.norm, nn.LayerNorm):
            _norm(stack.layer_norm, layers.norm)
        for place, layer in zip(stack.layer, layers.layers, strict=True):
            _layer(place, layer)
    return specs.TransformerSpec(encoder, decoder)


def _layer(place: Any, layer: nn.Module) -> None:
    assert isinstance(layer, EncoderLayer | DecoderLayer)
    attention = layer.attention
    _linear(place.self_attention.linear[0], attention.inputs)
    _linear(place.self_attention.linear[1], attention.output)
    _norm(place.self_attention.layer_norm, layer.attention_residual.norm)
    if isinstance(attention.positions, RelativePositions):
        table = _array(attention.positions.table)
        place.self_attention.relative_position_keys = table
        place.self_attention.relative_position_values = np.zeros_like(table)  # ours are on the keys alone
    if isinstance(layer, DecoderLayer):
        _cross(place.attention, layer.cross)
        _norm(place.attention.layer_norm, layer.cross_residual.norm)
    assert isinstance(layer.feedforward, FeedForward)  # else it was refused
    _feedforward(place.ffn, layer.feedforward)
    _norm(place.ffn.layer_norm, layer.feedforward_residual.norm)


def _cross(place: Any, attention: MultiHeadAttention) -> None:
    weight, bias, dim = _array(attention.inputs.weight), _array(attention.inputs.bias), attention.dim
    place.linear[0].weight, place.linear[0].bias = weight[:dim], bias[:dim]
    place.linear[1].weight, place.linear[1].bias = weight[dim:], bias[dim:]
    _linear(place.linear[2], attention.output)


def _feedforward(place: Any, network: FeedForward) -> None:
    _linear(place.linear_1, network.outer)
    if network.kind != "gated":
        _linear(place.linear_0, network.inner)
        return
    weight, bias = _array(network.inner.weight), _array(network.inner.bias)
    half = len(weight) // 2  # the values, then their gates
    place.linear_0_noact.weight, place.linear_0_noact.bias = weight[:half], bias[:half]
    place.linear_0.weight, place.linear_0.bias = weight[half:], bias[half:]


def _linear(place: Any, linear: nn.Linear) -> None:
    place.weight, place.bias = _array(linear.weight), _array(linear.bias)


def _norm(place: Any, norm: nn.LayerNorm) -> None:
    place.gamma, place.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> Float[np.ndarray, "..."]:
    """A copy: CTranslate2 quantises in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _tokenizer_file(side: str, file_name: str) -> str:
    return file_name if side == "tokenizer" else f"{side}.{file_name}"


def _readme(translator: Translator, int8: bool) -> str:
    joint = translator.source is translator.target
    sides = ("tokenizer", "tokenizer") if joint else ("source", "target")
    pieces = translator.source.file_name.endswith(".model")
    library, opened, ids = (
        ("sentencepiece", "SentencePieceProcessor(model_file=", "reader.encode(text)")
        if pieces
        else ("tokenizers", "Tokenizer.from_file(", "reader.encode(text, add_special_tokens=False).ids")
    )
    reader, writer = (f'{library}.{opened}"{_tokenizer_file(side, translator.source.file_name)}")' for side in sides)
    end, longest = json.dumps(str(translator.source.end)), translator.model.config.longest
    options = f"beam_size={translator.decoding.beam}, max_decoding_length={longest}, max_input_length={longest}"
    return f"""# A Headway model for CTranslate2

{"Weights in int8." if int8 else "Weights in single precision."} A token's name is its id. A source ends in {end}; it
and its output have at most {longest} tokens, the end among them.

```python
import ctranslate2, {library}

reader, writer, translator = {reader}, {writer}, ctranslate2.Translator(".")
(found,) = translator.translate_batch([[*map(str, {ids}), {end}]], {options})
print(writer.decode([int(token) for token in found.hypotheses[0]]))
```
"""
