import json
import signal
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from headway.data.batches import Batch
from headway.errors import Interrupted
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn.linear import Linear
from headway.objectives import LabelSmoothedLikelihood
from headway.sequences import Sequences
from headway.training.captured import CapturedUpdates, Room, Trays
from headway.training.optimiser import Optimiser

CPU = torch.device("cpu")


def packed(lengths, *, first=5):
    sentences = [[first + n] * length for n, length in enumerate(lengths)]
    return Sequences.pack(sentences)


def batch_of(source, target):
    read, written = packed(source), packed(target, first=50)
    return Batch(read, written, written.tokens + 1, len(written.tokens))


@pytest.fixture
def captured():
    module = Linear(1, 1)
    return CapturedUpdates(
        module, Optimiser(module, "adam", (0.9, 0.98)), nullcontext, device=CPU, clip=1.0, budget=1024, longest=30
    )


def test_a_batch_is_filled_up_with_sentences_that_do_not_count():
    trays = Trays(Room(40, 30, 8, 10), CPU)
    batch = batch_of([3, 7, 5], [10, 4, 9])
    trays.load(batch_of([10] * 4, [10] * 3))  # what was there before is gone
    trays.load(batch)
    there = trays.batch()
    assert there.source.lengths.tolist() == [3, 7, 5, 10, 10, 5, 0, 0]
    assert there.target.lengths.tolist() == [10, 4, 9, 7, 0, 0, 0, 0]
    assert there.source.tokens[:15].tolist() == batch.source.tokens.tolist()
    assert there.target.tokens[:23].tolist() == batch.target.tokens.tolist()
    assert there.labels.tolist() == batch.labels.tolist() + [-1] * 7
    assert int(trays.units) == 23


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([3], [4]), ([30] * 33, [29] * 33), ([1] * 500, [2] * 500), ([30] * 34, [1] * 34),
        ([2] * 63 + [3], [16] * 64), ([16] * 64, [2] * 63 + [3]),  # one side is full, the other is to be filled up
    ],
)  # fmt: skip
def test_the_room_of_a_batch_holds_it_and_what_fills_it_up(captured, source, target):
    batch = batch_of(source, target)
    room = captured.room(batch)
    trays = Trays(room, CPU)
    trays.load(batch)
    assert int(trays.batch().source.lengths.sum()) == room.source >= sum(source)
    assert int(trays.batch().target.lengths.sum()) == room.target >= sum(target)
    assert max(trays.batch().source.lengths.max(), trays.batch().target.lengths.max()) <= captured.longest


def test_batches_of_about_one_size_share_a_graph(captured):
    assert captured.room(batch_of([30] * 33, [29] * 33)) == captured.room(batch_of([28] * 34, [30] * 34))
    assert captured.room(batch_of([30] * 33, [29] * 33)) != captured.room(batch_of([30] * 16, [30] * 16))


def test_padded_batches_several_at_once_and_those_of_no_units_are_left_to_others(captured):
    batch = batch_of([3, 4], [5, 6])
    assert captured.serves([batch])
    assert not captured.serves([batch, batch])
    padded = Sequences.pad([[1, 2], [3]], 0)
    assert not captured.serves([Batch(padded, padded, padded.tokens, 3)])
    assert not captured.serves([Batch(batch.source, batch.target, batch.labels, 0)])


def test_the_loss_of_what_was_loaded_last_is_that_of_the_batch_itself():
    torch.manual_seed(1)
    config = TransformerConfig(dim=16, heads=2, hidden=32, encoder_layers=1, decoder_layers=2, dropout=0.0, longest=30)
    model, objective = Transformer(config, 100, 100), LabelSmoothedLikelihood(0.1)
    trays = Trays(Room(64, 96, 16, 20), CPU)
    for batch in (batch_of([3, 7, 5], [10, 4, 9]), batch_of([20, 1], [6, 17]), batch_of([2] * 9, [10] * 9)):
        trays.load(batch)
        weights = tuple(model.parameters())
        alone, filled = objective(model, batch), objective(model, trays.batch())
        torch.testing.assert_close(filled.total, alone.total)
        torch.testing.assert_close(filled.surprise, alone.surprise)
        expected = torch.autograd.grad(alone.total, weights)
        torch.testing.assert_close(torch.autograd.grad(filled.total, weights), expected, rtol=1e-4, atol=1e-4)


class Repeated(CapturedUpdates):
    """Stands in for graphs on a CPU: a replay computes the update again, on what is in the trays by then."""

    def _captured(self, batch, room):
        trays, result = Trays(room, self.device), torch.zeros(2)
        self._held.fill_(0.0)
        return SimpleNamespace(
            trays=trays, result=result, graph=SimpleNamespace(replay=lambda: result.copy_(self._update(trays).detach()))
        )

    def _update(self, trays):
        self.optimiser.zero_grad()
        return super()._update(trays)


@pytest.fixture
def replaying(trainer, recipe):
    """A trainer of packed batches that replays its updates, and one that takes them itself."""

    def build(*, replay=True, **training):
        settings = recipe(layout="packed", precision="fp32", **training)
        shape = settings.model.model_copy(update={"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0})
        made = trainer(settings.model_copy(update={"model": shape}))
        if replay:
            passes = made.gradients
            made.captured = Repeated(passes.forward, passes.optimiser, passes.arithmetic, CPU, 1.0, 256, 64)
        return made

    return build


def told(made):
    updates = []
    made.on_update = updates.append
    made.fit()
    return updates


def test_replayed_updates_are_those_of_the_host_and_all_are_told_in_order(replaying):
    fast, slow = told(replaying(log_every=5)), told(replaying(replay=False))
    assert [update.step for update in fast] == list(range(1, 13))
    for mine, other in zip(fast, slow, strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-4)
        assert mine.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-3)
        assert (mine.learning_rate, mine.epoch) == (other.learning_rate, other.epoch)
    assert fast[-1].tokens_per_second > 0


def test_outcomes_are_asked_for_only_now_and_then(replaying, monkeypatch):
    made, asked = replaying(log_every=5, validate_every=12), []
    settle = made.captured.settle
    monkeypatch.setattr(made.captured, "settle", lambda: asked.append(made.captured._unsettled) or settle())
    told(made)
    assert [count for count in asked if count] == [1, 4, 5, 2]


def test_a_replayed_update_that_is_not_finite_moves_nothing(replaying, screen):
    made = replaying()
    _, batches = made.feed.epoch(0, 0)
    group = [next(batches)]
    made.update(group)
    before = {name: weight.clone() for name, weight in made.model.named_parameters()}
    made.model.output.bias.data[7] = torch.nan
    made.update(group)
    made.model.output.bias.data[7] = before["output.bias"][7]
    assert made.progress.skipped == 1
    assert any("not finite" in line for line in screen.lines)
    assert all(torch.equal(weight, before[name]) for name, weight in made.model.named_parameters())
    made.update(group)
    assert made.progress.skipped == 0
    assert not all(torch.equal(weight, before[name]) for name, weight in made.model.named_parameters())


def broken_off(error):
    """A capture in which something went wrong, and which then cannot be ended."""

    def capture(*_):
        try:
            raise error
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    return capture


def test_where_memory_runs_out_in_a_capture_updates_are_taken_one_by_one_and_none_is_lost(replaying, screen):
    made, updates, refused = replaying(log_every=5), [], []
    made.on_update, capture = updates.append, made.captured._captured

    def second_fails(batch, room):
        refused.append(room)
        return capture(batch, room) if len(refused) == 1 else broken_off(torch.OutOfMemoryError("out of memory"))()

    made.captured._captured = second_fails
    made.captured.room = lambda batch: Room(256, 256, 256, 64 if made.progress.step < 3 else 65)
    made.fit()
    assert [update.step for update in updates] == list(range(1, 13))
    assert (len(refused), made.captured.failed, made.captured._unsettled) == (2, True, 0)
    assert sum("too little memory to capture" in line for line in screen.lines) == 1


def test_a_capture_that_fails_for_any_other_reason_is_no_matter_of_memory(replaying):
    made = replaying()
    made.captured._captured = broken_off(RuntimeError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(RuntimeError, match="previous error"):
        made.fit()


def test_a_signal_while_outcomes_are_unknown_saves_the_step_and_loses_no_line_of_the_journal(replaying):
    made = replaying(log_every=4, validate_every=12)
    epoch = made.feed.epoch

    def interrupting(*given, **options):
        length, batches = epoch(*given, **options)

        def stopping():
            for number, batch in enumerate(batches, start=1):
                if number == 7:
                    made.stopper.signal = signal.SIGTERM
                yield batch

        return length, stopping()

    object.__setattr__(made, "feed", SimpleNamespace(epoch=interrupting))
    with pytest.raises(Interrupted):
        made.fit()
    step = made.progress.step
    assert made.checkpoints.latest(lambda _: None) == step
    lines = [json.loads(line) for line in made.journal.path.read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line] == [n for n in (1, 4) if n <= step]
    assert made.captured._unsettled == 0


def test_a_time_budget_is_planned_for_by_replayed_updates_too(replaying, ticking):
    made = replaying(steps=None, time="10s", validate_every=None, log_every=5000)
    updates = told(made)
    assert updates[-1].step == updates[-1].steps == made.progress.steps
    assert updates[-1].learning_rate < 0.2 * max(update.learning_rate for update in updates)
