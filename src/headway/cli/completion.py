"""`headway completion`."""

from typing import Literal


def command(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script by which a shell completes the commands and options of headway.

    Parameters
    ----------
    shell
        Which shell the script is for.
    """
    from headway.cli import app

    print(app.generate_completion(prog_name="headway", shell=shell))
