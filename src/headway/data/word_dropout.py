"""Word dropout: sources in which some words are missing (Iyyer et al. 2015; in translation Sennrich et al. 2016)."""

import random

import numpy as np
from numpy.typing import NDArray

from headway.data.tokenizer import Tokenizer
from headway.errors import ConfigError


class WordDropout:
    """Leaves out each word of a sentence with `probability`, all its tokens at once; one word stays at least.

    A word begins with a blank. Where no token spells one, as in a vocabulary of words, every token is a word.
    """

    def __init__(self, tokenizer: Tokenizer, probability: float) -> None:
        if not 0.0 <= probability < 1.0:
            raise ConfigError(f"data.word_dropout: {probability} is not a probability below 1; try 0.1")
        self.probability = probability
        spelled = [tokenizer.spelling(token) for token in range(tokenizer.size)]
        self._blank = np.array([text.isspace() for text in spelled])
        leading = np.array([text[:1].isspace() for text in spelled])
        self._leading = leading if leading.any() else ~leading
        self._tags = list(tokenizer.tags.values())

    def __call__(self, ids: NDArray[np.int64], chance: random.Random) -> NDArray[np.int64]:
        """What is left of a sentence; tags, which stand before it, stay."""
        tags = int(np.isin(ids, self._tags).sum()) if self._tags else 0
        text = ids[tags:]
        if not len(text) or not self.probability:
            return ids
        words = self.words(text)
        kept = np.array([chance.random() >= self.probability for _ in range(int(words[-1]) + 1)])
        if not kept.any():
            kept[chance.randrange(len(kept))] = True
        return np.concatenate([ids[:tags], text[kept[words]]])

    def words(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the word that each token stands in, from 0; blanks at the end belong to the last."""
        begins, blank = self._leading[ids], self._blank[ids]
        begins[1:] &= ~blank[:-1]
        begins[len(ids) - int((~blank[::-1]).argmax()) :] = False
        begins[:1] = True
        counted: NDArray[np.int64] = begins.cumsum() - 1
        return counted
