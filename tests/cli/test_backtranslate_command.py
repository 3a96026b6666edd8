"""`headway backtranslate`: synthetic sources for text in the target language."""

import pytest

SETTINGS = {
    "training.steps": 3, "training.batch_tokens": 256, "training.validation_sentences": 2, "training.samples": 0,
    "tokenizer.vocabulary": 300, "model.dim": 16, "model.heads": 2, "model.hidden": 16, "model.encoder_layers": 1,
    "model.decoder_layers": 1, "model.longest": 64,
}  # fmt: skip
MONOLINGUAL = ["le chat", "", "un chien mange", "la reine voit la pomme .", "Zoë garde tout ."]


@pytest.fixture
def monolingual(tmp_path):
    (tmp_path / "mono").write_text("".join(f"{line}\n" for line in MONOLINGUAL), encoding="utf-8")
    return tmp_path / "mono"


@pytest.fixture
def backtranslate(headway, model_folder, monolingual, tmp_path):
    def run(*options, text=None, out=None):
        given = ["--monolingual", text or monolingual, "--out", out or tmp_path / "out", "--device", "cpu"]
        return headway("backtranslate", model_folder, *given, "--beam", 1, *options)

    return run


@pytest.fixture
def trained(backtranslate, corpus):
    def run(*options, **settings):
        named = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        sets = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
        return backtranslate("--source", corpus[0], "--target", corpus[1], *sets, *options)

    return run


@pytest.fixture
def talkative(monkeypatch):
    """A model that was never trained says nothing with words in it."""
    monkeypatch.setattr("headway.translator.Translator.detokenize", lambda self, tokens: "one two three four five six")


def lines(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_every_line_becomes_the_target_of_a_synthetic_source(backtranslate, model_folder, tmp_path):
    from headway.translator import load

    outcome = backtranslate()
    pairs = tmp_path / "out" / "pairs"
    assert outcome.lines == [str(pairs)]
    targets = [line for line in MONOLINGUAL if line]
    assert lines(pairs / "target") == targets
    assert lines(pairs / "source") == [str(text) for text in load(model_folder)(targets, beam=1)]
    assert f"4 pairs in {pairs}, left out: 1 blank lines\n" in outcome.err


def test_noise_changes_the_sources_alone_and_the_same_seed_gives_the_same(backtranslate, talkative, tmp_path):
    for name, options in {"plain": (), "a": ("--noise", 0.3), "b": ("--noise", 0.3),
                          "c": ("--noise", 0.3, "--seed", 2)}.items():  # fmt: skip
        assert backtranslate(*options, out=tmp_path / name).code == 0
    plain, a, b, c = (lines(tmp_path / name / "pairs" / "source") for name in ("plain", "a", "b", "c"))
    assert a == b
    assert len({tuple(each) for each in (plain, a, c)}) == 3
    assert lines(tmp_path / "a" / "pairs" / "target") == lines(tmp_path / "plain" / "pairs" / "target")


def test_other_noise_needs_no_other_translations(backtranslate, talkative, tmp_path):
    backtranslate()
    plain = lines(tmp_path / "out" / "pairs" / "source")
    (piece,) = (tmp_path / "out" / "translations").iterdir()
    before = (piece / "output").stat().st_mtime_ns
    assert backtranslate("--noise", 0.5).code == 0
    assert (piece / "output").stat().st_mtime_ns == before
    assert lines(tmp_path / "out" / "pairs" / "source") != plain


def test_a_model_is_trained_on_true_and_tagged_synthetic_pairs(trained, corpus, tmp_path):
    from headway.beginning import stored_recipe
    from headway.data.preparation import reopen
    from headway.translator import load

    outcome = trained()
    assert outcome.code == 0, outcome.err
    out = tmp_path / "out"
    prepared = reopen(stored_recipe(out).data, out / "data")
    tag = prepared.source.tags["back-translated"]
    starts = [prepared.store.source(place)[0] == tag for place in range(len(prepared.store))]
    assert sum(starts) == 4
    true = dict(zip(lines(corpus[0]), lines(corpus[1]), strict=True))
    assert len(prepared.split.valid) == 3
    assert all(true[pair.source] == pair.target and not pair.tags for pair in prepared.split.valid)
    assert len(starts) == 60 - 3 + 4
    assert load(out).source.tags == {"back-translated": tag}


def test_validation_files_that_are_given_are_used(trained, corpus, tmp_path):
    outcome = trained(data__valid_source=str(corpus[0]), data__valid_target=str(corpus[1]))
    assert not (tmp_path / "out" / "valid").exists()
    assert "no pair left to train on" in outcome.complaint  # all of them are validation pairs


def test_training_that_has_begun_is_resumed(trained, backtranslate, corpus):
    assert trained().code == 0
    assert "already holds a run; go on with --resume" in trained().only_complaint
    outcome = trained("--resume", training__steps=5)
    assert outcome.code == 0, outcome.err
    assert "resuming at step 3\n" in outcome.err


def test_mistakes_are_told_in_one_line_and_leave_nothing(backtranslate, trained, corpus, tmp_path):
    assert "--noise 1.5: is not a probability" in backtranslate("--noise", 1.5).only_complaint
    assert "--source: missing" in backtranslate("--target", corpus[1]).only_complaint
    assert "--source: missing" in backtranslate("--time", "5m").only_complaint
    assert "no such file" in backtranslate(text=tmp_path / "none").only_complaint
    assert "unknown key training.step;" in trained(training__step=5).only_complaint
    assert "--seed -1: give 0 or more" in backtranslate("--seed", -1).only_complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mistake", ["vocabulary", "a target that is missing", "too few lines", "a link to itself"])
def test_what_training_would_refuse_is_refused_before_the_first_translation(mistake, trained, corpus, tmp_path):
    if mistake == "too few lines":
        corpus[1].write_text("ONE\n")
    elif mistake != "vocabulary":
        corpus[1].unlink()
    if mistake == "a link to itself":
        corpus[1].symlink_to(corpus[1])
    outcome = trained(**({"tokenizer__vocabulary": 100} if mistake == "vocabulary" else {}))
    assert ("cannot hold the 256 bytes" if mistake == "vocabulary" else str(corpus[1])) in outcome.complaint
    assert "translating" not in outcome.err
    assert not (tmp_path / "out").exists()
