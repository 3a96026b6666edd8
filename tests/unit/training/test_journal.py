"""What a run writes down as it goes."""

from headway.training import journal


def test_events_reach_the_disk_every_ten_seconds_and_not_one_by_one(tmp_path, monkeypatch):
    now, flushed = [0.0], []
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    events = journal._Events(tmp_path, 0)
    monkeypatch.setattr(events._writer, "flush", lambda: flushed.append(now[0]))
    for step, second in enumerate((1.0, 5.0, 9.9, 10.5, 11.0, 20.0, 21.0)):
        now[0] = second
        events.scalar(step, "loss", 1.0)
    assert flushed == [10.5, 21.0]
    events.close()
