"""A small hierarchical model learns which sentence of a document decides, and what most of them are about."""

import pytest
import torch

import toys
from headway.models.hierarchical import Hierarchical, HierarchicalConfig
from headway.sequences import Sequences

TOPICS, OTHERS, STOP, MARK = (3, 4, 5), range(6, 13), 13, 14
VOCABULARY = 15


def sentence(chance, words):
    """Some words in any order among others, and a full stop."""
    tokens = [*words, *chance.choices(OTHERS, k=chance.randint(0, 3))]
    chance.shuffle(tokens)
    return [*tokens, STOP]


def with_a_mark(chance, count):
    """Documents of sentences with a topic each, of which one is marked."""
    documents = []
    for _ in range(count):
        parts = [[chance.choice(TOPICS)] for _ in range(chance.randint(2, 4))]
        chance.choice(parts).append(MARK)
        documents.append([token for words in parts for token in sentence(chance, words)])
    return documents


def topic_of_the_marked(document):
    place = document.index(MARK)
    first = max((stop + 1 for stop in range(place) if document[stop] == STOP), default=0)
    return [next(token for token in document[first:] if token in TOPICS)]


def with_a_majority(chance, count):
    """Documents of sentences with a topic each, more than half of which have the same."""
    documents = []
    for _ in range(count):
        topic, half = chance.choice(TOPICS), chance.randint(1, 2)
        parts = [topic] * (half + 1) + [chance.choice(TOPICS) for _ in range(half)]
        chance.shuffle(parts)
        documents.append([token for word in parts for token in sentence(chance, [word])])
    return documents


def most_frequent_topic(document):
    return [max(TOPICS, key=document.count)]


def topics_in_order(document):
    return [token for token in document if token in TOPICS]


def taught(draw, task, context, seed, steps):
    torch.manual_seed(seed)
    config = HierarchicalConfig(dim=32, attention_hidden=32, longest=64, dropout=0.0, context=context)
    model = Hierarchical(config, VOCABULARY, VOCABULARY)
    model.prepare("." if token == STOP else "" for token in range(VOCABULARY))
    return toys.taught(model, draw, task, seed=seed, steps=steps, rate=8e-3)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("draw", "task", "context", "steps"),
    [
        (with_a_majority, most_frequent_topic, "document", 100),
        (with_a_mark, topic_of_the_marked, "words", 150),
        (with_a_majority, topics_in_order, "words", 150),
    ],
)
def test_a_tiny_hierarchical_model_learns_its_task(draw, task, context, steps, seed):
    model, chance = taught(draw, task, context, seed, steps)
    assert toys.accuracy(model, task, draw(chance, 200)) > 0.95


@pytest.mark.parametrize("seed", [1, 2])
def test_a_document_is_pooled_from_the_sentence_that_decides(seed):
    model, chance = taught(with_a_mark, topic_of_the_marked, "document", seed, 150)
    documents = with_a_mark(chance, 200)
    assert toys.accuracy(model, topic_of_the_marked, documents) > 0.95
    with torch.no_grad():
        found = model.encode(Sequences.pad([[*document, toys.END] for document in documents], toys.PADDING))
    shares = []
    for document, row, part in zip(documents, found.shares, found.hierarchy.part, strict=True):
        shares.append(row[part == part[document.index(MARK)]].sum())
    assert torch.stack(shares).mean() > 0.7
