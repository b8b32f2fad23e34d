"""What MkDocs is told beside `mkdocs.yml`: files of the repository that pages link to become part of the site.

Pages in `docs/` link to pictures, examples and texts outside of it, so that the links work in a checkout. Here each
such target becomes a file of the site, a page where it is code or Markdown, and the links follow. A line
`<!-- README: Heading -->` is replaced by that section of README.md.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\(|(?:src|href)=\")([^)\"#\s]+)((?:#[^)\"\s]*)?(?:\)|\"))")
SECTION = re.compile(r"<!-- README: (.+) -->")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PICTURES = {".gif", ".png", ".svg"}
RENAMED = {DOCS / "results" / "index.html": "results/index_of_reports.html"}
"""Files that `exclude_docs` leaves out, and what they are called instead."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of `docs/`, and the index of reports, whose name results/README.md takes."""
    for path, uri in RENAMED.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    waiting = [file.src_uri for file in files.documentation_pages()]
    while waiting:
        source = waiting.pop()
        for target in outside(source, text_of(source, files)):
            if files.get_file_from_path(uri_of(target)) is None:
                files.append(made(target, config))
                waiting.append(uri_of(target))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the sections that it asks for, and with links to where the site has their targets."""
    return relinked(page.file.src_uri, with_sections(page.file.src_uri, markdown))


def text_of(source: str, files: Files) -> str:
    file = files.get_file_from_path(source)
    return with_sections(source, file.content_string) if file is not None and file.is_documentation_page() else ""


def place_of(source: str) -> Path:
    """Where in the repository the text of a page stands, for its relative links."""
    return ROOT / source.removeprefix("repository/") if source.startswith("repository/") else DOCS / source


def uri_of(target: Path) -> str:
    """The path in the site's sources of a file or folder of the repository."""
    if target.is_relative_to(DOCS):
        return RENAMED.get(target, target.relative_to(DOCS).as_posix())
    if target == ROOT / "README.md":
        return "index.md"
    page = target.suffix not in PICTURES | {".md"}
    return "repository/" + target.relative_to(ROOT).as_posix() + (".md" if page else "")


def resolved(source: str, link: str) -> Path | None:
    """The file or folder of the repository that a page's link names; None of a link elsewhere.

    Raises:
        PluginError: for a link to what is not there.
    """
    if re.match(r"[a-z]+:|/", link):
        return None
    target = Path(os.path.normpath(place_of(source).parent / link))
    if not target.exists() or not target.is_relative_to(ROOT):
        raise PluginError(f"{source} links to {link}, which is not there")
    return target


def outside(source: str, markdown: str) -> list[Path]:
    """Targets of a page's links that `docs/` does not hold."""
    found = (resolved(source, link) for _, link, _ in LINK.findall(CODE.sub("", markdown)))
    return [target for target in found if target is not None and not target.is_relative_to(DOCS)]


def made(target: Path, config: MkDocsConfig) -> File:
    """A file of the repository as a file of the site; code is a page, a folder one page of all its code."""
    uri = uri_of(target)
    if target.suffix in PICTURES:
        return File.generated(config, uri, abs_src_path=str(target))
    if target.suffix == ".md":
        return File.generated(config, uri, content=target.read_text(encoding="utf-8"))
    name = target.relative_to(ROOT).as_posix()
    sources = [target] if target.is_file() else sorted(target.glob("*.py"))
    blocks = [
        f'```python title="{source.relative_to(ROOT).as_posix()}"\n{source.read_text(encoding="utf-8")}```\n'
        for source in sources
    ]
    return File.generated(config, uri, content="\n".join([f"# {name}\n", *blocks]))


def relinked(source: str, markdown: str) -> str:
    """The links of a page, but for those in code, as they are in the site."""
    here = os.path.dirname(source)

    def follow(match: re.Match[str]) -> str:
        target = resolved(source, match[2])
        if target is None or (target.is_dir() and target.is_relative_to(DOCS)):
            return match[0]
        return f"{match[1]}{os.path.relpath(uri_of(target), here)}{match[3]}"

    parts, end = [], 0
    for code in CODE.finditer(markdown):
        parts += [LINK.sub(follow, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(follow, markdown[end:])])


def with_sections(source: str, markdown: str) -> str:
    """The text with the sections of README.md that it asks for; links as from the page's own folder."""

    def section(match: re.Match[str]) -> str:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        found = re.search(rf"^## {re.escape(match[1])}\n(.*?)(?=^## |\Z)", readme, re.DOTALL | re.MULTILINE)
        if found is None:
            raise PluginError(f"{source} asks for the section {match[1]!r}, which README.md has not")
        here = place_of(source).parent
        return LINK.sub(lambda m: m[0] if ":" in m[2] else m[1] + os.path.relpath(ROOT / m[2], here) + m[3], found[1])

    return SECTION.sub(section, markdown)
