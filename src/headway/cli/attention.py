"""`headway attention`."""

from pathlib import Path


def command(model: Path, sentence: str, /, *, out: Path = Path("attention.html"), device: str | None = None) -> None:
    """Show what a model looks at: every layer and head, encoder, decoder and cross attention.

    Parameters
    ----------
    model
        A model folder or a run folder.
    sentence
        The text to translate.
    out
        An offline page (.html), or a picture (.png, .svg).
    device
        cpu, cuda or cuda:N; the best there is by default.
    """
    from headway.assemble import choose_device
    from headway.translator import load

    translation = load(model, device=choose_device(device))(sentence)
    translation.attention.save(out)
    print(translation)
