"""Exit codes and the one line on standard error."""

from types import SimpleNamespace

import pytest

import headway.cli as cli
from headway.errors import ConfigError, HeadwayError, Interrupted


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
        (OSError(28, "No space left on device", "a"), 1, "headway: a: No space left on device\n"),
        (OSError("odd"), 1, "headway: output: odd\n"),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
    ],
)
def test_every_foreseen_failure_has_its_code_and_one_line(error, code, line, monkeypatch, capsys):
    monkeypatch.setattr(cli, "app", failing(error))
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == code
    assert capsys.readouterr() == ("", line)


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
