"""The sub-commands put together, and the one place where exceptions become messages and exit statuses."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from trsvr._version import __version__
from trsvr.cli.compare import compare
from trsvr.cli.predict import predict
from trsvr.cli.solve import resume, solve
from trsvr.cli.summary import summary
from trsvr.cli.theory import theory

ERROR, INTERRUPTED = 2, 130
_UsageError: Any = typer.BadParameter.__bases__[0]  # of click, which typer carries within or needs beside
# What newer typers add to "Input should be a valid number".
_UNABLE = re.compile(r", unable to parse string as an? \w+")
# What the library calls by the names of its parameters is an option here; y is the target.
_PARAMETER = re.compile(
    r"^(max_epochs|max_passes|max_seconds|checkpoint_every|alpha|step|batch_size|inner_steps|hessian|seed|threads|mu0|mu1"
    r"|gamma|epsilon|preprocess|split|tol|checkpoint|kind|groups|confidence|device) must"
)
_ALIASES = ("--penalty", "--lambda")  # of --l2
_OPTIONS = {"max_epochs": "epochs", "max_passes": "passes", "max_seconds": "seconds"}

app = typer.Typer(
    name="trsvr",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 not converged, 2 error, 130 interrupted.  \n"
    "`trsvr COMMAND --help` has every option, its default and an example.",
)
app.command(epilog="Example: `trsvr solve data.svm --l2 1e-4 --test-size 0.2 --out fit`")(solve)
app.command(epilog="Example: `trsvr resume run.ckpt --epochs 500 --out fit`")(resume)
app.command(epilog="Example: `trsvr compare mushrooms --methods trsvr,svrg:step=0.5,lbfgs --out figures`")(compare)
app.command(epilog="Example: `trsvr summary fit --kind HC1`")(summary)
app.command(epilog="Example: `trsvr predict fit new.svm --probabilities --out predictions.csv`")(predict)
app.command(epilog="Example: `trsvr theory data.svm --alpha 0.1 --batch-size 200 --inner-steps 100`")(theory)

if importlib.util.find_spec("trsvr.cli.data") is not None:
    from trsvr.cli.data import app as data_app

    app.add_typer(data_app, name="data")

if importlib.util.find_spec("trsvr.experiments") is not None:
    from trsvr.cli.paper import app as paper_app

    app.add_typer(paper_app, name="paper")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"trsvr {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
) -> None:
    """Minimise finite sums to many digits: stochastic trust regions with variance-reduced gradients."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; every exception ends here."""
    arguments = list(arguments)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = "--debug" in options
    if debug:
        arguments.remove("--debug")
    try:
        code: Any = app(args=arguments, prog_name="trsvr", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_has_left()
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as stop:
        code = stop.code
    except Exception as error:
        if debug:
            traceback.print_exc()
        message = _message(error, arguments)
        if message is None:  # an empty command line, for which the help has been shown
            return ERROR
        print(f"trsvr: error: {message}", file=sys.stderr)
        return ERROR
    if code == INTERRUPTED:
        print("trsvr: interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _reader_has_left() -> int:
    """``trsvr … | head``: nothing to say, and nothing to flush at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _got(error: Exception, arguments: Sequence[str]) -> str:
    """What an option was given that typer refuses, where its own words do not say it."""
    names = error.param.opts if isinstance(error, typer.BadParameter) and error.param is not None else ()
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = [value for name, value in itertools.pairwise(words) if name in names]
    return f", got {given[-1]!r}" if given and repr(given[-1]) not in str(error) else ""


def _message(error: Exception, arguments: Sequence[str]) -> str | None:
    """One readable line."""
    if isinstance(error, _UsageError):
        context = error.ctx
        if type(error).__name__ == "NoArgsIsHelpError":
            print(context.get_help() if context is not None else "", file=sys.stderr)
            return None
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        text = _UNABLE.sub("", error.format_message().rstrip(".")) + _got(error, arguments) + hint
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        folder = isinstance(error, IsADirectoryError)
        text = f"{error.filename}: {'this is a folder; a file is needed' if folder else error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory{': ' if str(error) else ''}{error}"
    elif isinstance(error, ValueError | OSError | ImportError):
        text = _PARAMETER.sub(
            lambda found: f"--{_OPTIONS.get(found[1]) or found[1].replace('_', '-')} must", str(error)
        )
        text = re.sub("^y must", "the target must", text)
        for alias in _ALIASES:
            if any(word.split("=", 1)[0] == alias for word in arguments):
                text = text.replace("--l2 must", f"{alias} must")
    else:
        text = f"{type(error).__name__}: {error} (this should not happen; --debug shows where)"
    return " ".join(text.split())
