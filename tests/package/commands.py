"""Commands of the pages, run with fast settings or checked in a way that can fail."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from pages import ROOT, Block, PageError

#: Sub-commands of trsvr that are parsed by the real command line but not begun: why not.
PARSED_ONLY = {
    ("paper", "run"): "minutes to hours",
    ("paper", "tune"): "hours",
    ("paper", "report"): "needs the results of a long run",
    ("data", "fetch"): "downloads",
}
PARSED_ONLY_OPTIONS = {"--dask": "workers", "--scheduler": "a cluster", "--device": "a GPU"}
#: Added at the end of a command that is run: the same way through the program, in less time.
FASTER = {("compare",): ("--seeds", "1", "--passes", "2", "--no-progress")}


def split(block: Block) -> list[tuple[str, list[str], dict[str, str]]]:
    """The commands of a block: its place, its words, and the variables set before it."""
    found = []
    lines = block.text.replace("\\\n", "  ").splitlines()
    for k, line in enumerate(lines):
        place = f"{block.page}:{block.line + k}"
        for words in _sequence(place, line.removeprefix("$ ")):
            variables = {}
            while words and re.match(r"^[A-Z_]+=", words[0]):
                name, _, value = words.pop(0).partition("=")
                variables[name] = value
            if words:
                found.append((place, words, variables))
    return found


def _sequence(place: str, line: str) -> list[list[str]]:
    """The words of the commands of a line, which ``&&`` and ``;`` separate; what is behind ``#`` is no command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in ("&&", ";"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError as error:
        raise PageError(f"{place}: not a command of the shell: {error}") from None
    return commands


def check(place: str, words: list[str], mention: bool = False) -> tuple[str, ...] | None:
    """Refuse a command that cannot work; returns the sub-command of trsvr, or None for other programs.

    Parameters
    ----------
    mention : bool
        It stands in a sentence, so arguments may be left out; what is there must be right all the same.
    """
    program, arguments = words[0], words[1:]
    if program in ("python", "python3") and arguments[:2] in (["-m", "trsvr"], ["-m", "trsvr.cli"]):
        program, arguments = "trsvr", arguments[2:]
    if any(set(word) <= set("|<>()&") or "$" in word or "`" in word for word in words):
        raise PageError(
            f"{place}: pipes and substitutions are not run: <!-- not run: reason -->, or one command a line"
        )
    if program == "trsvr":
        return _check_trsvr(place, arguments, mention)
    checker = {"make": _check_make, "pip": _check_pip, "python": _check_python, "python3": _check_python}.get(program)
    if checker is None:
        raise PageError(f"{place}: nobody checks commands of {program!r}: <!-- not run: reason -->, or add it here")
    checker(place, arguments)
    return None


def run(place: str, words: list[str], variables: dict[str, str]) -> str | None:
    """Check a command and run it in the present folder, if it is one that can be; returns why it was not run."""
    way = check(place, words)
    if way is None:
        return "another program"
    reason = PARSED_ONLY.get(way) or next((PARSED_ONLY_OPTIONS[w] for w in words if w in PARSED_ONLY_OPTIONS), None)
    if reason is None and way == ("compare",) and _must_be_downloaded(words[2]):
        reason = "real data"
    if reason is not None:
        return reason
    from trsvr.cli import main

    for name, value in variables.items():
        os.environ[name] = value
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        status = main([*words[1:], *FASTER.get(way, ())])
    if status != 0:
        raise PageError(f"{place}: {shlex.join(words)} ended with status {status}:\n{told.getvalue()}")
    return None


def leaves() -> dict[tuple[str, ...], Any]:
    """Every sub-command of trsvr that does something, by its words."""
    import typer

    from trsvr.cli.app import app

    def walk(command: Any, way: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
        if not hasattr(command, "commands"):
            return {way: command}
        return {key: leaf for name, sub in command.commands.items() for key, leaf in walk(sub, (*way, name)).items()}

    return walk(typer.main.get_command(app), ())


# ------------------------------------------------------------------------------------------------------------ programs


def _check_trsvr(place: str, arguments: list[str], mention: bool) -> tuple[str, ...]:
    """Let the real command line parse it, down to every option's value."""
    import typer

    from trsvr.cli.app import app

    command: Any = typer.main.get_command(app)
    way: tuple[str, ...] = ()
    context: Any = None
    rest = [word for word in arguments if word != "--debug"]
    while True:
        name = " ".join(("trsvr", *way))
        try:
            eager = {"--help", "-h", "--version", "--install-completion", "--show-completion"} & set(rest[:1])
            if eager:
                return (*way, *eager)
            if hasattr(command, "commands"):
                if not rest:
                    if mention:
                        return way
                    raise PageError(f"{place}: {name} needs a sub-command")
                if mention and rest[0].isupper():  # `trsvr COMMAND --help`
                    return way
                context = command.make_context(name, list(rest), parent=context)
                # click keeps the sub-command's name apart, up to 8.1 under a public name.
                kept = "_protected_args" if hasattr(context, "_protected_args") else "protected_args"
                words = [*getattr(context, kept), *context.args]
                key, command, rest = command.resolve_command(context, words)
                way = (*way, key)
                continue
            context = command.make_context(name, list(rest), parent=context)
        except PageError:
            raise
        except Exception as error:  # of the parser's own kinds, which differ from version to version
            if mention and type(error).__name__ == "MissingParameter":
                return way
            told = error.format_message() if hasattr(error, "format_message") else repr(error)
            raise PageError(f"{place}: trsvr {shlex.join(arguments)}: {told}") from None
        _check_meaning(place, way, context.params, mention)
        return way


def _check_meaning(place: str, way: tuple[str, ...], given: dict[str, Any], mention: bool) -> None:
    """What the parser takes for any text: methods, data sets, studies, losses."""
    from trsvr.cli import contestants, options
    from trsvr.datasets.registry import ENTRIES
    from trsvr.experiments import specification

    def meant(name: str) -> bool:
        return not name.isupper()  # STUDY and FILE stand for something

    try:
        if way == ("compare",):
            contestants.parse_methods(given["methods"])
            if meant(given["dataset"]) and given["dataset"] not in ENTRIES and not Path(given["dataset"]).exists():
                raise ValueError(f"no data set and no file {given['dataset']!r}")
        if way[0] == "paper" and way[1] in ("run", "tune", "list"):
            studies = given.get("studies") or ([given["study"]] if given.get("study") else [])
            for study in studies:
                if meant(study) and not study.endswith(".toml"):
                    specification.find(study)
        if "loss" in given:
            options.objective(*(given[name] for name in ("loss", "l2", "gamma", "a", "delta")))
        for name in ("alpha", "step", "batch_size", "inner_steps"):
            if isinstance(given.get(name), str):
                options.number(name, given[name], "auto")
    except ValueError as error:
        raise PageError(f"{place}: {error}") from None


def _must_be_downloaded(name: str) -> bool:
    from trsvr.datasets.registry import ENTRIES

    return name in ENTRIES and name not in ("synthetic", "breast-cancer", "digits-even")


def _check_make(place: str, arguments: list[str]) -> None:
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or "Nothing to be done" in done.stdout:
        raise PageError(f"{place}: make {shlex.join(arguments)}: {done.stderr or done.stdout}")


def _check_pip(place: str, arguments: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if arguments[:1] != ["install"]:
        raise PageError(f"{place}: only pip install is known here")
    for word in arguments[1:]:
        match = re.fullmatch(r"(trsvr|\.)(?:\[([\w,]+)\])?", word)
        if match is None:
            if word.startswith("-"):
                continue
            raise PageError(f"{place}: pip install {word}: not ours; <!-- not run: reason -->")
        for extra in (match[2] or "").split(","):
            if extra and extra not in extras:
                raise PageError(f"{place}: there is no extra {extra!r}; there are {', '.join(extras)}")


def _check_python(place: str, arguments: list[str]) -> None:
    """A script of ours, which must be there and know the options."""
    if arguments[:1] == ["-m"] and arguments[1:]:  # python -m benchmarks.peers
        module = ROOT.joinpath(*arguments[1].split("."))
        script = module / "__main__.py" if module.is_dir() else module.with_suffix(".py")
        arguments = [script.relative_to(ROOT).as_posix(), *arguments[2:]]
    if not arguments or not arguments[0].endswith(".py"):
        raise PageError(f"{place}: python {shlex.join(arguments)}: <!-- not run: reason -->")
    script = ROOT / arguments[0]
    if not script.is_file():
        raise PageError(f"{place}: there is no script {arguments[0]}")
    texts = "\n".join(path.read_text(encoding="utf-8") for path in script.parent.glob("*.py"))
    for word in arguments[1:]:
        option = word.partition("=")[0]
        if option.startswith("--") and f'"{option}"' not in texts:
            raise PageError(f"{place}: {arguments[0]} has no option {option}")
