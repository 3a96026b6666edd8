"""The settings of the corpus."""

from pathlib import Path

from pydantic import Field

from headway.config import Settings
from headway.data.cleaning import CleaningConfig
from headway.data.pairs import Files
from headway.data.text import Invalid


class DataConfig(Settings):
    """Which files to learn from; each is plain text, .tsv or .jsonl, any of them also .gz."""

    folder: Path = Path()
    """Where relative paths start."""
    source: Path
    """The training text, a sentence a line; or both sides in one .tsv or .jsonl."""
    target: Path | None = None
    """Its translation, line by line."""
    valid_source: Path | None = None
    """Text to validate on; unset: some pairs of the training text are held out."""
    valid_target: Path | None = None
    """Its translation."""
    test_source: Path | None = None
    """Text you will test on: training pairs that also stand there are counted and warned of."""
    test_target: Path | None = None
    """Its translation."""
    columns: tuple[int, int] = (1, 2)
    """Source and target column of a .tsv, from 1."""
    fields: tuple[str, str] = ("source", "target")
    """Source and target field of a .jsonl."""
    invalid: Invalid = "refuse"
    """What happens to lines that are not UTF-8: refuse the file, or skip and count them."""
    held_out: int = Field(1000, gt=0, le=100_000)
    """Pairs held out for validation at most, and never more than one in twenty."""
    cleaning: CleaningConfig = CleaningConfig()
    """Which pairs are left out."""
    source_vectors: Path | None = None
    """word2vec or GloVe vectors, text or binary, to start the source embedding from."""
    target_vectors: Path | None = None
    """The same for the target embedding."""

    def training(self) -> Files:
        """The files to train on."""
        return self._files(self.source, self.target)

    def validation(self) -> Files | None:
        """The files to validate on, if they are given."""
        return None if self.valid_source is None else self._files(self.valid_source, self.valid_target)

    def test(self) -> Files | None:
        """The files to test on, if they are given."""
        return None if self.test_source is None else self._files(self.test_source, self.test_target)

    def _files(self, source: Path, target: Path | None) -> Files:
        other = None if target is None else self.folder / target
        return Files(self.folder / source, other, self.columns, self.fields)
