"""`headway positions`."""

from pathlib import Path

from headway.errors import ConfigError


def command(*, out: Path, length: int = 100, dim: int = 128) -> None:
    """Draw the sinusoidal positional encoding.

    Parameters
    ----------
    out
        A picture: .png or .svg.
    length
        Positions to draw.
    dim
        Features of a position.
    """
    if not (2 <= length <= 10_000 and 2 <= dim <= 4096 and dim % 2 == 0):
        raise ConfigError(f"--length {length} --dim {dim}: draw 2 to 10000 positions of an even 2 to 4096 features")
    from headway.inspection import draw_positions
    from headway.nn.positions import sinusoids

    draw_positions(sinusoids(length, dim).numpy(), out, f"Sinusoidal positions, {dim} features")
