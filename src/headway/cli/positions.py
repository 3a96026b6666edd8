"""`headway positions`."""

from pathlib import Path

from headway.cli.options import Flag
from headway.disk import check_output
from headway.errors import ConfigError


def command(*, out: Path, length: int = 100, dim: int = 128, overwrite: Flag = False) -> None:
    """Draw the sinusoidal positional encoding.

    Parameters
    ----------
    out
        A picture: .png or .svg.
    length
        Positions to draw.
    dim
        Features of a position.
    overwrite
        Replace the picture if it is there already.
    """
    if not (2 <= length <= 10_000 and 2 <= dim <= 4096 and dim % 2 == 0):
        raise ConfigError(f"--length {length} --dim {dim}: draw 2 to 10000 positions of an even 2 to 4096 features")
    check_output(out, overwrite=overwrite, option="--out")
    from headway.inspection import draw_positions
    from headway.nn.positions import sinusoids

    draw_positions(sinusoids(length, dim).numpy(), out, f"Sinusoidal positions, {dim} features", overwrite=overwrite)
