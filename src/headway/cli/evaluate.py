"""`headway evaluate`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headway.cli.options import EngineOptions
from headway.disk import leads_to_folder
from headway.errors import ConfigError


def command(
    system: Path | None = None,
    /,
    *,
    reference: Path,
    source: Path | None = None,
    compare: tuple[Path, Path] | None = None,
    tokenized: Annotated[bool, Parameter(negative="")] = False,
    beam: int | None = None,
    length_penalty: float | None = None,
    tag: Annotated[list[str] | None, Parameter(negative="")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    engine: EngineOptions = EngineOptions(),  # noqa: B008  # frozen
) -> None:
    """Score a model, or outputs in a file, by sacreBLEU and chrF with signatures; or compare two.

    Parameters
    ----------
    system
        A model folder, a run folder, or a file of outputs, one a line.
    reference
        The right outputs, one a line.
    source
        What a model is to translate.
    compare
        Two systems A and B instead of one: paired bootstrap over the same references.
    tokenized
        The text is tokenised already: BLEU that splits at blanks alone comes first.
    beam
        Hypotheses kept for every sentence.
    length_penalty
        How much longer outputs are favoured.
    tag
        A tag put before every source, as the model was trained with; may be repeated.
    json_
        Print one JSON object.
    """
    if (system is None) == (compare is None):
        raise ConfigError("give one SYSTEM, or --compare A B")
    if compare is not None and tokenized:
        raise ConfigError("--tokenized: --compare has one BLEU only, sacreBLEU's usual one; leave the option out")
    from headway.data.text import read_lines
    from headway.evaluation import compare as compared
    from headway.evaluation import score

    given = {"beam": beam, "length_penalty": length_penalty, "tags": tag}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    references = list(read_lines(reference))
    systems = [system] if system is not None else list(compare or ())
    outputs = [_outputs(each, source, options, engine) for each in systems]
    if (options or engine != EngineOptions()) and not any(map(leads_to_folder, systems)):
        raise ConfigError(
            f"{systems[0]}: is a file of outputs; leave out --beam, --device and all else that a model has"
        )
    found = (
        score(outputs[0], references, tokenized=tokenized)
        if compare is None
        else compared(outputs[0], outputs[1], references)
    )
    print(json.dumps(found.to_json(), ensure_ascii=False) if json_ else "\n".join(found.lines()))


def _outputs(system: Path, source: Path | None, options: dict[str, Any], engine: EngineOptions) -> list[str]:
    from headway.data.text import read_lines

    if not leads_to_folder(system):
        return list(read_lines(system))
    if source is None:
        raise ConfigError(f"{system}: is a model; give the text it is to translate by --source")
    translator = engine.load(system, lambda line: print(f"headway: warning: {line}", file=sys.stderr))
    return [str(text) for text in translator(list(read_lines(source)), **options)]
