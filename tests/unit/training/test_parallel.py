"""What processes that train together give each other."""

import torch

from headway.training.parallel import whole


def test_a_copy_of_weights_stays_as_it_is_while_training_goes_on():
    weight = torch.ones(3, requires_grad=True)
    kept = whole(weight)
    with torch.no_grad():
        weight.zero_()
    assert kept.tolist() == [1.0, 1.0, 1.0] and not kept.requires_grad
