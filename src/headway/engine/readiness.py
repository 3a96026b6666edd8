"""A model made ready to decode: its numbers in the precision and the order that suit the device."""

from typing import Literal

import torch
from torch import nn

from headway.errors import ConfigError
from headway.models.model import Model, NonAutoregressive

Precision = Literal["fp32", "bf16", "fp16"]
"""Of the halves fp16 is the more exact and bf16 the one that never overflows."""


def ready(model: Model, precision: Precision = "fp32") -> Model:
    """The same model for decoding alone; names, shapes and values of its weights stay.

    Tables of positions stay as exact as they are. On a CPU the matrices are laid out column by column: products of few
    rows, which is what a step takes, are faster so; and a step goes without the modules, where it can. What writes all
    tokens at once goes without them on a GPU too.
    """
    on_cpu = model.output.weight.device.type == "cpu"
    if on_cpu and precision != "fp32":
        raise ConfigError(f"precision {precision}: is for GPUs; on a CPU use fp32, or CTranslate2 with int8")
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    model = model.eval()
    for weight in model.parameters():
        weight.data = weight.data.to(kind)
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # side by side again, as cuDNN wants them
    if on_cpu:
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.data = module.weight.data.t().contiguous().t()
        model.output.turn()
    if on_cpu or isinstance(model, NonAutoregressive):
        model.straighten()
    return model
