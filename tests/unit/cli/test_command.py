"""The command line: its help, errors and exit statuses."""

import shutil
import warnings

import pytest

import bfcviz
from bfcviz.cli import command, main
from bfcviz.errors import FileError

SAMPLE = str(bfcviz.sample("lstm"))


def test_version(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"bfcviz {bfcviz.__version__}\n"


def test_help_names_every_subcommand(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in command.COMMANDS)


@pytest.mark.parametrize("name", list(command.COMMANDS))
def test_every_subcommand_has_help(name, capsys):
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert f"usage: bfcviz {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "usage"), [(["help"], "usage: bfcviz [-h]"), (["help", "why"], "usage: bfcviz why")]
)
def test_help_is_a_command_too(words, usage, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(usage)


@pytest.mark.parametrize("words", [[], ["nothing"], ["info"], ["info", SAMPLE, "--nothing"]])
def test_a_usage_error_is_status_2(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--wrong"], "no option --wrong; `bfcviz --help`"),
        (["info", "--wrong"], "no option --wrong; `bfcviz info --help`"),
        (["info", "--jsn=1", SAMPLE], "no option --jsn; the nearest is --json"),
    ],
)
def test_an_unknown_option_is_what_the_error_names(words, part, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert part in capsys.readouterr().err


def test_an_error_is_one_line_and_status_1(tmp_path, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("no trace\n")
    assert main(["info", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"bfcviz: error: {path}: ")
    assert err.count("\n") == 1


def test_an_error_of_several_lines_is_printed_as_one(monkeypatch, capsys):
    def fail(_):
        raise FileError("a\nb", "", "two\nlines")

    monkeypatch.setattr("bfcviz.cli.info.open_trace", fail)
    assert main(["info", "x"]) == 1
    assert capsys.readouterr().err == "bfcviz: error: a b: two lines\n"


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bfcviz.cli.info.open_trace", interrupt)
    assert main(["info", "x"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_warning_is_one_line(monkeypatch, capsys):
    def warn(_):
        warnings.simplefilter("always")
        warnings.warn("runs uncompiled", UserWarning, stacklevel=1)
        raise FileError("x", "", "stop here")

    monkeypatch.setattr("bfcviz.cli.info.open_trace", warn)
    showing = warnings.showwarning
    main(["info", "x"])
    assert capsys.readouterr().err.splitlines()[0] == "bfcviz: warning: runs uncompiled"
    assert warnings.showwarning is showing


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "bfcviz why FILE"),
        ([SAMPLE], f"bfcviz view {SAMPLE}"),
        (["inof", SAMPLE], "nearest is info"),
        (["nothing.pickle"], "no command nothing.pickle"),
        (["leaks", "run.bfc"], "`bfcviz holders --leaks FILE`"),
        (["what-grew", "run.bfc"], "`bfcviz holders --since MARK FILE`"),
        (["info"], "required: FILE\n"),
        (["why", "--size", "20", "MiB", SAMPLE], "--size 20MiB"),
        (["fit", "--device", "1.5", "g", SAMPLE], "--device 1.5g"),
        (["holders", "--mark", "step", SAMPLE], "--leaks"),
        (["holders", "--events", "5", "2", SAMPLE], "--leaks"),
        (["holders", "--phase", "warm-up", SAMPLE], "--leaks"),
    ],
)
def test_a_usage_error_says_what_to_type(words, said, capsys):
    with pytest.raises(SystemExit):
        main(words)
    last = capsys.readouterr().err.splitlines(keepends=True)[-1]
    assert said in last


def test_a_file_with_the_name_of_a_unit_is_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(SAMPLE, "b")
    assert main(["holders", "--pool", "0", "b"]) == 0
    assert " at step " in capsys.readouterr().out
