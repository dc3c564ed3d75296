"""Files about the project agree with each other: versions, citation, the README's table, figure and links."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pages import ROOT, pages

from trsvr import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(*extras):
    """Our declared requirements, without those on ourselves."""
    texts = [*PROJECT["dependencies"], *(text for name in extras for text in PROJECT["optional-dependencies"][name])]
    found = [Requirement(text) for text in texts]
    return [requirement for requirement in found if requirement.name != "trsvr"]


def test_the_lowest_versions_that_are_declared_are_those_that_are_tested():
    extras = set(PROJECT["optional-dependencies"]) - {"dev", "all", "docs", "bench"}  # no test runs what these bring
    declared: dict[str, Version] = {}
    for requirement in requirements(*extras):
        (bound,) = requirement.specifier
        assert bound.operator == ">=", requirement
        name = canonicalize_name(requirement.name)
        declared[name] = max(declared.get(name, Version("0")), Version(bound.version))
    pinned: dict[str, Version] = {}
    for line in (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            (pin,) = Requirement(line).specifier
            assert pin.operator == "==", line
            pinned[canonicalize_name(Requirement(line).name)] = Version(pin.version)
    of_their_time = {"click", "pyparsing"}  # what old packages need, though we do not declare it
    assert {name: pinned[name] for name in pinned if name not in of_their_time} == declared


def test_all_extras_are_in_all():
    extras = PROJECT["optional-dependencies"]
    assert Requirement(extras["all"][0]).extras == set(extras) - {"all", "dev", "test", "docs", "bench"}
    assert {"all", "test"} <= Requirement(extras["dev"][0]).extras


def test_citation():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors", "version", "license"} <= set(citation)
    assert str(citation["version"]) == __version__
    assert citation["license"] == PROJECT["license"].split(" AND ")[0]  # the others are of what is packed with it
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= set(paper)  # what the format asks of a reference
    assert [author["family-names"] for author in paper["authors"]] == ["Fang", "Zheng", "Lavaei"]
    assert paper["title"] in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_the_changelog_knows_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+)", text, flags=re.M)
    assert versions[0] == "Unreleased"
    assert versions[1] == __version__
    assert versions[1:] == sorted(versions[1:], key=Version, reverse=True)


def test_the_workflows_run_what_is_declared():
    folder = ROOT / ".github" / "workflows"
    flows = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in folder.glob("*.yml")}
    assert set(flows) == {"ci", "package", "publish"}
    tested = flows["ci"]["jobs"]["tests"]["strategy"]["matrix"]["python"]
    declared = [text.rpartition(" :: ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert set(declared) <= set(tested)
    assert PROJECT["requires-python"] == f">={tested[0]}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for flow in flows.values():
        assert flow["permissions"] == {"contents": "read"}
        for name, job in flow["jobs"].items():
            for step in job.get("steps", []):
                for target in re.findall(r"^make (\w+)$", step.get("run", ""), flags=re.M):
                    assert re.search(rf"^{target}:", makefile, flags=re.M), f"{name}: make {target}"


@pytest.fixture(scope="module")
def drawing():
    """benchmarks/readme.py, which is no part of the package."""
    place = importlib.util.spec_from_file_location("drawing_of_the_readme", ROOT / "benchmarks" / "readme.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_table_of_the_readme_is_the_one_that_was_measured(drawing):
    measured = json.loads(drawing.NUMBERS.read_text(encoding="utf-8"))
    first_steps = json.loads(drawing.FIRST_STEPS.read_text(encoding="utf-8"))
    text = drawing.README.read_text(encoding="utf-8")
    assert drawing.with_numbers(text, measured, first_steps) == text, "run python benchmarks/readme.py"
    for problem in measured["problems"]:
        assert f"| {problem['rows']} × {problem['columns']}" in text
        problem["seconds"] = {name: [2 * t if t else t for t in times] for name, times in problem["seconds"].items()}
    assert drawing.with_numbers(text, measured, first_steps) != text
    later = {**first_steps, "test": {"seconds": 600.0, "cores": 3}}
    assert "`make test` takes 10 min on 3 cores, installing included." in " ".join(drawing.waits(later).split())


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_the_figure_of_the_readme_can_be_drawn(drawing, tmp_path):
    sets = drawing.entries(json.loads(drawing.NUMBERS.read_text(encoding="utf-8")))
    drawing.draw(sets, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    drawing.draw(sets[:1], tmp_path / "one.png")  # whatever is measured next time


@pytest.mark.parametrize("page", [page for page in pages() if "/" not in page])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#")):
            assert (ROOT / target.partition("#")[0]).exists(), f"{page}: {target}"
