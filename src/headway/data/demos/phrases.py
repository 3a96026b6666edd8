"""French to English, in the words and constructions of a small grammar written for Headway."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

from headway.data.demos.clauses import draw
from headway.data.demos.demo import Demo, Pair, divide

EXAMPLE = Pair("Jane visite l'Afrique en septembre", "Jane visits Africa in September")


def phrases(*, train: int = 30000, valid: int = 500, test: int = 1000, seed: int = 1) -> Demo:
    """Make the French-English demo; Jane's sentence is always the first of test, and part of no other sentence."""
    splits = divide("phrases", _unlike_example, example=EXAMPLE, train=train, valid=valid, test=test, seed=seed)
    return Demo(
        "phrases",
        *splits,
        example=EXAMPLE.source,
        baseline_name="word for word, each French word by the English word it most often goes with in train",
        baseline=_word_for_word(splits.train[:5000]),
    )


def _unlike_example(random: Random) -> Pair:
    """Draw a sentence that does not hold the example, as `Paul dit que Jane visite ...` would."""
    while EXAMPLE.source in (pair := draw(random)).source:
        pass
    return pair


def _words(text: str) -> list[str]:
    return text.lower().replace("'", "' ").split()


def _word_for_word(pairs: list[Pair]) -> Callable[[str], str]:
    """Translate each word by its best partner in `pairs` by Dice's coefficient; the dictionary is made on first use."""

    @cache
    def dictionary() -> dict[str, str]:
        source_counts: Counter[str] = Counter()
        target_counts: Counter[str] = Counter()
        together: Counter[tuple[str, str]] = Counter()
        for pair in pairs:
            source, target = set(_words(pair.source)), set(pair.target.split())
            source_counts.update(source)
            target_counts.update(target)
            together.update((word, other) for word in source for other in target)
        best: dict[str, tuple[float, str]] = {}
        for (word, other), count in together.items():
            score = (2 * count / (source_counts[word] + target_counts[other]), other)
            best[word] = max(best.get(word, score), score)
        return {word: other for word, (_, other) in best.items()}

    return lambda sentence: " ".join(dictionary().get(word, word) for word in _words(sentence))
