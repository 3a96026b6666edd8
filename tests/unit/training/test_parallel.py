"""What processes that train together give each other."""

import torch
from torch.distributed import fsdp

from headway.models.transformer import Transformer, TransformerConfig
from headway.training.parallel import Parallel, whole


def test_a_copy_of_weights_stays_as_it_is_while_training_goes_on():
    weight = torch.ones(3, requires_grad=True)
    kept = whole(weight)
    with torch.no_grad():
        weight.zero_()
    assert kept.tolist() == [1.0, 1.0, 1.0] and not kept.requires_grad


def test_with_sharded_weights_every_layer_is_divided_by_itself(monkeypatch):
    """So that no process ever holds more than one layer's weights whole."""
    model = Transformer(TransformerConfig(dim=16, heads=2, hidden=16, encoder_layers=2, decoder_layers=2), 9, 9)
    step, divided = torch.nn.Sequential(model), []
    monkeypatch.setattr(fsdp, "fully_shard", divided.append)
    monkeypatch.setattr(fsdp, "register_fsdp_forward_method", lambda *_: None)
    assert Parallel(0, 2, sharded=True).distributed(step, model) is step
    blocks = list(model.blocks())
    assert len(blocks) == 4 and [each for each in divided if each in blocks] == blocks
    assert divided[-1] is step
