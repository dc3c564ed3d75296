"""The command as a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

COMMAND = [sys.executable, "-m", "trsvr.cli"]


def _environment():
    return {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TRSVR_QUIET": "1", "MPLBACKEND": "Agg"}


def trsvr(*arguments, folder, **more_environment):
    """Run to its end; returns the process with stdout and stderr as text."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=_environment() | more_environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def start(*arguments, folder):
    """Begin, and leave it running; Ctrl-C is not ignored even where this process ignores it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def assert_one_line(process, *words, status=2):
    """One readable line on stderr, nothing on stdout, no traceback."""
    assert process.returncode == status, process.stderr
    assert process.stdout == ""
    lines = process.stderr.splitlines()
    assert len(lines) == 1, process.stderr
    assert lines[0].startswith("trsvr: error: ")
    for word in words:
        assert word in lines[0]
