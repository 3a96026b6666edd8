"""How fast a device multiplies matrices."""

import statistics
import time

import torch

PRODUCT = {"cuda": 8192, "cpu": 1024}
"""Rows of the square matrices that are multiplied."""
SECONDS = {"cuda": 2.0, "cpu": 0.5}
"""How long the speed is measured: several periods of a CPU quota, or until runs that begin together see each other."""


def matrix_peak(device: torch.device, half: bool, seconds: float = 0.5) -> float:
    """Floating-point operations per second of one large product, the best of several."""
    return max(_products(device, half, seconds))


def matrix_speed(device: torch.device, half: bool) -> float:
    """The same on average: what quotas and other work leave of the machine."""
    return statistics.harmonic_mean(_products(device, half, SECONDS[device.type]))


def _products(device: torch.device, half: bool, seconds: float) -> list[float]:
    size, repeats = PRODUCT[device.type], 10 if device.type == "cuda" else 1
    left = torch.full((size, size), 0.5, device=device, dtype=torch.bfloat16 if half else torch.float32)
    speeds: list[float] = []
    until = time.monotonic() + seconds
    while len(speeds) < 2 or time.monotonic() < until:
        _wait(device)
        began = time.monotonic()
        for _ in range(repeats):
            left @ left
        _wait(device)
        speeds.append(2 * size**3 * repeats / (time.monotonic() - began))
    return speeds[1:]  # in the first one threads start and kernels load


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
