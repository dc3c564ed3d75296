"""Every command and every Python block of README.md, CONTRIBUTING.md and docs/ works; those that cannot say why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import check, run, split
from fill_pages import filled, long_lines
from pages import ROOT, PageError, blocks, pages, spans

from trsvr.experiments import report

RUNNER = Path(__file__).with_name("run_page.py")


def has_blocks(page):
    try:
        return any(block.kind != "text" for block in blocks(page))
    except PageError:
        return True  # its own test will fail, and say why


WITH_BLOCKS = [page for page in pages() if has_blocks(page)]
# Solvers of one's own are compiled anew in every process.
SLOW = ("docs/guides/own-solver.md",)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page for page in WITH_BLOCKS]
)
def test_the_blocks_of_a_page_run_in_order(page, tmp_path):
    """In a process and an empty folder of their own, as pasted."""
    done = subprocess.run(
        [sys.executable, RUNNER, page],
        cwd=tmp_path,
        # pyparsing takes the first for a wish to hear its own diagnostics, of which older matplotlibs have some.
        env={
            **os.environ,
            "PYTHONWARNINGS": "error,ignore:::pyparsing",
            "MPLBACKEND": "Agg",
            "TRSVR_QUIET": "1",
            "NO_COLOR": "1",
        },
        capture_output=True,
        text=True,
        timeout=900,  # the first run compiles, on a machine that may be busy
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"{page}\n{done.stdout}\n{done.stderr}"
    told = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(("ran ", "checked ", "not run "))]
    wanted = [block for block in blocks(page) if block.kind != "text"]
    assert len(told) >= len(wanted), "every block is told of"


@pytest.mark.parametrize("page", pages())
def test_commands_in_sentences_exist(page):
    for span in spans(page):
        for place, words, _ in split(span):
            check(place, words, mention=True)


@pytest.mark.parametrize("page", pages())
def test_lines_are_short(page):
    """Outside tables; `python tests/package/fill_pages.py PAGE...` breaks long ones."""
    assert long_lines((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_numbers_of_the_replication_page_are_written_by_the_command():
    """Above the mark no result stands in the prose; below it is what `trsvr paper report --into` has written."""
    words, written = (ROOT / "docs/replication.md").read_text(encoding="utf-8").split(report.MARK)
    prose = re.sub(r"```.*?```|`[^`]*`", "", words, flags=re.S)
    assert re.findall(r"\d+\.\d+|\de[-+]?\d|\d+ ?%", prose) == []
    line, text = written.lstrip("\n").split("\n\n", 1)
    assert line == report.checksum(text)


def test_pages_are_found():
    found = pages()
    assert "README.md" in found
    assert "docs/pytorch.md" in found
    assert {"README.md", "CONTRIBUTING.md", "docs/reliability.md"} <= set(WITH_BLOCKS)


# --------------------------------------------------------------------------------------------- the checks themselves


def shell(text):
    return blocks("page.md", f"```sh\n{text}\n```")[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trsvr slove data.svm", "slove"),
        ("trsvr solve data.svm --l3 1", "--l3"),
        ("trsvr solve data.svm --l2 much", "much"),
        ("trsvr solve", "FILE"),
        ("trsvr solve data.svm --loss square", "square"),
        ("trsvr compare synthetic --methods trsrv", "trsrv"),
        ("trsvr compare nothing-of-that-name", "nothing-of-that-name"),
        ("trsvr paper run no-such-study", "no-such-study"),
        ("trsvr data", "sub-command"),
        ("make nothing-of-that-name", "nothing-of-that-name"),
        ("pip install 'trsvr[everything]'", "everything"),
        ("pip install something", "not ours"),
        ("python benchmarks/nothing.py", "no script"),
        ("python benchmarks/adaptive.py --nothing", "--nothing"),
        ("python -m benchmarks.nothing", "no script"),
        ("python -m benchmarks.adaptive --nothing", "--nothing"),
        ("trsvr data list | head", "pipes"),
        ("rm -rf /", "nobody checks"),
        ("trsvr solve 'data.svm", "not a command"),
    ],
)
def test_commands_that_cannot_work_are_found(text, words):
    def checked():
        for place, command, _ in split(shell(text)):
            check(place, command)

    with pytest.raises(PageError, match=r"^page.md:2: ") as error:
        checked()
    assert words in str(error.value)


def test_a_command_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PageError, match="ended with status 2"):
        run("page.md:1", ["trsvr", "solve", "missing.svm"], {})


def test_commands_are_cut_out_of_the_text():
    block = shell("A=b trsvr solve data.svm \\\n   --l2 1  # why\n\n$ make test && make demo")
    assert [(words, variables) for _, words, variables in split(block)] == [
        (["trsvr", "solve", "data.svm", "--l2", "1"], {"A": "b"}),
        (["make", "test"], {}),
        (["make", "demo"], {}),
    ]


def test_blocks_are_cut_out_of_the_text():
    text = """
1. An item

    ```python title="x"
    if True:
        pass
    ```

<!-- not run: needs a cluster -->
```
trsvr solve rows.svm --dask
```

~~~
a → b
~~~

````text
```python
raise
```
````
"""
    found = blocks("page.md", text)
    assert [(block.kind, block.line, block.reason) for block in found] == [
        ("python", 5, None),
        ("shell", 11, "needs a cluster"),
        ("text", 15, None),
        ("text", 19, None),
    ]
    assert found[0].text == "if True:\n    pass"
    for wrong, words in [
        ("<!-- not run -->\n```python\n1\n```", "reason"),
        ("<!-- not run: -->\n```python\n1\n```", "reason"),
        ("```pyhton\n1\n```", "pyhton"),
        ("```python\n1", "never closed"),
    ]:
        with pytest.raises(PageError, match=words):
            blocks("page.md", wrong)


def test_long_lines_are_found_and_broken():
    words = "word " * 40
    page = f"# Head\n\n{words}\n\n- {words}+ {words}\n\n| {words} |\n\n```text\n{words}\n```\n\nshort\nlines\n"
    assert [number for number, _ in long_lines(page)] == [3, 5, 10]
    made = filled(page)
    assert [line for _, line in long_lines(made)] == [words]  # code is not broken, and is found
    assert made.split() == page.split()
    assert "short\nlines\n" in made
    assert not any(line.lstrip().startswith("+ ") for line in made.splitlines())
