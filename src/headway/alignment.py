"""What a model looked at in outputs that any search found, and the words that this links.

Outputs are read once more by teacher forcing, in batches: the weights belong to the output that was returned, and a
search need not keep any.
"""

from collections.abc import Sequence
from itertools import pairwise
from os.path import commonprefix

import numpy as np
import torch
from jaxtyping import Float

from headway.data.alignment import words_of_tokens
from headway.data.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.inspection import Attention
from headway.models.model import autoregressive
from headway.objectives import decisive
from headway.scoring import Tokens, batches, padded
from headway.translation import Translation
from headway.translator import END, START, Translator

WEIGHTS = 1 << 17
"""Cells of one head's weights held in one batch; every layer and head has as many."""

Links = list[tuple[int, int]]
"""Numbers of a source and a target word, from 0, in the order of target words."""


def word_alignments(translator: Translator, translations: Sequence[Translation]) -> list[Links]:
    """For every translation, each target word with the source word the model looked at most while writing it.

    Words are what white space divides. The tokens of a word vote by their summed weights, see `decisive`; start and end
    symbols, tags and blanks have no vote and get none. A source that was cut has links to its beginning only, and the
    words of one that was read in passages are counted through.
    """
    parts = [each.passages or (each,) for each in translations]
    found = iter(_links(translator, [part for each in parts for part in each]))
    return [
        _counted_through(whole, [next(found) for _ in each]) for whole, each in zip(translations, parts, strict=True)
    ]


def _links(translator: Translator, translations: Sequence[Translation]) -> list[Links]:
    """The links of translations that were read in one piece."""
    pairs = _tokens(translator, translations)
    sources = words_of_tokens(translator.source, [each.source for each in translations])
    links: list[Links] = [[] for _ in translations]
    for batch in batches(pairs, WEIGHTS, squared=True):
        chosen = [pairs[index] for index in batch]
        for index, weights in zip(batch, _decisive_weights(translator, chosen), strict=True):
            tags = [-1] * len(translations[index].tags)
            words = [*tags, *sources[index]][: len(pairs[index][0])]
            links[index] = linked(weights, words, written_words(translator.target, pairs[index][1]))
    return links


def _counted_through(whole: Translation, links: list[Links]) -> Links:
    """The links of all passages, their words counted from the beginning of the whole; a word may be in two of them."""
    if not whole.passages:
        return links[0]
    counted, read, written = set(), 0, 0
    for passage, own in zip(whole.passages, links, strict=True):
        read, written = whole.source.index(passage.source, read), whole.index(passage, written)
        first = [len(text[: place + 1].split()) - 1 for text, place in ((whole.source, read), (whole, written))]
        counted |= {(first[0] + source, first[1] + target) for source, target in own}
        read, written = read + len(passage.source), written + len(passage)
    return sorted(counted, key=lambda link: link[::-1])


def linked(weights: Float[np.ndarray, "target source"], sources: list[int], targets: list[int]) -> Links:
    """The links of one sentence, given the word of every token; -1 for one that stands in none."""
    read, made = np.array(sources, dtype=np.int64), np.array(targets, dtype=np.int64)
    reads, makes = (read >= 0).nonzero()[0], (made >= 0).nonzero()[0]
    if not len(reads) or not len(makes):
        return []
    votes = np.zeros((made.max() + 1, read.max() + 1))
    np.add.at(votes, (made[makes][:, None], read[reads][None]), weights[np.ix_(makes, reads)])
    return [(int(votes[word].argmax()), int(word)) for word in np.unique(made[makes])]


def written_words(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[int]:
    """The number of the word that each token of an output ends in; -1 for blanks and what writes nothing.

    An output need not be how the tokenizer would divide its text, so that each token is placed by what it adds.
    """
    texts = pairwise(_beginnings(tokenizer, tokens))
    return [len(after.split()) - 1 if after != before and not after[-1:].isspace() else -1 for before, after in texts]


def attentions(translator: Translator, translations: Sequence[Translation]) -> list[Attention]:
    """The weights of every layer and head with which each translation was read and written, in order.

    Of one that was read in passages, those of the first.
    """
    translations = [each.passages[0] if each.passages else each for each in translations]
    pairs = _tokens(translator, translations)
    found: dict[int, Attention] = {}
    for index, pair in enumerate(pairs):
        if not max(map(len, pair)):  # a blank one has its two symbols
            found[index] = translations[index].attention
    for batch in batches(pairs, WEIGHTS, squared=True):
        read = _all_weights(translator, [pairs[index] for index in batch])
        for index, weights in zip(batch, read, strict=True):
            found[index] = _shown(translator, translations[index], pairs[index], weights)
    return [found[index] for index in range(len(translations))]


def _tokens(translator: Translator, translations: Sequence[Translation]) -> list[Tokens]:
    """The ids of every source, as far as it was read, and of every output."""
    sources = translator.source.encode([each.source for each in translations])
    outputs = [each.hypotheses[0].tokens if each.hypotheses else () for each in translations]
    return [
        ([*translator.source.tagged(each.tags), *ids][: translator.longest] if each.source.strip() else [], tokens)
        for each, ids, tokens in zip(translations, sources, outputs, strict=True)
    ]


@torch.inference_mode()
def _decisive_weights(translator: Translator, pairs: Sequence[Tokens]) -> Float[np.ndarray, "batch target source"]:
    source, given = padded(translator, pairs)
    model = autoregressive(translator.model, "alignment")
    decoded = model.decode(given, model.encode(source), need_weights=True)
    if not decoded.cross_weights:
        raise ConfigError("alignment: this model has no attention to the source; use one that has")
    return decisive(decoded.cross_weights, translator.guided).float().cpu().numpy()


Kinds = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Encoder, decoder and cross attention of one pair, each of layers, heads, queries and keys."""


@torch.inference_mode()
def _all_weights(translator: Translator, pairs: Sequence[Tokens]) -> list[Kinds]:
    source, given = padded(translator, pairs)
    model = autoregressive(translator.model, "attention")
    encoded = model.encode(source, need_weights=True)
    decoded = model.decode(given, encoded, need_weights=True)
    sizes = (source.longest, source.longest), (given.longest, given.longest), (given.longest, source.longest)
    weights = encoded.weights, decoded.self_weights, decoded.cross_weights
    kinds = [
        torch.stack(each, 1).float().cpu().numpy() if each else np.zeros((len(pairs), 0, 0, *size), dtype=np.float32)
        for each, size in zip(weights, sizes, strict=True)
    ]
    found = []
    for row, (read, made) in enumerate(pairs):
        sources, targets = len(read) + 1, len(made) + 1
        sizes = (sources, sources), (targets, targets), (targets, sources)
        encoder, decoder, cross = (
            kind[row, :, :, :queries, :keys].copy() for kind, (queries, keys) in zip(kinds, sizes, strict=True)
        )
        found.append((encoder, decoder, cross))
    return found


def _shown(translator: Translator, translation: Translation, pair: Tokens, weights: Kinds) -> Attention:
    tags = [f"⟨{tag}⟩" for tag in translation.tags]
    pieces = [*tags, *(piece for _, piece in translator.source.pieces(translation.source))][: len(pair[0])]
    texts = pairwise(_beginnings(translator.target, pair[1]))
    written = [after[len(commonprefix((before, after))) :] or "·" for before, after in texts]  # noqa: RUF071  # characters
    encoder, decoder, cross = weights
    return Attention(
        source=(*pieces, END),
        target_in=(START, *written),
        target_out=(*written, END),
        encoder=encoder,
        decoder=decoder,
        cross=cross,
        translation=str(translation),
        sentence=translation.source,
        guided=translator.guided,
    )


def _beginnings(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """The text of no token, of the first, of the first two, and so on."""
    return [tokenizer.decode(tokens[:count]) for count in range(len(tokens) + 1)]
