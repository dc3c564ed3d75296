"""The command ``trsvr``; see ``trsvr --help``.

Exit status: 0 done; 1 the run ended without converging; 2 bad input, an unreadable file or any other error, told in one
line on stderr; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.
    """
    try:
        from trsvr.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(f"trsvr: error: the command line needs {error.name}: pip install 'trsvr[cli]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return run(sys.argv[1:] if arguments is None else arguments)
