"""`headway translate` and `headway embed` on input that is as it should be."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from lively import save_lively

FULL_GPU = "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the documentation."
FULL = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"
SOURCE = b"le chat voit la pomme .\nun chien mange tout .\n"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return save_lively(tmp_path_factory.mktemp("models") / "lively")


@pytest.fixture(scope="module")
def translator(model_folder):
    from headway.translator import load

    return load(model_folder)


@pytest.fixture
def expected(model_folder):
    from headway.translator import load

    return [str(text) for text in load(model_folder)(SOURCE.decode().splitlines())]


def test_every_line_gets_the_answer_the_library_gives(headway, model_folder, expected):
    assert headway("translate", model_folder, stdin=SOURCE).lines == expected


def test_a_file_goes_to_a_file_and_nothing_to_the_screen(headway, model_folder, expected, tmp_path):
    (tmp_path / "in").write_bytes(SOURCE)
    outcome = headway("translate", model_folder, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert outcome.lines == []
    assert outcome.err == ""
    assert (tmp_path / "out").read_text().splitlines() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_output_that_is_there_is_replaced_if_told_to_and_a_link_stays_a_link(
    headway, model_folder, expected, tmp_path
):
    (tmp_path / "old").write_text("old\n" * 9)
    (tmp_path / "link").symlink_to("old")
    files = ("translate", model_folder, "--output", tmp_path / "link")
    assert "link: already exists; add --overwrite" in headway(*files, stdin=SOURCE).only_complaint
    assert (tmp_path / "old").read_text() == "old\n" * 9
    assert headway(*files, "--overwrite", stdin=SOURCE).code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text().splitlines() == expected


@pytest.mark.parametrize(
    "content",
    [SOURCE.replace(b"\n", b"\r\n"), SOURCE.removesuffix(b"\n"), b"\xef\xbb\xbf" + SOURCE, gzip.compress(SOURCE)],
    ids=["CRLF", "no final line end", "byte order mark", "gzip"],
)
def test_the_way_lines_are_stored_changes_no_answer(content, headway, model_folder, expected, tmp_path):
    (tmp_path / "in").write_bytes(content)
    assert headway("translate", model_folder, "--input", tmp_path / "in").lines == expected


@pytest.mark.parametrize("buffer", [1, 3])
def test_the_buffer_changes_no_answer(buffer, headway, model_folder, expected):
    assert headway("translate", model_folder, "--buffer", buffer, stdin=SOURCE * 3).lines == expected * 3


def test_nbest_gives_numbered_lists_in_four_fields_best_first(headway, model_folder):
    lines = headway("translate", model_folder, "--nbest", 3, "--buffer", 1, stdin=SOURCE + b"\n").lines
    fields = [line.split(" ||| ") for line in lines]
    assert [number for number, *_ in fields] == ["0"] * 3 + ["1"] * 3 + ["2"]
    assert all(len(each) == 4 and each[2].startswith("F0= ") for each in fields)
    scores = [float(each[3]) for each in fields]
    assert scores[0] >= scores[1] >= scores[2]
    assert fields[-1][1:] == ["", "F0= 0.000000", "0.000000"]


def test_json_lines_keep_every_other_field(headway, model_folder, expected):
    records = [
        {"id": 7, "source": line, "nested": {"é": [None, 1.5]}, "half": "\ud800"}
        for line in SOURCE.decode().splitlines()
    ]
    stdin = "".join(json.dumps(record) + "\n" for record in records).encode()
    answers = [json.loads(line) for line in headway("translate", model_folder, "--json", stdin=stdin).lines]
    assert [answer.pop("translation") for answer in answers] == expected
    assert all(isinstance(answer.pop("score"), float) for answer in answers)
    assert answers == records


def test_json_lines_can_hold_an_nbest_list(headway, model_folder):
    answer = headway("translate", model_folder, "--json", "--nbest", 2, stdin=b'{"source": "le chat"}\n').json
    assert len(answer["nbest"]) == 2
    assert answer["nbest"][0]["text"] == answer["translation"]
    assert answer["nbest"][0]["score"] == answer["score"]


def test_a_json_line_that_is_not_utf8_becomes_an_empty_line_where_such_are_skipped(headway, model_folder):
    stdin = b'{"source": "a"}\n{"source": "\xff"}\n{"source": ""}\n'
    lines = headway("translate", model_folder, "--json", "--invalid", "skip", stdin=stdin).lines
    assert len(lines) == 3
    assert lines[1] == ""
    assert json.loads(lines[2])["translation"] == ""


def test_letters_are_written_as_they_are(headway, model_folder):
    assert "Zoë" in headway("translate", model_folder, "--json", stdin='{"source": "Zoë"}\n'.encode()).out


def test_closed_standard_input_is_refused(headway, model_folder, monkeypatch):
    import headway.cli.files as files

    monkeypatch.setattr(files.sys, "stdin", None)
    from headway.errors import DataError

    with pytest.raises(DataError, match="standard input: closed"):
        files.lines_of(None)
    assert files.sys is sys


def test_embed_gives_a_json_line_a_line_with_a_vector_a_token(headway, model_folder):
    lines = headway("embed", model_folder, stdin="le chat\n\nZoë\n".encode()).lines
    records = [json.loads(line) for line in lines]
    assert len(records) == 3
    assert "".join(records[0]["tokens"]) == "le chat"
    assert records[1] == {"tokens": [], "vectors": []}
    for record in records:
        assert len(record["tokens"]) == len(record["vectors"])
        assert all(len(vector) == 16 for vector in record["vectors"])


def records(*given):
    return "".join(json.dumps(each) + "\n" for each in given).encode()


def test_what_a_json_line_asks_holds_for_its_output_alone(headway, model_folder, translator):
    from headway.translator import Sentence

    asked = {"prefix": "la reine", "required": ["pomme"], "banned": ["mange"]}
    stdin = records({"source": "Zoë"}, {"source": "Zoë", "prefix": None} | asked)
    plain, own = (json.loads(line) for line in headway("translate", model_folder, "--json", stdin=stdin).lines)
    assert plain["translation"] == translator("Zoë")
    assert own["translation"] == translator(Sentence("Zoë", **asked)) != plain["translation"]
    assert {name: own[name] for name in asked} == asked


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"prefix": 3}, '"prefix" is not a text'), ({"required": "pomme"}, '"required" is not a list of texts'),
     ({"banned": [1]}, '"banned" is not a list of texts'), ({"required": [" "]}, "required: an empty text"),
     ({"tags": ["fr"]}, "tag 'fr'"), ({"prefix": "\ud800"}, "half a surrogate pair"),
     ({"tags": ["\ud800"]}, '"tags" holds half'), ({"required": ["\ud800"]}, '"required" holds half'),
     ({"banned": ["a", "\ud800"]}, '"banned" holds half a surrogate pair')],
)  # fmt: skip
def test_a_json_line_that_cannot_be_is_refused_by_number(fields, told, headway, model_folder):
    stdin = records({"source": "Zoë"}, {"source": "Zoë"} | fields)
    complaint = headway("translate", model_folder, "--json", stdin=stdin).only_complaint
    assert "standard input: line 2: " in complaint and told in complaint


def test_what_the_options_ask_holds_for_every_line(headway, model_folder, translator):
    asked = ("--prefix", "la reine", "--require", "pomme", "--require", "tout", "--ban", "mange", "--ban", "chat")
    wanted = translator(
        SOURCE.decode().splitlines(), prefix="la reine", required=["pomme", "tout"], banned=["mange", "chat"]
    )
    assert headway("translate", model_folder, *asked, stdin=SOURCE).lines == wanted
    assert all(line.startswith("la reine") and "pomme" in line and "tout" in line for line in wanted)


@pytest.mark.parametrize(
    ("options", "settings"),
    [(["--set", "beam=1"], {"beam": 1}), (["--set", "decoding.no_repeat=1"], {"no_repeat": 1}),
     (["--sample", "--seed", 4, "--set", "temperature=0.5"], {"sample": True, "seed": 4, "temperature": 0.5}),
     (["--mbr", 8], {"mbr": 8, "beam": 8}), (["--long", "truncate"], {"long": "truncate"})],
)  # fmt: skip
def test_every_setting_of_decoding_can_be_given(options, settings, headway, model_folder, translator):
    texts = [*SOURCE.decode().splitlines(), "le chat voit la pomme . " * 9]
    found = headway("translate", model_folder, *options, stdin="".join(f"{text}\n" for text in texts).encode())
    assert found.lines == translator(texts, **settings) != translator(texts)


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--beam", "1.5"], "'1.5' is not a whole number"), (["--workers", "0"], "--workers 0"),
     (["--set", "bean=2"], "did you mean beam"), (["--set", "beam"], "not of the form"),
     (["--set", 'beam="2"'], "beam"), (["--require", " "], "required: an empty text"),
     (["--append"], "--append: goes on with a file"), (["--nbest", "2", "--alignments"], "--alignments: has no place"),
     (["--append", "--output", "o.gz"], "a gzip file cannot be appended to"), (["--long", "cut"], "--long"),
     (["--append", "--output", "o", "--nbest", "2"], "--append: cannot count"), (["--int8"], "--int8"),
     (["--shortlist", "none"], "none"), (["--ensemble", "none"], "none: no such folder"),
     (["--mbr", "100"], "nbest or mbr 100: a beam keeps at most 64; lower it, or give --sample"),
     (["--nbest", "65"], "nbest or mbr 65: a beam keeps at most 64"), (["--nbest", "64", "--set", "beam=65"], "beam")],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_in_one_line(options, told, headway, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told in headway("translate", model_folder, *options).only_complaint
    assert list(tmp_path.iterdir()) == []


def test_a_long_line_is_told_with_what_was_done(headway, model_folder, translator):
    long = "Le chat voit la pomme . " * 9
    stdin = f"{long}\nZoë\n".encode()
    split = headway("translate", model_folder, stdin=stdin)
    parts = len(translator(long).passages)
    told = f"warning: standard input: line 1 is longer than 31 tokens; it was read in {parts} passages\n"
    assert split.lines == translator([long, "Zoë"]) and split.err == f"headway: {told}"
    cut = headway("translate", model_folder, "--long", "truncate", stdin=stdin)
    assert "line 1 is longer than 31 tokens; only its beginning was read" in cut.err
    refused = headway("translate", model_folder, "--long", "refuse", stdin=b"a\n" + stdin).only_complaint
    assert f"standard input: line 2: {len(translator.tokenize([long])[0])} tokens, the model reads 31" in refused


def test_a_document_keeps_lines_and_white_space_and_splits_sentences(headway, model_folder, translator):
    stdin = " Le chat voit tout.  Mr. Zoë mange! \n\n  \nUn chien\n".encode()
    found = headway("translate", model_folder, "--document", stdin=stdin)
    first, second, third = translator(["Le chat voit tout.", "Mr. Zoë mange!", "Un chien"])
    assert found.lines == [f" {first}  {second} ", "", "  ", third]
    assert found.err == ""


def test_every_line_of_a_document_stays_one_line(headway, model_folder, translator):
    stdin = "Un chien.\r Zoë.\u2028Le chat.\n".encode()
    parts = translator(["Un chien.", "Zoë.", "Le chat."])
    found = headway("translate", model_folder, "--document", stdin=stdin)
    assert found.lines == ["{}  {} {}".format(*parts)]
    listed = headway("translate", model_folder, "--document", "--nbest", 1, stdin=stdin).lines
    assert [line.split(" ||| ")[1] for line in listed] == found.lines


@pytest.mark.parametrize(("text", "written"), [("a|||b", "a| | |b"), ("|||||", "| | | | |"), ("a || b", "a || b")])
def test_the_mark_between_fields_stands_in_no_text_of_a_list(text, written, headway, model_folder, monkeypatch):
    from headway.translator import Translator

    monkeypatch.setattr(Translator, "detokenize", lambda *_: text)
    lines = headway("translate", model_folder, "--nbest", 2, stdin=b"le chat\n").lines
    assert [line.split("|||")[1] for line in lines] == [f" {written} "] * 2


def test_alignments_stand_beside_outputs(headway, model_folder, translator):
    from headway.alignment import word_alignments

    texts = ["le chat voit la pomme .", "Le chat mange tout . " * 6]
    stdin = "".join(f"{text}\n" for text in texts).encode()
    translations = translator(texts)
    links = word_alignments(translator, translations)
    shown = [" ".join(f"{source}-{target}" for source, target in each) for each in links]
    found = headway("translate", model_folder, "--alignments", stdin=stdin).lines
    assert found == [f"{text}\t{each}" for text, each in zip(translations, shown, strict=True)]
    assert all(shown)
    stdin = records(*({"source": text} for text in texts))
    found = headway("translate", model_folder, "--alignments", "--json", stdin=stdin).lines
    assert [json.loads(line)["alignment"] for line in found] == [[list(link) for link in each] for each in links]


def test_several_models_and_a_shortlist_decode_together(headway, model_folder, tmp_path, corpus):
    from headway.translator import load

    other = save_lively(tmp_path / "other", seed=0)
    shortlist = tmp_path / "list"
    pairs = ("--source", corpus[0], "--target", corpus[1])
    assert headway("shortlist", model_folder, *pairs, "--output", shortlist).code == 0
    found = headway("translate", model_folder, "--ensemble", other, "--shortlist", shortlist, stdin=SOURCE).lines
    wanted = load(model_folder, ensemble=[other], shortlist=shortlist)(SOURCE.decode().splitlines())
    assert found == wanted != load(model_folder)(SOURCE.decode().splitlines())


def test_output_is_packed_by_its_name(headway, model_folder, expected, tmp_path):
    headway("translate", model_folder, "--output", tmp_path / "out.gz", stdin=SOURCE)
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode().splitlines() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out.gz"]


LINES = "".join(f"le chat mange {number} .\n" for number in range(40)).encode()


def test_workers_change_no_answer(headway, model_folder, translator):
    wanted = translator(LINES.decode().splitlines())
    options = ("--device", "cpu", "--buffer", 4, "--json")
    stdin = records(*({"source": line} for line in LINES.decode().splitlines()))
    alone = headway("translate", model_folder, *options, "--workers", 1, stdin=stdin).lines
    assert headway("translate", model_folder, *options, "--workers", 2, stdin=stdin).lines == alone
    assert [json.loads(line)["translation"] for line in alone] == wanted


def test_long_inputs_go_to_all_cores_and_short_ones_do_not(headway, model_folder, translator, monkeypatch):
    import headway.cli.translate as module
    import headway.crew as crew

    begun = []

    class Counted:
        def __init__(self, prepare, job, workers):
            self.answer = prepare(job)
            begun.append(workers)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def answers(self, chunks):
            return map(self.answer, chunks)

    monkeypatch.setattr(crew, "Crew", Counted)
    monkeypatch.setitem(module.CHUNK, "cpu", 8)
    monkeypatch.setattr(crew, "affordable", lambda: 3)

    def run(*options, stdin=LINES):
        return headway("translate", model_folder, "--device", "cpu", *options, stdin=stdin).lines

    assert run() == translator(LINES.decode().splitlines())
    assert begun == [3]
    run(stdin=b"".join(LINES.splitlines(keepends=True)[:15]))
    run("--buffer", 8)
    run("--workers", 1)
    assert begun == [3]


def test_an_unfinished_output_is_gone_on_with(headway, model_folder, translator, tmp_path):
    wanted = "".join(f"{text}\n" for text in translator(LINES.decode().splitlines()))
    (tmp_path / "in").write_bytes(LINES)
    out = tmp_path / "out"
    files = ("--input", tmp_path / "in", "--output", out)

    def run():
        return headway("translate", model_folder, *files, "--append", "--buffer", 8)

    assert run().lines == [] and out.read_text() == wanted
    first = "".join(wanted.splitlines(keepends=True)[:13])
    whole = first + wanted.splitlines()[13]
    out.write_text(whole[: len(first) + 3])
    assert run().lines == [] and out.read_text() == wanted
    assert run().lines == [] and out.read_text() == wanted
    out.write_text("kept\n" * 13)
    assert run().lines == [] and out.read_text() == "kept\n" * 13 + wanted.removeprefix(first)
    out.write_text("x\n" * 41)
    assert "out: has 41 lines, " in run().only_complaint
    (tmp_path / "in").write_bytes(b"".join(LINES.splitlines(keepends=True)[:20]) + b"\xff\n")
    out.unlink()
    assert "line 21 is not UTF-8" in run().only_complaint
    assert out.read_text() == "".join(wanted.splitlines(keepends=True)[:16])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("x\n" * 41 + "and a half", "out: has 41 lines, "),
        ("x\n" * 40 + "and a half", "out: its last line has no end and is not the beginning of the next output"),
        ("precious", "out: its last line has no end and is not the beginning of the next output"),
    ],
    ids=["too many lines", "half a line too many", "no line"],
)
def test_a_file_that_cannot_be_gone_on_with_is_left_as_it_is(content, told, headway, model_folder, tmp_path):
    (tmp_path / "in").write_bytes(LINES)
    (tmp_path / "out").write_text(content)
    files = ("--input", tmp_path / "in", "--output", tmp_path / "out")
    assert told in headway("translate", model_folder, *files, "--append").only_complaint
    assert (tmp_path / "out").read_text() == content


def started(model_folder, *options, **streams):
    command = [sys.executable, "-m", "headway", "translate", str(model_folder), "--device", "cpu", *map(str, options)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    streams |= {"stderr": subprocess.PIPE, "bufsize": 0}
    # A shell that starts the tests in the background lets them ignore Ctrl-C, and the command would inherit that.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=heeding, **streams)  # noqa: PLW1509  # no threads


def children(process):
    return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def gone(pids, seconds=300.0):
    def running(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    ends = time.monotonic() + seconds
    while any(map(running, pids)) and time.monotonic() < ends:
        time.sleep(0.05)
    return not any(map(running, pids))


def test_a_killed_command_goes_on_where_it_was_and_nothing_differs(headway, model_folder, translator, tmp_path):
    many = LINES * 60
    (tmp_path / "in").write_bytes(many)
    options = ("--input", tmp_path / "in", "--output", tmp_path / "out", "--append", "--buffer", 16, "--workers", 2)
    with started(model_folder, *options) as process:
        while not (tmp_path / "out").exists() or (tmp_path / "out").stat().st_size < 2000:
            time.sleep(0.002)
        workers = children(process)
        process.kill()
    assert len(workers) >= 2 and gone(workers)
    left = (tmp_path / "out").read_bytes().count(b"\n")
    assert 0 < left < 2400
    assert headway("translate", model_folder, *options[:5], "--workers", 1).lines == []
    wanted = translator(LINES.decode().splitlines())
    assert (tmp_path / "out").read_text().removesuffix("\n").split("\n") == wanted * 60


@pytest.mark.parametrize("ending", ["interrupted", "a bad line", "a closed pipe", "a dead worker"])
def test_all_processes_end_at_once_in_one_line(ending, model_folder):
    options = ("--workers", 2, "--buffer", 1, "--long", "refuse")
    with started(model_folder, *options, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(LINES)
        process.stdin.flush()
        process.stdout.readline()  # while more input may come
        workers = children(process)
        if ending in ("interrupted", "a bad line"):
            for _ in LINES.splitlines()[1:]:
                process.stdout.readline()
            time.sleep(0.5)  # until a thread waits for more input
        if ending == "interrupted":
            os.killpg(process.pid, signal.SIGINT)
        elif ending == "a bad line":
            process.stdin.write(b"le chat " * 40 + b"\n")
        elif ending == "a closed pipe":
            process.stdout.close()
        else:
            os.kill(workers[-1], signal.SIGKILL)
        if ending in ("a closed pipe", "a dead worker"):
            try:
                for _ in range(200):
                    process.stdin.write(LINES)
                    process.stdin.flush()
            except BrokenPipeError:
                pass
        code = process.wait(600)
        told = process.stderr.read().decode()
    assert gone(workers)
    if ending == "a bad line":
        assert code == 2 and told.startswith("headway: standard input: line 41: ") and told.count("\n") == 1
        return
    assert (code, told) == {
        "interrupted": (130, "headway: stopped\n"),
        "a closed pipe": (1, ""),
        "a dead worker": (1, "headway: a worker process died (signal 9); if memory ran out, lower --workers\n"),
    }[ending]


def test_another_engine_gives_the_same_text_and_takes_no_workers(headway, model_folder, expected):
    pytest.importorskip("ctranslate2")
    options = ("--engine", "ctranslate2", "--device", "cpu")
    assert headway("translate", model_folder, *options, stdin=SOURCE).lines == expected
    assert "own engine on a CPU" in headway("translate", model_folder, *options, "--workers", 2).only_complaint


@pytest.mark.parametrize(
    ("error", "told"), [(FULL_GPU, "too little memory is free on the GPU; stop other"), (FULL, "too little memory (")]
)
def test_memory_that_runs_out_is_told_in_one_line(headway, model_folder, monkeypatch, error, told):
    def lines_of(*_):
        raise RuntimeError(error)

    monkeypatch.setattr("headway.cli.files.lines_of", lines_of)
    found = headway("translate", model_folder, stdin=SOURCE)
    assert found.code == 1 and found.err.startswith(f"headway: {told}") and len(found.err.splitlines()) == 1


def test_any_other_error_of_torch_is_a_bug_of_ours(model_folder, monkeypatch):
    from headway.cli import translate

    def lines_of(*_):
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("headway.cli.files.lines_of", lines_of)
    with pytest.raises(RuntimeError, match="a bug of ours"):
        translate.command(model_folder)
