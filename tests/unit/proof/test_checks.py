"""What the checks measure, and the sentences they measure by."""

import pytest
import torch
from torch import nn

from headway.data.tokenizer import Tokenizer, TokenizerConfig
from headway.errors import FolderError
from headway.proof import CHECKS, TOLERANCE, Subject, answers, look, naive, states, stored
from headway.proof.states import apart, embedded, sensitivity
from headway.proof.subject import made, ordinary
from headway.search import Hypothesis
from headway.sequences import Sequences
from headway.translator import load

LINES = ["le chat voit la pomme .", "un chien mange le pain .", "Zoë garde tout ."]


@pytest.fixture(scope="module")
def subject(model_folder):
    return Subject.of(model_folder, count=5)


@pytest.mark.parametrize("kind", ["bpe", "characters", "words"])
def test_sentences_made_from_a_vocabulary_come_back_and_have_many_lengths(kind):
    tokenizer = Tokenizer.train(LINES, TokenizerConfig(kind=kind, vocabulary=300))
    texts = made(tokenizer, 40, longest=31)
    assert len(texts) == 40
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(texts)] == texts
    assert len({len(ids) for ids in tokenizer.encode(texts)}) > 8
    assert made(tokenizer, 40, longest=31) == texts


def test_no_made_sentence_is_longer_than_the_model_knows(subject):
    assert len(subject.sentences) == 5
    assert max(map(len, subject.sentences)) <= subject.engine.longest == len(subject.longest)


def test_a_search_step_by_step_writes_no_more_than_the_model_knows(subject):
    endless = subject.config.model_copy(update={"longest": 500, "limit_extra": 500, "shortest_extra": 500})
    (answer,) = subject.together(subject.sentences[:1], endless)
    assert len(answer[0].tokens) == subject.engine.longest


def test_text_is_used_where_there_is_some_without_blank_lines(model_folder):
    subject = Subject.of(model_folder, ["", *LINES, " "], count=2)
    assert subject.lines == tuple(LINES[:2])
    assert subject.sentences == tuple(map(tuple, subject.translator.tokenize(LINES[:2])))


def test_control_symbols_are_not_ordinary(subject):
    own = subject.translator.target
    assert {own.padding, own.start, own.end, own.unknown}.isdisjoint(ordinary(own))


def test_a_tokenizer_may_change_spaces_and_capitals_but_lose_nothing():
    words = Tokenizer.train(LINES, TokenizerConfig(kind="words", vocabulary=300))
    assert stored.losses(words, ["le   chat", "un"]) == (0, 0)
    assert stored.losses(words, ["le loup"]) == (0, 1)
    assert stored.essence("Zo\u0308e  \ufb01n") == stored.essence("zöefin")
    assert stored.essence("été") != stored.essence("ete")


def test_answers_are_compared_token_by_token_and_scores_where_tokens_agree():
    def answer(tokens, score):
        return [Hypothesis(tokens, score, score, True, ())]

    wanted = [answer((1,), -1.0), answer((1, 2), -2.0), answer((3,), -3.0)]
    got = [answer((1,), -1.25), answer((1, 3), -9.0), answer((3,), -3.5)]
    assert answers.compared(wanted, got) == (0.5, {1})


def test_an_answer_that_differs_passes_only_where_the_twin_met_a_tie(subject, monkeypatch):
    monkeypatch.setattr(answers, "twin", lambda subject, sentence: naive.Answer([], TOLERANCE / 2))
    tied = answers._judged(subject, "", 0.0, {0, 1})
    assert tied.passed and "2 of 5 decided by rounding" in tied.figure
    monkeypatch.setattr(answers, "twin", lambda subject, sentence: naive.Answer([], 2 * TOLERANCE))
    assert answers._judged(subject, "", 0.0, {0}).passed is False
    assert answers._judged(subject, "", 2 * TOLERANCE, set()).passed is False


def test_rereading_gives_the_probability_of_every_token_and_the_end(subject):
    sentence, tokens = subject.sentences[0], (7, 9, 11)
    (parts,) = answers.reread(subject, [sentence], [tokens])
    predict = naive.recompute(subject.model, subject.ended([sentence])[0], subject.symbols)
    wanted = [predict([list(tokens[:place])])[0][token] for place, token in enumerate((*tokens, subject.symbols.end))]
    assert parts == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("wanted", "got", "far"),
    [([1.0, -torch.inf], [1.5, -torch.inf], 0.5), ([10.0], [11.0], 0.1), ([1.0], [torch.nan], torch.inf),
     ([-torch.inf], [0.0], torch.inf)],
)  # fmt: skip
def test_the_distance_is_relative_above_one_and_never_hides_what_is_no_number(wanted, got, far):
    assert apart(torch.tensor(wanted), torch.tensor(got)) == pytest.approx(far)


def test_gradients_by_tokens_are_zero_exactly_where_a_state_does_not_depend_on_them():
    class Sees(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(9, 4)
            self.norm = nn.LayerNorm(4)

        def forward(self, tokens):
            return self.norm(self.words(tokens).cumsum(1))

    model = Sees()
    vectors, states = embedded(model, lambda: model(torch.arange(6).view(2, 3)))
    (found,) = sensitivity(states[1, 1], [vectors])
    assert (found > 0).tolist() == [[False] * 3, [True, True, False]]
    assert model.words._forward_hooks == {}


def test_a_check_in_which_the_model_breaks_down_fails_and_says_how(subject, monkeypatch):
    def broken(subject):
        """Look."""
        raise ValueError("no\nway")

    monkeypatch.setitem(CHECKS, "cache", broken)
    assert look("cache", subject).figure == "ValueError: no way"
    assert look("cache", subject).passed is False


def test_a_translator_has_no_folder_to_check_and_its_own_weights(model_folder):
    translator = load(model_folder)
    subject = Subject.of(translator)
    assert look("folder", subject).passed is None
    assert look("weights", subject).passed is True
    with torch.no_grad():
        translator.model.output.bias[0] = torch.inf
    assert look("weights", subject).passed is False


def test_a_folder_that_is_not_ours_is_an_error(tmp_path):
    with pytest.raises(FolderError):
        Subject.of(tmp_path)


def test_outputs_that_a_model_is_made_to_write_are_as_long_as_asked(subject):
    written = subject.targets(3, 7)
    assert [len(each) for each in written] == [7, 7, 7]
    assert len({tuple(each) for each in written}) == 3


@pytest.mark.parametrize(
    ("ties", "wrong", "said"),
    [
        (0, 0, "largest difference 1.0e-09"),
        (2, 0, "largest difference 1.0e-09, 2 of 5 decided by rounding"),
        (0, 3, "largest difference 1.0e-09, 3 of 5 answers differ"),
        (1, 3, "largest difference 1.0e-09, 3 of 5 answers differ, 1 of 5 decided by rounding"),
    ],
)
def test_a_finding_says_how_many_answers_differ_and_why_that_may_be(ties, wrong, said):
    finding = answers._told("with and without a cache", 1e-9, ties, wrong, 5)
    assert (finding.figure, finding.passed) == (said, not wrong)


def test_only_parts_that_look_tokens_up_are_taken_for_embeddings():
    class Told(nn.Module):
        def forward(self, *, tokens):
            return tokens, None

    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4))
    model.told, tokens = Told(), torch.tensor([[1, 2]])
    vectors, (told, states) = embedded(model, lambda: (model.told(tokens=tokens), model[1](model[0](tokens))))
    assert torch.equal(vectors, model[0](tokens)) and vectors.requires_grad
    assert told[0] is tokens and torch.equal(states, model[1](vectors))


def test_sentences_that_are_packed_have_many_lengths(subject, monkeypatch):
    assert subject.model.config.packable
    packed, pack = [], Sequences.pack
    monkeypatch.setattr(Sequences, "pack", lambda rows: packed.append([len(row) for row in rows]) or pack(rows))
    assert states.layout(subject).passed
    assert len(packed) == 2
    assert packed[1] == sorted(packed[1]) and packed[1][-1] >= 4 * len(packed[1]) - 4
