"""`headway evaluate` and `headway check`."""

import pytest

LINES = [f"the cat number {number} sat on the old mat today" for number in range(12)]


@pytest.fixture
def files(tmp_path):
    contents = {"reference": LINES, "good": LINES, "bad": [line.replace("cat", "dog") for line in LINES]}
    for name, lines in contents.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_a_perfect_output_scores_a_hundred_and_signatures_say_how(headway, files):
    card = headway("evaluate", files / "good", "--reference", files / "reference", "--json").json
    scores = {score["name"]: score for score in card["scores"]}
    assert scores["BLEU"]["value"] == pytest.approx(100)
    assert "tok:13a" in scores["BLEU"]["signature"]
    assert "version:" in scores["chrF"]["signature"]
    assert card["exact"] == 100


def test_scores_are_a_table_for_people(headway, files):
    lines = headway("evaluate", files / "bad", "--reference", files / "reference").lines
    assert lines[0].startswith("BLEU ")
    assert any(line.startswith("exact match") for line in lines)


def test_two_outputs_are_compared_on_the_same_references(headway, files):
    options = ("--compare", files / "bad", files / "good", "--reference", files / "reference")
    found = headway("evaluate", *options, "--json").json
    assert {each["metric"] for each in found["differences"]} == {"BLEU", "chrF"}
    assert all(each["delta"] > 0 and each["significant"] for each in found["differences"])
    assert "B is better" in headway("evaluate", *options).out


def test_a_model_is_scored_on_what_it_makes_of_the_source(headway, files, model_folder):
    options = ("--reference", files / "reference", "--source", files / "good", "--beam", 1, "--json")
    assert headway("evaluate", model_folder, *options).json["sentences"] == 12


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "give one SYSTEM, or --compare A B"),
        ("good --compare good bad", "give one SYSTEM, or --compare A B"),
        ("short", "1 outputs but 12 lines"),
        ("empty", "no outputs to score"),
        ("absent", "absent: no such file"),
        ("good --reference absent", "absent: no such file"),
        ("model", "give the text it is to translate by --source"),
        ("model --source short", "1 outputs but 12 lines"),
        ("model --source good --beam 0", "beam"),
        ("model --source good --beam 1.5", "'1.5' is not a whole number"),
        ("--compare good short", "1 outputs of B but 12 lines"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(arguments, told, headway, files, model_folder):
    (files / "short").write_text("one\n")
    (files / "empty").write_text("")
    (files / "model").symlink_to(model_folder)
    words = [word if word.startswith("--") or word in ("0", "1.5") else files / word for word in arguments.split()]
    if "--reference" not in words:
        words += ["--reference", files / "reference"]
    assert told in headway("evaluate", *words).only_complaint


def test_check_reports_on_a_corpus_for_people_and_programs(headway, corpus):
    source, target = corpus
    with source.open("a") as first, target.open("a") as second:
        first.write("\n"), second.write("x\n")
    report = headway("check", "--source", source, "--target", target, "--json").json
    assert "61" in str(report)
    assert headway(
        "check", "--source", source, "--target", target, "--test-source", source, "--test-target", target
    ).lines


def test_check_refuses_unequal_files(headway, corpus, tmp_path):
    (tmp_path / "short").write_text("one\n")
    assert "has 1" in headway("check", "--source", corpus[0], "--target", tmp_path / "short").complaint
