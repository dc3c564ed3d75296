"""The command explains itself: every sub-command has an example that works, every option its default."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap

import pytest
from commands import check, leaves

from trsvr._version import __version__
from trsvr.cli import main

COMMANDS = leaves()


def test_the_sub_commands():
    assert {way[0] for way in COMMANDS} == {
        "solve",
        "resume",
        "summary",
        "compare",
        "predict",
        "theory",
        "data",
        "paper",
    }


@pytest.mark.parametrize("way", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_parses(way, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([*way, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: trsvr {' '.join(way)}" in shown
    example = re.search(r"Example: (.*)", shown)
    assert example, shown
    command = example[1].strip()
    inner = re.search(r"\$\((.*)\)", command)  # cp … $(trsvr data path)
    assert check("help", shlex.split(inner[1] if inner else command)) == way


@pytest.mark.parametrize("way", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_does_and_what_happens_without_it(way):
    command = COMMANDS[way]
    assert command.help
    for parameter in command.params:
        assert parameter.help, parameter.name
        if parameter.param_type_name == "argument" or (parameter.is_flag and not parameter.secondary_opts):
            continue
        told = "default" in parameter.help or (parameter.show_default and parameter.default is not None)
        assert told, f"trsvr {' '.join(way)} {parameter.opts[0]} does not tell its default"


def test_the_help_of_the_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("--version", "--install-completion", "--debug", "Exit status", *(way[0] for way in COMMANDS)):
        assert word in shown


def test_python_m_trsvr(tmp_path):
    for module in ("trsvr", "trsvr.cli"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stdout) == (0, f"trsvr {__version__}\n"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion_is_installed_and_works_in_bash(tmp_path):
    """``trsvr --install-completion`` in an empty home; then what a new shell answers to the tabulator key."""
    script = tmp_path / "bin" / "trsvr"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m trsvr "$@"\n')
    script.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}

    def bash(text):
        done = subprocess.run(
            ["bash", "--norc", "-c", textwrap.dedent(text)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    # A second command keeps bash there as the parent, from which the shell is told.
    assert "bash completion installed" in bash("trsvr --install-completion; true")
    answers = bash(
        """
        source ~/.bashrc
        answer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trsvr_completion trsvr; echo "${COMPREPLY[*]}"; }
        answer trsvr so
        answer trsvr data in
        answer trsvr solve data.svm --checkpoint-
        answer trsvr solve data.svm --method sa
        """
    ).splitlines()
    assert answers == ["solve", "info", "--checkpoint-every", "saga sarah"]
