"""Exit codes and the one line on standard error."""

from types import SimpleNamespace

import pytest

import headway.cli as cli
from headway.errors import ConfigError, HeadwayError, Interrupted
from headway.training.parallel import Ended


def failing(error):
    def parse(*arguments, **options):
        raise error

    return SimpleNamespace(parse_args=parse)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("x: wrong; put it right"), 2, "headway: x: wrong; put it right\n"),
        (HeadwayError("x: failed"), 1, "headway: x: failed\n"),
        (Interrupted("stopped at step 3", 15), 143, "headway: stopped at step 3\n"),
        (KeyboardInterrupt(), 130, "headway: stopped\n"),
        (OSError(28, "No space left", "a"), 1, "headway: a: No space left; free space, or write elsewhere\n"),
        (OSError("odd"), 1, "headway: standard output: odd\n"),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
        (Ended(3), 3, ""),  # the process that failed has said why
    ],
)
def test_every_foreseen_failure_has_its_code_and_one_line(error, code, line, monkeypatch, capsys):
    monkeypatch.setattr(cli, "app", failing(error))
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == code
    assert capsys.readouterr() == ("", line)


ALLOCATOR = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. (12)"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "(MemoryError)"),
        (RuntimeError(f"{ALLOCATOR}\nframe #0"), f"({ALLOCATOR})"),
        (RuntimeError("std::bad_alloc"), "(std::bad_alloc)"),
        (RuntimeError("can't start new thread"), "(can't start new thread)"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "failed to map segment"),
        (OSError(12, "Cannot allocate memory"), "Cannot allocate memory"),
        (RuntimeError("CUDA out of memory"), "on the GPU"),
    ],
)
def test_memory_that_ran_out_costs_one_line(error, told, monkeypatch, capsys):
    for given in (error, come_of(error)):
        monkeypatch.setattr(cli, "app", failing(given))
        with pytest.raises(SystemExit) as stopped:
            cli.main([])
        assert stopped.value.code == 1
        said = capsys.readouterr().err
        assert said.startswith("headway: too little memory")
        assert said.count("\n") == 1
        assert told in said or given is not error


def come_of(error):
    """Another error, raised while that one was dealt with."""
    try:
        try:
            raise error
        except (MemoryError, RuntimeError, ImportError, OSError):
            raise KeyError("cache")  # noqa: B904  # what libraries do
    except KeyError as later:
        return later


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "LOCAL_RANK": "1"}, False),
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "8", "LOCAL_RANK": "0"}, True),  # the first of another machine
        ({"RANK": "1"}, True),  # somebody else's variable
    ],
)
def test_of_several_processes_of_a_machine_one_tells_what_all_have_met(environment, told, monkeypatch, capsys):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for error, code in ((ConfigError("x: wrong"), 2), (Interrupted("stopped at step 3", 2), 130)):
        monkeypatch.setattr(cli, "app", failing(error))
        with pytest.raises(SystemExit) as stopped:
            cli.main([])
        assert stopped.value.code == code
        assert bool(capsys.readouterr().err) is told


def test_a_bug_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr(cli, "app", failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main([])


def test_a_complaint_is_one_printable_line_of_bounded_length(capsys):
    cli.complain("a\nb\r\n\x1b[31mc\u2028d\t" + "e" * 10_000, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway: a b \ufffd[31mc d eee")
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    assert len(err) < 2100
