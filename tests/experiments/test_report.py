"""Figures, tables and the two reports; tuning; the command itself."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tiny_study import TINY, command

from trsvr import cli
from trsvr.experiments import figures, report, results, specification, tuning
from trsvr.experiments import runner as running


def test_all_files_are_written(reported):
    folder, written = reported
    names = {str(path.relative_to(folder)) for path in written}
    assert {"report.md", "report.html"} <= names
    for study in ("tiny-synthetic", "tiny-nonconvex-synthetic"):
        assert (folder / "figures" / f"{study}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / "figures" / f"{study}.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert not [path for path in folder.rglob(".*") if path.name != ".lock"]


def test_the_page_stands_alone_and_trusts_no_name(reported):
    folder, _ = reported
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<b>study</b>" not in page
    assert "&lt;b&gt;study&lt;/b&gt; &amp; friends" in page
    assert "alert(1)</script>" not in page
    assert page.count("</script>") == 2  # the data's and the script's own
    sources = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page)
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "@import" not in page
    script = page.split('id="curves-data"')[1].replace("/*! https://github.com/leeoniya/uPlot", "")
    assert not re.search(r"fetch\(|XMLHttpRequest|https?://(?!www\.w3\.org)", script)


def test_the_pages_data_are_the_results(reported):
    folder, _ = reported
    page = (folder / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="curves-data">(.*?)</script>', page, re.S).group(1))
    line = data["studies"][0]["problems"][0]["lines"][0]
    run = results.read(folder).study("tiny").subjects[0].line("TRSVR-EstH").runs[0]
    assert line["label"] == "TRSVR-EstH"
    assert line["runs"][0]["passes"] == pytest.approx(run["passes"], rel=1e-4)
    assert line["runs"][0]["gradient_norm_sq"] == pytest.approx(run["gradient_norm_sq"], rel=1e-4)


def test_the_tables_numbers(reported):
    folder, _ = reported
    text = (folder / "report.md").read_text(encoding="utf-8")
    subject = results.read(folder).study("tiny").subjects[0]
    line = subject.line("TRSVR-EstH")
    gaps = [run["objective_value"][-1] - subject.facts["value"] for run in line.runs]
    row = next(row for row in text.splitlines() if row.startswith("| TRSVR-EstH |"))
    assert f"{np.median(gaps):.1e}" in row
    assert f"{0.5 * subject.facts['component_smoothness']:.3g}" in row
    words = " ".join(text.split())  # lines are short
    assert "runs ended in another basin" in words
    assert "agree to" in words
    assert text.count("\n|") > 20
    for line in text.splitlines():
        if line.startswith("|"):  # every row has as many cells as its head
            assert line.count(" | ") == line.replace("\\|", "").count("|") - 2


def test_the_tables_can_stand_in_another_document(reported, tmp_path):
    folder, _ = reported
    path = tmp_path / "page.md"
    path.write_text(f"# Mine\n\nwords\n\n{report.MARK}\nold", encoding="utf-8")
    report.write_into(folder, path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Mine\n\nwords\n")
    assert "old" not in text.split(report.MARK)[1]
    assert "| TRSVR-EstH |" in text
    assert "![" not in text
    report.write_into(folder, path)
    assert path.read_text(encoding="utf-8") == text
    (tmp_path / "other.md").write_text("nothing")
    with pytest.raises(ValueError, match="it has no line"):
        report.write_into(folder, tmp_path / "other.md")


def test_a_report_before_anything_is_finished(tmp_path):
    """Studies that were asked for and killed at once: the report says what is missing and does not stumble."""
    studies = [specification.find(name) for name in ("convex", "step-size", "defaults")]
    small = [replace(s, problems=tuple(p for p in s.problems if p.data == "synthetic")[:1], seeds=1) for s in studies]
    small = [replace(s, problems=(replace(s.problems[0], rows=200),)) for s in small]
    runner = running.Runner(tmp_path)
    plans = runner.plan(small)
    running.record(tmp_path, plans, False)
    report.write(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Not finished yet, runs still to be made: convex 8, defaults 9, step-size 39." in text
    assert text.count("not tested") == 14
    # One run of each is enough for its section.
    for plan in plans:
        runner.run([plan.jobs()[0][2]])
    report.write(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Performance profiles (Dolan & Moré)" in text
    assert "Final gap against α" in text


def contrast(one: str, other: str = "#ffffff") -> float:
    """The ratio of WCAG 2.1 between two colours."""

    def luminance(colour):
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_lines_are_seen_on_white():
    """3:1, which WCAG asks of graphics; the command line's figures and the report's chart take their colours here."""
    assert contrast("#000000") == pytest.approx(21.0)
    assert contrast("#767676") == pytest.approx(4.54, abs=0.01)  # the grey that is just enough for text
    assert min(map(contrast, figures.COLOURS)) >= 3.0


def test_the_figure_of_compare_can_be_read_without_colours(tmp_path, monkeypatch):
    """Every curve has its own dashes, and all text has a contrast of 4.5:1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    np.savez(tmp_path / "data.npz", X=X, y=np.where(X[:, 0] > 0.1, 1, -1))
    monkeypatch.chdir(tmp_path)
    methods = "trsvr,svrg,saga,lbfgs"
    assert cli.main(["compare", "data.npz", "--methods", methods, "--passes", "5", "--seeds", "1", "--out", "o"]) == 0
    drawn = (tmp_path / "o" / "figure.svg").read_text(encoding="utf-8")
    strokes = re.findall(
        r"fill: none; stroke(?:-dasharray: ([\d. ,]+); stroke-dashoffset: 0; stroke)?: (#\w{6}); stroke-width: 1.8",
        drawn,
    )
    assert len(set(strokes)) == len({dashes for dashes, _ in strokes}) == 4
    assert min(contrast(colour) for _, colour in strokes) >= 3.0
    words = re.findall(r'<g id="text_\d+">.*?</g>', drawn, flags=re.S)
    assert words
    assert all(contrast(colour) >= 4.5 for text in words for colour in re.findall(r"fill: (#\w{6})", text))


def test_styles_tell_lines_apart(reported):
    folder, _ = reported
    assert len({figures.style(place) for place in range(16)}) == 16
    lines = figures.drawn_lines(results.read(folder).study("tiny").subjects[0])
    assert len(set(figures.styles(lines))) == len(lines)


def test_tuning_chooses_the_best_and_runs_it_on_other_seeds(tiny, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    runner = running.Runner(folder)
    (plan,) = runner.plan([tiny])
    running.record(folder, [plan], False)
    assert tuning.tune(runner, [plan], 2) == 3 * 2 + 3
    tuned = running.read_run(folder)["studies"]["tiny"]["tuned"]
    alphas = [point["chosen"]["alpha"] for point in tuned["grid"]]
    assert alphas == pytest.approx([0.01, 0.1, 1.0])
    best = min(tuned["grid"], key=lambda point: point["value"])
    assert [point["best"] for point in tuned["grid"]] == [point is best for point in tuned["grid"]]
    assert {job["seed"] for job in tuned["jobs"]} == {0, 1, 2}
    assert all(job["settings"]["alpha"] == best["chosen"]["alpha"] for job in tuned["jobs"])
    line = results.read(folder).study("tiny").subjects[0].line("TRSVR-EstH", "tuned")
    assert line.shown == "TRSVR-EstH (re-tuned)"
    assert len(line.runs) == 3
    # On the fresh seeds it is what it was chosen for: better than the worst of the grid.
    assert (
        line.final("gap") < max(point["value"] for point in tuned["grid"]) - plan.facts[next(iter(plan.facts))]["value"]
    )
    report.write(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "tuned again" in text
    assert "each run for 5 epochs on 2 seeds of the grid's own" in " ".join(text.split())
    assert "TRSVR-EstH (re-tuned)" in text
    # What was tuned of another method stays; the same method is replaced.
    other = {"problem": "p", "label": "another", "chosen": {"alpha": 1.0}, "value": 1.0, "best": True}
    tuning.remember(folder, "tiny", {"jobs": [], "grid": [other], "seeds": 1})
    tuning.remember(folder, "tiny", tuned)
    assert len(running.read_run(folder)["studies"]["tiny"]["tuned"]["grid"]) == 4
    # A later run of the study keeps what was tuned.
    running.record(folder, [plan], False)
    assert "tuned" in running.read_run(folder)["studies"]["tiny"]


def test_the_command_from_list_to_report(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    process = command("run", "tiny.toml", "--jobs", "1", "--seeds", "1", folder=tmp_path)
    said, complaints = process.communicate(timeout=240)
    assert process.returncode == 0, complaints
    assert "3 of 3 done" in complaints
    assert "Written: paper/report.md, paper/report.html and 2 figures" in said
    assert (tmp_path / "paper" / "report.html").exists()


def test_a_complete_run_has_the_alternatives_and_the_grids(tmp_path):
    more = "epochs = 5\ngrid_epochs = 2\npaper = true\ntimed = true"
    (tmp_path / "tiny.toml").write_text(TINY.replace("epochs = 5", more, 1))
    process = command("run", "tiny.toml", "--jobs", "1", "--seeds", "1", "--complete", folder=tmp_path)
    _, complaints = process.communicate(timeout=240)
    assert process.returncode == 0, complaints
    studies = running.read_run(tmp_path / "paper")["studies"]
    assert list(studies) == ["tiny", "tiny-zero"]  # its data are generated: no other scaling, and it has parameters
    assert studies["tiny-zero"]["study"]["start"] == "zero"
    assert len(studies["tiny"]["tuned"]["grid"]) == 3
    assert "tuned" not in studies["tiny-zero"]
    # Points of a grid need neither a clock nor the whole budget; the chosen value has both.
    text = (tmp_path / "paper" / "report.md").read_text(encoding="utf-8")
    said = " ".join(text.split())
    assert "each run for 2 epochs (the chosen value for 5 epochs) on 1 seed of the grid's own" in said
    (line,) = results.read(tmp_path / "paper").study("tiny").subjects[0].with_roles("tuned")
    assert line.runs[0].columns["epoch"][-1] == 5


def test_list_shows_every_study(capsys):
    assert cli.main(["paper", "list"]) == 0
    shown = capsys.readouterr().out
    for name in ("convex", "double-well", "sgd-adam", "sensitivity", "ablation", "step-size", "defaults"):
        assert name in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "convx"], ["must be one of", "did you mean 'convex'?"]),
        (["run", "nothing.toml"], ["nothing.toml"]),
        (["run", "convex", "convex"], ["convex is named twice"]),
        (["run", "convex", "--seeds", "0"], ["--seeds must be a whole number >= 1, got 0"]),
        (["run", "convex", "--jobs", "0"], ["--jobs must be a whole number >= 1, got 0"]),
        (["run", "convex", "--complete", "--alternative", "zero"], ["--complete has every alternative in it"]),
        (["tune", "complexity"], ["complexity has no grid to tune on"]),
        (["run", "convex", "--only", "SVGR"], ["--only must be one of", "did you mean"]),
        (["report", "--out", "nowhere"], ["--out nowhere: nothing was run there yet"]),
    ],
)
def test_refused_in_one_line(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    for word in words:
        assert word in said.err
    assert not list(tmp_path.iterdir())
