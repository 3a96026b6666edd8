"""`headway distill`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headway.cli.options import Time
from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.models.model import ModelConfig
    from headway.translator import Translator


def command(
    teacher: Path,
    /,
    *,
    source: Path,
    out: Path,
    target: Path | None = None,
    keep_original: Annotated[bool, Parameter(negative="")] = False,
    beam: int | None = None,
    time: Time = None,
    device: str | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
) -> None:
    """Train a small model on the outputs of a large one (sequence-level distillation, Kim and Rush 2016).

    The teacher translates the source; the student, a size smaller and with the teacher's vocabulary unless --set says
    otherwise, learns from the pairs. A student of another architecture, as in --set model.architecture=fertility, has
    the teacher's sizes. After a stop or a kill the same command goes on, with --resume once training has begun.

    Parameters
    ----------
    teacher
        A model folder or a run folder.
    source
        Text for the teacher, a sentence a line; or both sides in one .tsv, .jsonl or .parquet.
    out
        The run folder to create: translations, pairs and the student.
    target
        The true translation of the source, line by line; needed for --keep-original only.
    keep_original
        Train on the true pairs too.
    beam
        Hypotheses the teacher keeps for every sentence; 1 is greedy and fast.
    time
        A wall-clock budget for the student's training, such as 90s, 30m or 2h.
    device
        cpu, cuda or cuda:N; the best there is by default.
    resume
        Go on with the student's training where it stopped.
    set_
        Any setting of the student's recipe, as in --set model.preset=tiny; may be repeated.
    """
    from headway.assemble import choose_device
    from headway.cli.synthetic import Run
    from headway.cli.terminal import Terminal
    from headway.data.pairs import Files, read_pairs, read_sources
    from headway.synthesis import translations

    files = Files(source, target)
    if keep_original and target is None and not files.one_file:
        raise ConfigError("--keep-original: the true translations are not known; give them by --target")
    run = Run(out, choose_device(device), resume=resume, time=time, settings=set_ or ())
    if run.begun:
        return run.go_on()
    model = run.load(teacher, beam)
    student = _student(model, teacher, run.given)
    recipe = run.recipe(student, out)
    work = translations(model, teacher, files.paths, lambda: read_sources(files), out / "translations")

    def pairs(counts: Counter[str]) -> Iterator[tuple[str, str]]:
        yield from work.pairs(counts)
        if keep_original:
            yield from ((pair.source, pair.target) for pair in read_pairs(files))

    with Terminal(recipe.training.log_every) as screen:
        run.rehearse(work, lambda folder: run.recipe(student, folder), screen)
        run.make(work, pairs, {"keep_original": keep_original}, screen)
        run.train(recipe, screen)
    return None


def _student(model: "Translator", teacher: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The recipe of the student as far as the teacher decides it and the user has not."""
    from headway.models.catalog import DEFAULT
    from headway.recipe import SIZES
    from headway.translator import model_folder

    shape: dict[str, Any] = {"longest": model.model.config.longest}
    chosen = given.get("model", {})
    if SIZES.isdisjoint(chosen):
        other = chosen.get("architecture", DEFAULT)
        config, vocabulary = model.model.config, model.target.size
        shape |= _smaller(config, vocabulary) if other == DEFAULT else _alike(config, str(other))
    tokenizer: dict[str, Any] = {}
    if model.source is not model.target:
        tokenizer = {"joint": False}
    elif {"kind", "vocabulary", "joint", "file"}.isdisjoint(given.get("tokenizer", {})):
        tokenizer = {"file": str((model_folder(teacher) / model.source.file_name).resolve())}
    return {"model": shape, "tokenizer": tokenizer}


def _alike(teacher: "ModelConfig", architecture: str) -> dict[str, Any]:
    """The sizes of the teacher, as far as a student of another architecture has them."""
    from headway.models.catalog import CATALOG
    from headway.recipe import SIZES

    known = CATALOG[architecture][0].model_fields if architecture in CATALOG else {}  # it is refused later
    wanted = (SIZES | {"dropout"}) - {"preset"}
    return {name: value for name, value in teacher.model_dump().items() if name in wanted and name in known}


def _smaller(teacher: "ModelConfig", vocabulary: int) -> dict[str, Any]:
    """The largest preset below the teacher's size; below the smallest one, half of its decoder and hidden layers."""
    from headway.models.layered import PRESETS
    from headway.models.transformer import TransformerConfig

    size = teacher.fewest_parameters(vocabulary)
    for preset in reversed(PRESETS):
        if TransformerConfig(preset=preset).fewest_parameters(vocabulary) < size:
            return {"preset": preset}
    if not isinstance(teacher, TransformerConfig):
        return {"preset": next(iter(PRESETS))}
    halved = {"hidden": max(1, teacher.hidden // 2), "decoder_layers": max(1, teacher.decoder_layers // 2)}
    same = ("dim", "heads", "encoder_layers", "dropout")
    return {name: getattr(teacher, name) for name in same} | halved
