"""What a model looked at in outputs that a search found, and the words that this links."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from headway import alignment
from headway.alignment import attentions, linked, word_alignments, written_words
from headway.data.alignment import words_of_tokens
from headway.data.batches import Batch
from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.engine import Engine
from headway.errors import ConfigError
from headway.models.transformer import Transformer, TransformerConfig
from headway.objectives import GuidedHead, GuidedLikelihood, decisive, guided_head
from headway.search import DecodingConfig, Hypothesis, Search
from headway.sequences import Sequences
from headway.translation import Translation
from headway.translator import Translator

TEXTS = ["le chat voit la pomme .", "un chien", "la reine garde tout le pain , Zoë", "tout", ""]
TOKENIZER = Tokenizer.train(TEXTS * 3, TokenizerConfig(vocabulary=290), ["en", "de"])


def built(seed=3, **settings):
    torch.manual_seed(seed)
    sizes = {"dim": 16, "heads": 2, "hidden": 16, "encoder_layers": 2, "decoder_layers": 3, "longest": 40}
    model = Transformer(TransformerConfig(**sizes | settings), TOKENIZER.size, TOKENIZER.size).eval()
    return Translator(model, TOKENIZER, TOKENIZER, DecodingConfig(beam=4, shortest_extra=3, longest=10))


WORDS = [f"word{number}" for number in range(10)]
WORD_TOKENIZER = Tokenizer.train(WORDS, TokenizerConfig(kind="words"))


def drawn(chance, count):
    return [chance.sample(WORDS, chance.randint(1, 4)) for _ in range(count)]


def reversing(sentences):
    """Sentences to be reversed, every word linked to where it came from."""
    tokenizer = WORD_TOKENIZER
    sources = tokenizer.encode([" ".join(words) for words in sentences])
    labels = Sequences.pad([[*source[::-1], tokenizer.end] for source in sources], tokenizer.padding)
    links = torch.zeros(len(sources), labels.longest, labels.longest, dtype=torch.bool)
    for row, source in enumerate(sources):
        for place in range(len(source)):
            links[row, len(source) - 1 - place, place] = True
    return Batch(
        Sequences.pad([[*source, tokenizer.end] for source in sources], tokenizer.padding),
        Sequences.pad([[tokenizer.start, *source[::-1]] for source in sources], tokenizer.padding),
        labels.tokens,
        int(labels.lengths.sum()),
        links,
    )


@pytest.fixture(scope="module")
def guided():
    """A model that reverses sentences, its first head taught where every word comes from."""
    torch.manual_seed(1)
    chance = random.Random(1)
    sizes = {"dim": 32, "heads": 4, "hidden": 64, "encoder_layers": 1, "decoder_layers": 1, "longest": 16}
    model = Transformer(TransformerConfig(**sizes, norm="pre", dropout=0.0), *[WORD_TOKENIZER.size] * 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=1.2e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1.2e-2, total_steps=110, pct_start=0.1)
    for step in range(110):
        loss = GuidedLikelihood(0.1, 4.0)(model, reversing(drawn(chance, 48)), step)
        (loss.total / loss.units).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    decoding = DecodingConfig(beam=2, long="split")
    return Translator(model.eval(), WORD_TOKENIZER, WORD_TOKENIZER, decoding, guided=guided_head(model.config))


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "groups": 2}, {"sample": True, "top_k": 2}], ids=str)
def test_a_guided_head_links_every_word_to_where_it_came_from(options, guided):
    sentences = drawn(random.Random(7), 100)
    answers = guided([" ".join(words) for words in sentences], **options)
    right = [
        (words, links)
        for words, answer, links in zip(sentences, answers, word_alignments(guided, answers), strict=True)
        if answer.split() == words[::-1]
    ]
    assert len(right) > 50
    for words, links in right:
        assert links == [(len(words) - 1 - place, place) for place in range(len(words))]


def test_the_mean_of_all_heads_is_another_choice_and_finds_most_links(guided):
    sentences = drawn(random.Random(7), 100)
    answers = guided([" ".join(words) for words in sentences])
    found = word_alignments(replace(guided, guided=None), answers)
    pairs = [
        (len(words) - 1 - target) == source
        for words, answer, links in zip(sentences, answers, found, strict=True)
        if answer.split() == words[::-1]
        for source, target in links
    ]
    assert sum(pairs) > 0.9 * len(pairs)
    assert found != word_alignments(guided, answers)


def test_the_taught_head_or_all_heads_of_the_last_two_layers_decide():
    model = built().model
    layers = tuple(torch.rand(2, model.config.heads, 4, 5) for _ in range(3))
    torch.testing.assert_close(decisive(layers, guided_head(model.config)), layers[1][:, 0])
    torch.testing.assert_close(decisive(layers, None), (layers[1].mean(1) + layers[2].mean(1)) / 2)
    torch.testing.assert_close(decisive(layers[:1], None), layers[0].mean(1))
    for missing in (GuidedHead(layer=3), GuidedHead(layer=0, head=2)):
        with pytest.raises(ConfigError, match="is said to be guided, and there is none"):
            decisive(layers, missing)


@pytest.mark.parametrize("head", [None, GuidedHead(layer=1, head=1)], ids=["untaught", "taught"])
def test_an_attention_pairs_tokens_as_words_are_linked(head):
    translator = replace(built(), guided=head)
    answer = translator(TEXTS[2])
    shown = answer.attention
    weights = decisive([torch.from_numpy(layer) for layer in shown.cross], head)
    assert shown.alignment() == [(int(row.argmax()), place) for place, row in enumerate(weights)]
    assert attentions(translator, [answer])[0].alignment() == shown.alignment()
    assert shown.guided == head
    linked_words = linked(
        weights.numpy()[:-1, :-1],
        words_of_tokens(translator.source, [TEXTS[2]])[0],
        written_words(translator.target, answer.hypotheses[0].tokens),
    )
    assert word_alignments(translator, [answer]) == [linked_words]
    assert (
        replace(translator, guided=None if head else GuidedHead(layer=1, head=1))(TEXTS[2]).attention.alignment()
        != shown.alignment()
    )


def test_words_of_passages_are_counted_through_the_whole_text(guided):
    chance = random.Random(9)
    words = [word for _ in range(12) for word in drawn(chance, 1)[0]]
    (answer,) = guided([" ".join(words)], beam=1)
    (links,) = word_alignments(guided, [answer])
    assert len(answer.passages) > 1
    inside = {
        (source + read, target + written)
        for passage, read, written in zip(
            answer.passages,
            np.cumsum([0, *(len(each.source.split()) for each in answer.passages)]),
            np.cumsum([0, *(len(each.split()) for each in answer.passages)]),
            strict=False,
        )
        for source, target in word_alignments(guided, [passage])[0]
    }
    assert links == sorted(inside, key=lambda link: link[::-1])
    assert max(target for _, target in links) > len(answer.passages[0].split())


def test_passages_that_meet_inside_a_word_share_it():
    translator = built()
    parts = [Translation(translator, text, [_hypothesis(text)]) for text in ("le cha", "t voit", "la")]
    whole = Translation.of_passages(translator, "le chat voit  la", parts, ["", "", "", ""])
    assert str(whole) == "le cha t voit la"
    (links,) = word_alignments(translator, [whole])
    assert [target for _, target in links] == [0, 1, 2, 3, 4]
    assert all(
        source in chosen for (source, _), chosen in zip(links, [(0, 1)] * 2 + [(1, 2)] * 2 + [(3,)], strict=True)
    )


def _hypothesis(text):
    return Hypothesis(tuple(TOKENIZER.encode([text])[0]), 0.0, 0.0, True, ())


def test_tokens_of_a_word_vote_together_and_what_is_no_word_has_no_vote():
    weights = np.array([[0.3, 0.3, 0.4, 0.0], [0.3, 0.3, 0.4, 0.0], [0.0, 0.1, 0.8, 0.1], [0.0, 0.1, 0.0, 0.9]])
    assert linked(weights, [0, 0, 1], [0, 0, 1]) == [(0, 0), (1, 1)]
    assert linked(weights, [0, 1, 2], [0, 0, 1]) == [(2, 0), (2, 1)]
    assert linked(weights, [-1, 0, 1], [0, -1, 1]) == [(1, 0), (1, 1)]
    assert linked(weights, [-1, -1, -1], [0, 1, 2]) == linked(weights, [0, 1, 2], [-1, -1]) == []


@pytest.mark.parametrize("text", ["le chat, voit", "Zoë 🎈🎈 garde", "日本 語", " x  y "])
def test_every_token_of_an_output_ends_in_a_word_however_the_text_was_divided(text):
    letters = [token for letter in text for token in TOKENIZER.encode([letter])[0]]
    for tokens in (TOKENIZER.encode([text])[0], letters):
        words = written_words(TOKENIZER, tokens)
        assert len(words) == len(tokens)
        assert sorted({word for word in words if word >= 0}) == list(range(len(TOKENIZER.decode(tokens).split())))
        assert [word for word in words if word >= 0] == sorted(word for word in words if word >= 0)


def test_symbols_that_write_nothing_stand_in_no_word():
    (tokens,) = WORD_TOKENIZER.encode(["word1 nonsense word2"])
    assert written_words(WORD_TOKENIZER, tokens) == [0, -1, 1]


def test_links_lead_from_words_of_the_source_to_words_of_the_output():
    translator = built()
    answers = translator(TEXTS, tags=["en"])
    for answer, links in zip(answers, word_alignments(translator, answers), strict=True):
        assert [target for _, target in links] == list(range(len(answer.split())))
        assert all(0 <= source < len(answer.source.split()) for source, _ in links)
    assert word_alignments(translator, []) == []


def test_a_source_that_was_cut_has_links_to_its_beginning():
    translator = built()
    (answer,) = translator(["chat " * 200], long="truncate")
    (links,) = word_alignments(translator, [answer])
    assert answer.cut and links
    assert max(source for source, _ in links) < 40


@pytest.mark.parametrize("room", [1, 1 << 17])
def test_attention_read_in_batches_is_that_of_each_translation(room, monkeypatch):
    monkeypatch.setattr(alignment, "WEIGHTS", room)
    translator = built()
    answers = [*translator(TEXTS, tags=["de"]), *translator(TEXTS[:2])]
    for found, answer in zip(attentions(translator, answers), answers, strict=True):
        wanted = answer.attention
        assert (found.source, found.target_in, found.target_out) == (wanted.source, wanted.target_in, wanted.target_out)
        assert (found.translation, found.sentence) == (wanted.translation, wanted.sentence)
        for kind in ("encoder", "decoder", "cross"):
            np.testing.assert_allclose(found.weights(kind), wanted.weights(kind), atol=1e-6)


class Watched:
    """A model that keeps what every step of a search had read of the source."""

    def __init__(self, model):
        self.model, self.read = model, []

    def step(self, tokens, parents, state):
        log_probabilities, after = self.model.step(tokens, parents, state)
        self.read.append(after.coverage)
        return log_probabilities, after

    def keep(self, state, sentences):
        return self.model.keep(state, sentences)

    def unread(self, state):
        return self.model.unread(state)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "alibi"])
def test_attention_read_afterwards_is_what_the_search_saw_step_by_step(positions):
    translator = built(positions=positions)
    config = translator.decoding.model_copy(update={"coverage_penalty": 0.2})
    requests = [translator.request(ids) for ids in translator.tokenize(TEXTS[:4])]
    watched = Watched(translator.model)
    _, state = Engine(translator.model, translator.symbols)._stepper(requests, config)
    search = Search(watched, state, requests, config, translator.symbols)
    with torch.inference_mode():
        while search.live:
            search.advance()
    moved = 0
    for sentence, (best, *_) in enumerate(search.answers()):
        translation = Translation(translator, TEXTS[sentence], [best])
        (found,) = attentions(translator, [translation])
        seen, crossed = _seen(search, watched, sentence, best, found.cross.shape[-1])
        moved += crossed
        np.testing.assert_allclose(seen, found.cross[-1].mean(0), atol=1e-5)
    assert moved  # the winner was not always in one row, or nothing would follow it


def _seen(search, watched, sentence, best, width):
    """What each step of the winning path read, by the rows it went through, and how often it changed rows."""
    (found,) = [
        parts[0].keep((sentences == sentence).nonzero()[:, 0])
        for sentences, parts in search.left
        if sentence in sentences.tolist()
    ]
    place = int(found.scores[0].argmax())
    length, row = int(found.lengths[0, place]), int(found.rows[0, place])
    assert length == len(best.tokens)
    totals, changes = [], 0
    for time in range(length, -1, -1):
        line = search.records.lines[time].tolist().index(sentence)
        totals.append(watched.read[time][line, row, :width])
        if time:
            line = search.records.lines[time - 1].tolist().index(sentence)
            parent = int(search.records.steps[time - 1].parents[line, row])
            row, changes = parent, changes + (parent != row)
    totals = torch.stack([torch.zeros_like(totals[0]), *totals[::-1]])
    return totals.diff(dim=0).numpy(), changes
