"""Models on disk: a model folder that is whole, or the checkpoint of a run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError

from headway.config import Settings, located, read_toml, validated
from headway.data.tokenizer import Tokenizer
from headway.disk import leads_to_folder, plain_file
from headway.errors import FolderError
from headway.folders import replace_folder, verify_folder, write_folder
from headway.models.catalog import CATALOG, AnyModelConfig, read_model_config
from headway.models.model import Model, ModelConfig
from headway.objectives import GuidedHead, guided_head
from headway.search import DecodingConfig
from headway.training.checkpoint import load_parameters, parameters, read_tensors, write_tensors

LARGEST_CONFIG = 1 << 20
"""Bytes of a configuration; a larger one is refused before it is parsed."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model")


class Card(Settings):
    """What a model folder says of itself in `config.json`."""

    headway: str
    """The version that wrote it."""
    model: AnyModelConfig
    """The shape of the model."""
    source_vocabulary: int
    """Tokens of the source tokenizer."""
    target_vocabulary: int
    """Tokens of the target tokenizer."""
    joint: bool
    """Both sides share one tokenizer."""
    tokenizer: str
    """The name of the tokenizer file."""
    decoding: DecodingConfig = DecodingConfig()
    """How to decode unless told otherwise."""
    scores: dict[str, float] = Field(default_factory=dict)
    """What the model reached on its validation set."""
    guided: GuidedHead | None = None
    """The head of cross attention that was taught which words translate which, where one was."""


@dataclass(frozen=True)
class Saved:
    """A model with all it needs."""

    model: Model
    source: Tokenizer
    target: Tokenizer
    decoding: DecodingConfig
    guided: GuidedHead | None = None
    """The head of cross attention that was taught which words translate which, where one was."""


def model_folder(folder: Path) -> Path:
    """The model folder itself, where a run folder may be given."""
    return folder / "best" if leads_to_folder(folder / "best") else folder


def read_saved(folder: Path, device: str | torch.device) -> Saved:
    """Read a model folder, the `best` model of a run folder, or a checkpoint of a run, `RUN/checkpoints/step-N`.

    Of a checkpoint the moving average of the weights is taken, where the run kept one. Nothing is ever executed.
    """
    path = model_folder(folder)
    manifest = verify_folder(path)
    read = _checkpoint if manifest.get("kind") == "checkpoint" else _model_folder
    return read(path, manifest, device)


def write_saved(
    folder: Path,
    saved: Saved,
    *,
    version: str,
    scores: Mapping[str, float],
    readme: str = "",
    step: int | None = None,
    replace: bool = False,
) -> None:
    """Write a model folder: weights, configuration, tokenizers, model card and manifest."""
    card = Card(
        headway=version,
        model=saved.model.config,
        source_vocabulary=saved.source.size,
        target_vocabulary=saved.target.size,
        joint=saved.source is saved.target,
        tokenizer=saved.source.file_name,
        decoding=saved.decoding,
        scores=dict(scores),
        guided=saved.guided,
    )

    def fill(aside: Path) -> None:
        (aside / "config.json").write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
        write_tensors(aside / "model.safetensors", parameters(saved.model))
        for tokenizer, name in zip((saved.source, saved.target), _tokenizer_names(card), strict=True):
            tokenizer.save(aside / name)
        (aside / "README.md").write_text(readme or "# A Headway model\n", encoding="utf-8")

    write = replace_folder if replace else write_folder
    write(folder, fill, {"kind": "model", "step": step})


def _model_folder(path: Path, manifest: Mapping[str, Any], device: str | torch.device) -> Saved:
    card = _card(path)
    names = _tokenizer_names(card)
    unsealed = {"config.json", "model.safetensors", *names} - manifest["files"].keys()
    if unsealed:
        raise FolderError(f"{path}: its manifest does not name {', '.join(sorted(unsealed))}; use another copy")
    source = Tokenizer.load(path / names[0])
    target = source if card.joint else Tokenizer.load(path / names[1])
    sizes = card.source_vocabulary, card.target_vocabulary
    for tokenizer, size, name in zip((source, target), sizes, names, strict=True):
        if tokenizer.size != size:
            raise FolderError(
                f"{path / name}: {tokenizer.size} tokens, the model has {size}; they do not belong together"
            )
    model = _model(path / "model.safetensors", path / "config.json", card.model, sizes)
    return Saved(model.to(device), source, target, card.decoding, card.guided)


def _checkpoint(path: Path, manifest: Mapping[str, Any], device: str | torch.device) -> Saved:
    run = path.absolute().parent.parent
    config = run / "config.toml"
    if not plain_file(config) or config.stat().st_size > LARGEST_CONFIG:
        raise FolderError(f"{path}: a checkpoint away from its run; give RUN/checkpoints/step-N in the run folder")
    tree = read_toml(config)
    source, target = _run_tokenizers(run / "data")
    if manifest.get("data") != [source.fingerprint(), target.fingerprint()]:
        raise FolderError(f"{path}: its tokenizers are not those in {run / 'data'}; it belongs to another run")
    weights = "average.safetensors" if "average.safetensors" in manifest["files"] else "model.safetensors"
    if weights not in manifest["files"]:
        raise FolderError(f"{path}: its manifest does not name {weights}; use another checkpoint")
    shape = read_model_config(tree.get("model", {}), f"{config}: model")
    model = _model(path / weights, config, shape, (source.size, target.size))
    decoding = validated(DecodingConfig, tree.get("decoding", {}), f"{config}: decoding")
    training = tree.get("training")
    guided = isinstance(training, dict) and training.get("guided_alignment")
    return Saved(model.to(device), source, target, decoding, guided_head(shape) if guided else None)


def _run_tokenizers(data: Path) -> tuple[Tokenizer, Tokenizer]:
    for name in TOKENIZERS:
        if (data / name).is_file():
            joint = Tokenizer.load(data / name)
            return joint, joint
        if (data / f"source.{name}").is_file():
            return Tokenizer.load(data / f"source.{name}"), Tokenizer.load(data / f"target.{name}")
    raise FolderError(f"{data}: holds no tokenizer; the run was never prepared")


def _card(path: Path) -> Card:
    config = path / "config.json"
    if not plain_file(config) or config.stat().st_size > LARGEST_CONFIG:
        raise FolderError(f"{config}: missing or too large; this is not a Headway model folder")
    try:
        tree = json.loads(config.read_bytes())
        return Card.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(located(Card, [str(part) for part in problem["loc"]])[0])[:80] or "config"
        raise FolderError(f"{config}: {name}: {problem['msg']}; use another copy of the folder") from None
    except (ValueError, RecursionError):
        raise FolderError(f"{config}: not valid JSON; use another copy of the folder") from None


def _tokenizer_names(card: Card) -> tuple[str, str]:
    """The two files of the tokenizers; never a path that the folder chose."""
    if card.tokenizer not in TOKENIZERS:
        raise FolderError(f"config.json: {card.tokenizer!r} is not a tokenizer file; it is tokenizer.json or .model")
    if card.joint:
        return card.tokenizer, card.tokenizer
    return f"source.{card.tokenizer}", f"target.{card.tokenizer}"


def _model(weights: Path, config: Path, shape: ModelConfig, sizes: tuple[int, int]) -> Model:
    """The model with the weights of a file, which must be as large as `config` says before memory is taken."""
    _, architecture = CATALOG[shape.architecture]
    held = weights.stat().st_size
    if held < 4 * shape.fewest_parameters(sizes[1]):
        told = f"{held} bytes cannot be the weights that {config.name} describes"
        raise FolderError(f"{weights}: {told}; use another copy")
    try:
        model = architecture(shape, *sizes)
    except ValueError as error:
        raise FolderError(f"{config}: {error}; use another copy of the folder") from None
    needed = 4 * sum(weight.numel() for weight in model.parameters())
    if not needed <= held <= needed + (16 << 20):  # names and shapes take far less than 16 MiB
        raise FolderError(f"{weights}: {held} bytes, the model of {config.name} has {needed}; use another copy")
    load_parameters(model, read_tensors(weights), str(weights))
    return model.eval()
