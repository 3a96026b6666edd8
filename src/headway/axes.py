"""The one word for every tensor axis; a test holds each shape in the package to this list."""

AXES = {
    "batch": "sentences of a padded batch",
    "time": "positions of a sequence",
    "query": "positions that look",
    "key": "positions that are looked at",
    "tokens": "all tokens of a packed batch, one sentence after the other",
    "sentences": "sentences of a batch, however it is laid out",
    "bounds": "boundaries between packed sentences: one more than there are sentences",
    "heads": "attention heads",
    "width": "features of one head",
    "dim": "features of the model",
    "hidden": "features inside the feed-forward network",
    "vocabulary": "known tokens",
    "outputs": "features a matrix gives",
    "inputs": "features a matrix takes",
    "passes": "readings of the same batch, each with dropout of its own",
    "rows": "hypotheses decoded together: batch times beam",
    "beam": "hypotheses kept for one sentence",
    "candidates": "next tokens considered for a hypothesis or a sentence",
    "layers": "layers of a stack",
    "source": "positions of the source sentence",
    "target": "positions of the target sentence",
    "pairs": "sentence pairs of a corpus",
    "rest": "whatever axes follow, untouched",
    "shape": "any axes: the function works element by element",
}
"""Every axis word with what it counts."""
