"""Every place of a model that drops features in training does, with the probability of its setting."""

import pytest
import torch

from headway.models.catalog import CATALOG
from headway.nn.dropout import Dropout
from toys import VOCABULARY, batch_of

LAYERS = {"dim": 8, "encoder_layers": 2, "decoder_layers": 2}
STACKED = {**LAYERS, "heads": 2, "hidden": 8}
MODELS = {
    "transformer": (STACKED, 15),  # the embeddings; 3 places in a layer of the encoder, 4 in one of the decoder
    "recurrent": (LAYERS, 3),
    "convolutional": (LAYERS, 5),
    "bytenet": (LAYERS, 5),
    "hierarchical": ({"dim": 8, "word_layers": 2, "sentence_layers": 2, "decoder_layers": 2}, 4),
    "language": ({"dim": 8, "heads": 2, "hidden": 8, "layers": 2}, 7),
    "ctc": (STACKED, 13),
    "fertility": (STACKED, 17),  # with attention to the order of the tokens
    "mask-predict": (STACKED, 15),
}
"""Small models of every architecture, and in how many places they drop something."""
BATCH = batch_of([[3, 4, 5, 6], [7, 8, 9]], [[6, 5, 4, 3], [9, 8, 7]])


def built(kind):
    config, architecture = CATALOG[kind]
    given = {**MODELS[kind][0], "dropout": 0.5}
    given |= {"activation_dropout": 0.25} if "activation_dropout" in config.model_fields else {}
    torch.manual_seed(1)
    model = architecture(config(**given), VOCABULARY, VOCABULARY)
    model.prepare(["."] * VOCABULARY)
    return model, {name: module for name, module in model.named_modules() if isinstance(module, Dropout)}


def alike(compute):
    """Whether two passes in a row, which draw other numbers, give the same."""
    return torch.equal(compute(), compute())


@pytest.mark.parametrize("kind", CATALOG)
def test_every_place_drops_by_its_setting_in_training_alone(kind):
    model, places = built(kind)
    assert len(places) == MODELS[kind][1]
    for name, place in places.items():
        assert place.probability == (0.25 if name.endswith("feedforward.dropout") else 0.5), name
    for place in places.values():
        place.probability = 0.0
    assert alike(lambda: model.train()(BATCH.source, BATCH.target))
    for name, place in places.items():
        place.probability = 0.5
        assert not alike(lambda: model.train()(BATCH.source, BATCH.target)), name
        assert alike(lambda: model.eval()(BATCH.source, BATCH.target)), name
        place.probability = 0.0


@pytest.mark.parametrize("kind", ["transformer", "recurrent", "convolutional", "bytenet", "hierarchical"])
def test_the_embeddings_of_both_sides_are_dropped(kind):
    model, places = built(kind)
    for name, place in places.items():
        place.probability = 0.5 if name == "dropout" else 0.0
    assert not alike(lambda: model.encode(BATCH.source).states)
    encoded = model.encode(BATCH.source)
    assert not alike(lambda: model.decode(BATCH.target, encoded).states)


def test_a_hierarchical_decoder_drops_its_embeddings_beside_what_goes_between_its_layers():
    model, places = built("hierarchical")
    given, encoded = [], model.encode(BATCH.source)
    places["dropout"].register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    model.decode(BATCH.target, encoded)
    assert any(torch.equal(each, model.target_embedding(BATCH.target.tokens)) for each in given)
