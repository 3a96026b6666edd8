"""What listens for Ctrl-C, SIGTERM and a closed terminal leaves nothing behind."""

import threading
from pathlib import Path

from headway.training.signals import Stopper


def test_nothing_stays_open_when_training_ends():
    def entered():
        before = threading.enumerate()
        with Stopper():
            (listener,) = set(threading.enumerate()) - set(before)
        listener.join()
        return len(list(Path("/dev/fd").iterdir()))

    assert entered() == entered() == entered()
