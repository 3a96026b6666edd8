"""How outputs are scored, and what can be had without a model."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks import Sample

from headway.evaluation import rouge, token_error_rate

Scores = dict[str, float]
Outputs = Sequence[Sequence[str]]
"""For every source what was found, best first."""
Baseline = Callable[[Sequence[str]], list[str]]
"""Outputs for sources, by no model."""

LETTERS_OFF = 2
"""Edits within which a dictionary is searched for the nearest word."""
MOST_WORDS = 12
"""First words tried as a subject at most."""


@dataclass(frozen=True)
class Material:
    """What scoring and baselines may know."""

    training: list[tuple[str, str]]
    validation: Sample
    dictionary: frozenset[str] = frozenset()
    """Every right word of the task, those of the test set among them."""


def tokenised_bleu(outputs: Outputs, sample: Sample, _: Material) -> Scores:
    """BLEU that splits at blanks alone, and chrF."""
    return _bleu(outputs, sample, "none")


def bleu(outputs: Outputs, sample: Sample, _: Material) -> Scores:
    """The usual BLEU of sacreBLEU, and chrF."""
    return _bleu(outputs, sample, "13a")


def _bleu(outputs: Outputs, sample: Sample, tokenize: str) -> Scores:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    best = [first for first, *_ in outputs]
    measured = {"BLEU": BLEU(tokenize=tokenize, force=True), "chrF": CHRF()}
    return {name: metric.corpus_score(best, sample.lists).score for name, metric in measured.items()}


def exact(outputs: Outputs, sample: Sample, _: Material) -> Scores:
    """Per cent of outputs that equal one of their references."""
    right = sum(best in choices for (best, *_), choices in zip(outputs, sample.references, strict=True))
    return {"exact match": 100 * right / len(outputs)}


def phonemes(outputs: Outputs, sample: Sample, material: Material) -> Scores:
    """Per cent of words with any error, and errors to a hundred phonemes; any of several pronunciations is right."""
    best = [first for first, *_ in outputs]
    words = 100 - exact(outputs, sample, material)["exact match"]
    return {"word error rate": words, "phoneme error rate": token_error_rate(best, sample.lists)}


def spelling(outputs: Outputs, sample: Sample, material: Material) -> Scores:
    """Exact matches, and those of the best output that is in the dictionary; where none is, the best one."""
    known = [[next((word for word in found if word in material.dictionary), found[0])] for found in outputs]
    return exact(outputs, sample, material) | {
        "exact match with the dictionary": exact(known, sample, material)["exact match"]
    }


def summary(outputs: Outputs, sample: Sample, _: Material) -> Scores:
    """ROUGE-1, ROUGE-2 and ROUGE-L."""
    return rouge([first for first, *_ in outputs], sample.lists)


def copied(_: Material) -> Baseline:
    """The source as it is."""
    return list


def lemmas(_: Material) -> Baseline:
    """The lemma without the features before it, which are the words of more than one letter."""
    return lambda sources: [" ".join(word for word in source.split() if len(word) == 1) for source in sources]


def letter_by_letter(material: Material) -> Baseline:
    """Every letter as the phoneme it has most often in the training words that have as many phonemes as letters."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for source, target in material.training:
        if len(source.split()) == len(target.split()):
            for letter, phoneme in zip(source.split(), target.split(), strict=True):
                counts[letter][phoneme] += 1
    usual = {letter: found.most_common(1)[0][0] for letter, found in counts.items()}
    return lambda sources: [" ".join(usual[each] for each in source.split() if each in usual) for source in sources]


def nearest_words(material: Material) -> Baseline:
    """The word of the dictionary that takes the fewest edits, swapped neighbours being one; of two the one as long."""
    index: defaultdict[str, list[str]] = defaultdict(list)
    for word in sorted(material.dictionary):
        for shorter in _shortened(word):
            index[shorter].append(word)

    def nearest(source: str) -> str:
        near = {word for shorter in _shortened(source) for word in index.get(shorter, ())}
        ranked = ((typing_errors(source, word), abs(len(word) - len(source)), word) for word in near)
        return min(ranked, default=(0, 0, source))[2]

    return lambda sources: list(map(nearest, sources))


def _shortened(word: str) -> set[str]:
    """The word with up to two letters left out: two words that are near have one of these in common."""
    found = newest = {word}
    for _ in range(LETTERS_OFF):
        newest = {each[:place] + each[place + 1 :] for each in newest for place in range(len(each))}
        found = found | newest
    return found


def typing_errors(one: str, other: str) -> int:
    """Letters inserted, left out, replaced or swapped with their neighbour (Damerau 1964)."""
    earlier, before = [0] * (len(other) + 1), list(range(len(other) + 1))
    for place, letter in enumerate(one):
        row = [place + 1]
        for number, wanted in enumerate(other):
            cost = min(before[number + 1] + 1, row[-1] + 1, before[number] + (letter != wanted))
            if place and number and letter == other[number - 1] and one[place - 1] == wanted:
                cost = min(cost, earlier[number - 1] + 1)
            row.append(cost)
        earlier, before = before, row
    return before[-1]


def same_words(material: Material) -> Baseline:
    """What was right for the first training source that has the same words in some order; nothing if none has."""
    known: dict[tuple[str, ...], str] = {}
    for source, target in material.training:
        known.setdefault(tuple(sorted(source.split())), target)
    return lambda sources: [known.get(tuple(sorted(source.split())), "") for source in sources]


def first_words(material: Material) -> Baseline:
    """As many first words of the source as have the highest ROUGE-L on the validation set."""
    validation = material.validation

    def worth(count: int) -> float:
        return rouge(begun(validation.sources, count), validation.lists)["ROUGE-L"]

    best = max(range(1, MOST_WORDS + 1), key=worth)
    return lambda sources: begun(sources, best)


def begun(sources: Sequence[str], count: int) -> list[str]:
    """So many first words of each."""
    return [" ".join(source.split()[:count]) for source in sources]


MEASURES: dict[str, Callable[[Outputs, Sample, Material], Scores]] = {
    "tokenised BLEU": tokenised_bleu,
    "BLEU": bleu,
    "exact": exact,
    "phonemes": phonemes,
    "spelling": spelling,
    "ROUGE": summary,
}
BASELINES: dict[str, Callable[[Material], Baseline]] = {
    "copy": copied,
    "lemma": lemmas,
    "letters": letter_by_letter,
    "nearest word": nearest_words,
    "same words": same_words,
    "first words": first_words,
}
