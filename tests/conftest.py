"""Every test runs with the shapes in signatures checked, on one thread, and Triton's kernels interpreted."""

import os
from pathlib import Path

from jaxtyping import install_import_hook

SOURCE = Path(__file__).parents[1] / "src"
checked = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in (SOURCE / "headway").rglob("*.py")
    if path.stem != "__init__" and "@triton.jit" not in path.read_text(encoding="utf-8")  # kernels are not Python
]
hook = install_import_hook(checked, "beartype.beartype")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # read when torch is loaded; processes of tests inherit it

import torch  # noqa: E402  # the hook must be in place before headway is imported

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

torch.set_num_threads(1)

import io  # noqa: E402  # as above
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402

import pytest  # noqa: E402

from sentences import SENTENCES  # noqa: E402


@dataclass(frozen=True)
class Outcome:
    """What a command gave: its exit code and its two streams."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The results, of a command that went well."""
        assert self.code == 0, self.err
        return self.out.removesuffix("\n").split("\n") if self.out else []

    @property
    def json(self) -> dict:
        """The one JSON object that is the result."""
        (line,) = self.lines
        return json.loads(line)

    @property
    def complaint(self) -> str:
        """The one line a refused command says, whatever progress it told before."""
        *before, last = self.err.splitlines()
        assert self.code == 2, (self.code, self.err)
        assert last.startswith("headway: "), self.err
        assert not any(line.startswith(("headway: ", "Traceback")) for line in before), self.err
        assert self.out == ""
        return last

    @property
    def only_complaint(self) -> str:
        """The one line a refused command says, with nothing before it."""
        assert len(self.err.splitlines()) == 1, self.err
        return self.complaint


@pytest.fixture
def headway(capsys, monkeypatch) -> Callable[..., Outcome]:
    """Runs a command in this process."""
    from headway.cli import main

    def run(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        return Outcome(int(stopped.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> Path:
    """A tiny model that was never trained, saved whole; not to be changed."""
    from headway.data.tokenizer import Tokenizer, TokenizerConfig
    from headway.models.transformer import Transformer, TransformerConfig
    from headway.search import DecodingConfig
    from headway.translator import Translator

    tokenizer = Tokenizer.train(SENTENCES, TokenizerConfig(vocabulary=300))
    config = TransformerConfig(dim=16, heads=2, hidden=16, encoder_layers=1, decoder_layers=1, longest=32)
    torch.manual_seed(3)
    model = Transformer(config, tokenizer.size, tokenizer.size).eval()
    folder = tmp_path_factory.mktemp("models") / "tiny"
    Translator(model, tokenizer, tokenizer, DecodingConfig(beam=2, longest=12)).save(folder, step=7)
    return folder


@pytest.fixture
def corpus(tmp_path) -> tuple[Path, Path]:
    """A parallel corpus of sixty lines, its target in capitals."""
    source, target = tmp_path / "train.source", tmp_path / "train.target"
    source.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    target.write_text("".join(f"{line.upper()}\n" for line in SENTENCES), encoding="utf-8")
    return source, target


TINY = {
    "tokenizer.vocabulary": 300, "model.dim": 16, "model.heads": 2, "model.hidden": 16, "model.encoder_layers": 1,
    "model.decoder_layers": 1, "model.longest": 64, "training.steps": 3, "training.batch_tokens": 256,
    "training.validation_sentences": 2, "training.samples": 0,
}  # fmt: skip
"""The settings of a run that takes no time."""


@pytest.fixture
def tiny() -> dict[str, object]:
    """The settings of a run that takes no time."""
    return dict(TINY)


@pytest.fixture
def train(headway, corpus, tmp_path) -> Callable[..., Outcome]:
    """Trains a tiny model on the corpus in `out`; settings may be added or replaced, options appended."""

    def run(*options: object, source: object = None, target: object = None, out: object = None, **settings: object):
        files = ["--source", source or corpus[0], "--target", target or corpus[1]]
        named = TINY | {name.replace("__", "."): value for name, value in settings.items()}
        sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
        return headway("train", *files, "--out", out or tmp_path / "run", "--device", "cpu", *sets, *options)

    return run
