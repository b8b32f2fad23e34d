"""The site: strict, complete, without dead links, and without anything that a browser would fetch elsewhere."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
LOADED = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "use": "href",
}
"""Elements that a browser fetches for, and the attribute that says what."""


class Links(HTMLParser):
    """What a page loads, where it leads, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.leads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {anchor for name in ("id", "name") if (anchor := found.get(name))}
        if tag == "a" and (led := found.get("href")):
            self.leads.append(led)
        elif (target := found.get(LOADED.get(tag, ""))) and found.get("rel") != "canonical":
            self.loaded.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """Pages that were made of Markdown, by path; reports of kept results are not."""
    kept = {path for path in site.rglob("report.html")} | {site / "results" / "index_of_reports.html"}
    return {page: Links(page) for page in site.rglob("*.html") if page not in kept}


def is_elsewhere(link: str) -> bool:
    return re.match(r"(?!data:)[a-z][a-z+.-]*:|//", link) is not None


def test_docstrings_become_tables_not_headings(site):
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    assert "section-title" in text
    assert re.findall(r'<h\d id="(?:parameters|columns|returns|raises|attributes|notes)', text) == []


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert len(pages) > 60
    assert [(page.name, link) for page, found in pages.items() for link in found.loaded if is_elsewhere(link)] == []
    for report in site.rglob("report.html"):
        assert [link for link in Links(report).loaded if is_elsewhere(link)] == []
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_no_link_is_dead(site, pages):
    dead = []
    for page, found in pages.items():
        for link in [*found.leads, *found.loaded]:
            if is_elsewhere(link) or link.startswith("data:") or page.name == "404.html":
                continue
            path, _, anchor = unquote(link).partition("#")
            target = Path(os.path.normpath(page.parent / path.partition("?")[0])) if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                dead.append((page.relative_to(site).as_posix(), link))
    assert dead == []


def test_every_page_of_the_docs_is_in_the_navigation(site):
    from mkdocs.config import load_config

    def leaves(part):
        for entry in part if isinstance(part, list) else part.values():
            yield from leaves(entry) if isinstance(entry, (list, dict)) else [entry]

    listed = list(leaves(load_config(str(ROOT / "mkdocs.yml")).nav))
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert docs - set(listed) == set()
    assert len(listed) == len(set(listed))


def test_the_search_knows_pages_and_names(site):
    found = json.loads((site / "search" / "search_index.js").read_text(encoding="utf-8").removeprefix("var __index = "))
    places = {entry["location"] for entry in found["docs"]}
    assert {"first_steps.html", "concepts.html", "envs/d_clean.html", "results/index.html"} <= places
    assert "api/relations.html#sprii_envs.relations.PairSampler" in places
    assert "javascripts/iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("environments", "sprii_envs.world.World"),
        ("relations", "sprii_envs.relations.PairSampler"),
        ("banks", "sprii_envs.banks.build"),
        ("training", "sprii_train.protocol.check_learner"),
        ("training", "sprii_train.fit.fit"),
        ("learners", "sprii_train.learners.JEPA"),
        ("evaluation", "sprii_train.evaluation.evaluate_agent"),
    ],
)
def test_the_reference_has(site, pages, page, name):
    assert name in pages[site / "api" / f"{page}.html"].anchors


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_texts_at_the_top(name):
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if is_elsewhere(link):
            continue
        path, _, anchor = link.partition("#")
        target = ROOT / path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), link


def test_the_examples_are_all_listed():
    listed = set(
        re.findall(r"\]\(\.\./examples/([\w.]+)\)", (ROOT / "docs" / "examples.md").read_text(encoding="utf-8"))
    )
    folders = {path.parent.name for path in (ROOT / "examples").glob("*/__init__.py")}
    assert listed == {path.name for path in (ROOT / "examples").glob("*.py")} | folders


def test_no_row_is_cut_off_from_its_table():
    """A row after an empty line is shown as text, unless what follows it makes it a table's head."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    assert len(files) > 40
    for path in files:
        lines = path.read_text(encoding="utf-8").splitlines()
        for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
            if line.startswith("|") and not before.startswith("|"):
                assert re.fullmatch(r"[|:\- ]+", after), f"{path.relative_to(ROOT)}: {line}"
