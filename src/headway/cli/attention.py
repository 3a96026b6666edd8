"""`headway attention`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headway.cli.options import Flag
from headway.disk import check_output
from headway.errors import ConfigError


def command(
    model: Path,
    sentence: str,
    /,
    *,
    out: Path = Path("attention.html"),
    overwrite: Flag = False,
    target: str | None = None,
    tag: Annotated[list[str] | None, Parameter(negative="")] = None,
    device: str | None = None,
) -> None:
    """Show what a model looks at: every layer and head, encoder, decoder and cross attention.

    Parameters
    ----------
    model
        A model folder or a run folder.
    sentence
        The text to translate; of a language model, the text to look at.
    out
        An offline page (.html), or a picture (.png, .svg).
    overwrite
        Replace the page or picture if it is there already.
    target
        The output to look at, instead of the model's own.
    tag
        A tag put before the sentence, as the model was trained with; may be repeated.
    device
        cpu, cuda or cuda:N; the best there is by default.
    """
    check_output(out, overwrite=overwrite, option="--out")
    from headway.assemble import choose_device
    from headway.scoring import too_long
    from headway.translator import load

    translator = load(model, device=choose_device(device))
    if not translator.model.config.reads_source:
        if target is not None or tag:
            raise ConfigError(f"{model}: is a language model; give it one text, without --target and --tag")
        sentence, target = "", sentence
    if target is None:
        translation = translator(sentence, tags=tag or ())
        attention, text = translation.attention, str(translation)
    else:
        (tokens,) = translator.target.encode([target if target.strip() else ""])
        problem = too_long(translator, ((), tokens))
        if problem:
            raise ConfigError(f"{'--target' if sentence else 'text'}: {problem}; give a shorter one")
        attention = translator.attention(sentence, tokens, tags=tag or ())
        text = translator.detokenize(tokens)
    attention.save(out, overwrite=overwrite)
    print(text)
