"""Makes one site of docs/ and of what its pages link to: mkdocs.yml names these functions, and `make site` runs them.

Pages link as GitHub wants it, by the paths of the repository. What lies in docs/ MkDocs finds without a list. A notebook, and any
file or folder that a page links to, becomes a page too, so no link leaves the site: it is complete without a network.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from markdown.extensions.toc import nest_toc_tokens
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import get_toc

ROOT = Path(__file__).resolve().parents[2]
DOCS, NOTEBOOKS, OTHERS = "docs/", "notebooks/", "repository/"
BEFORE_OTHER_PLUGINS = 100
"""mkdocs-jupyter looks for notebooks among the files that are there when its turn comes."""

MARKDOWN_LINK = re.compile(
    r"""
    ^\ *(?P<fence>`{3,}).*?^\ *(?P=fence)            # a block of code
    | (?P<ticks>`+)(?!`)(?:(?!\n\n).)*?(?P=ticks)    # code within a sentence
    | (?<=\]\()(?!\w+:|\#)(?P<link>[^)#\s]+)        # what a link leads to, within the repository
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
"""Code is matched as well, so that `names["a"](b)` in it is no link."""
HTML_LINK = re.compile(r'(?<=\bhref=")(?!\w+:|#)([^"#]+)')
HEADING = re.compile(r'<h([1-6])\b[^>]*\bid="([^"]+)"[^>]*>(.*?)<a class="anchor-link"', re.DOTALL)
LONG_NAME = re.compile(r"(?<=<code>)[^<>\s&]{30,}(?=</code>)")
WHERE_IT_MAY_BREAK = re.compile(r"(?<=[/_.:])(?=\w)")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADER_CELL = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
CELL = re.compile(r"<td\b")
TAG = re.compile(r"<[^>]+>")
SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
COPY_BUTTON = "clipboard"
"""is in those scripts of a notebook that stay. The others are of MathJax and mermaid, which would be loaded from elsewhere."""
RECORD = re.compile(r"decisions/\d")
ALL_RECORDS = "\n\n[All decisions](README.md)\n"
"""ends each record: the navigation has their list alone"""
SEARCH_WEIGHT = 0.5
"""how much a record weighs among what the search finds"""

LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".properties": "properties"}
"""How the blocks of code of files are coloured; others are not."""


def place_of(path: str) -> str:
    """Where the site has a file or folder of the repository."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    if path.startswith(NOTEBOOKS) and path.endswith(".ipynb"):
        return path
    visible = path.removeprefix(".")  # MkDocs leaves out whatever begins with a dot
    return OTHERS + (visible if path.endswith(".md") else f"{visible}.md")


def path_of(place: str) -> str:
    """The file of the repository of which the site has this page. It need be no more than where links are counted from."""
    if place.startswith(OTHERS):
        return place.removeprefix(OTHERS)
    return place if place.startswith(NOTEBOOKS) else DOCS + place


def target_of(link: str, path: str) -> str:
    """What a link on the page `path` leads to, from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def links_in(markdown: str) -> list[str]:
    """What its links lead to within the repository, without anchors."""
    return [match["link"] for match in MARKDOWN_LINK.finditer(markdown) if match["link"]]


def linked_from(pages: list[str]) -> list[str]:
    """Files and folders outside of docs/ that these pages link to, and those that they link to themselves."""
    found: list[str] = []
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        for link in links_in((ROOT / page).read_text(encoding="utf-8")):
            target = target_of(link, page)
            if target not in found and not target.startswith((DOCS, "..")) and (ROOT / target).exists():
                found.append(target)
                waiting += [target] if target.endswith(".md") else []
    return found


def shown(path: str) -> str:
    """The page of a file, in a block of code, or of the files of a folder, one below the other."""
    source = ROOT / path
    if source.suffix == ".md":
        return source.read_text(encoding="utf-8")
    if source.is_dir():
        files = [file for file in sorted(source.iterdir()) if file.is_file()]
        return f"# {path}/\n\n" + "\n".join(f"## {file.name}\n\n{_block(file)}" for file in files)
    return f"# {path}\n\n{_block(source)}"


def _block(file: Path) -> str:
    if file.suffix == ".ipynb":
        return f"[as a page]({file.relative_to(ROOT).as_posix()})\n"
    return f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8').rstrip()}\n````\n"


def notebooks(first: list[str]) -> list[str]:
    """All notebooks: those named `first` in that order, then the others."""
    names = sorted(path.stem for path in ROOT.glob(f"{NOTEBOOKS}*.ipynb"))
    names.sort(key=lambda name: first.index(name) if name in first else len(first))
    return [f"{NOTEBOOKS}{name}.ipynb" for name in names]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the notebooks where the navigation says `notebooks/`, so that a new one needs no line there."""
    for section in config.nav or []:
        for entry in section.get("Tutorial", []):
            if entry.get("Notebooks") == NOTEBOOKS:
                entry["Notebooks"] = notebooks(config.extra["first_notebooks"])
    return config


@event_priority(BEFORE_OTHER_PLUGINS)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks, as they ran last, and what pages link to outside of docs/."""
    for place in notebooks([]):
        files.append(File(place, str(ROOT / DOCS / "results"), config.site_dir, config.use_directory_urls))
    pages = [path_of(file.src_uri) for file in files if file.src_uri.endswith((".md", ".ipynb"))]
    for path in linked_from(pages):
        if place_of(path) != path:
            files.append(File.generated(config, place_of(path), content=shown(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links by the paths of the repository into links by those of the site; decide what the search finds."""
    here = page.file.src_uri
    if here.startswith(OTHERS):
        page.meta["search"] = {"exclude": True}
    elif RECORD.match(here):
        page.meta["search"] = {"boost": SEARCH_WEIGHT}

    def moved(match: re.Match[str]) -> str:
        if not match["link"]:
            return match[0]
        place = place_of(target_of(match["link"], path_of(here)))
        return posixpath.relpath(place, posixpath.dirname(here) or ".")

    back = ALL_RECORDS if RECORD.match(here) else ""
    return MARKDOWN_LINK.sub(moved, markdown + back)


def headings(html: str) -> list[dict[str, Any]]:
    """The headings of a notebook, as the table of contents wants them. mkdocs-jupyter leaves out what is code in them."""
    return [
        {"level": int(level), "id": anchor, "name": re.sub(r"<[^>]+>", "", text)}
        for level, anchor, text in HEADING.findall(html)
    ]


def labelled(html: str) -> str:
    """Name the column in each cell of the tables: on a phone the cells of a row stand below each other, without the header."""

    def of_table(table: re.Match[str]) -> str:
        names = [TAG.sub("", name).strip().replace('"', "&quot;") for name in HEADER_CELL.findall(table[0])]

        def of_row(row: re.Match[str]) -> str:
            left = iter(names)
            return CELL.sub(lambda cell: f'{cell[0]} data-label="{next(left, "")}"', row[0])

        return ROW.sub(of_row, table[0])

    return TABLE.sub(of_table, html)


def on_page_content(html: str, page: Page, files: Files, **_: object) -> str:
    """Let long names of tests and options break between their parts, and label the cells of tables.

    Notebooks, which come as HTML: move their links as well,
    list their headings, and leave out the scripts that would come from elsewhere.
    """
    here = page.file.src_uri
    html = LONG_NAME.sub(lambda name: WHERE_IT_MAY_BREAK.sub("<wbr>", name[0]), html)
    if not here.endswith(".ipynb"):
        return labelled(html)

    def moved(match: re.Match[str]) -> str:
        target = files.get_file_from_path(place_of(target_of(match[1], here)))
        return target.url_relative_to(page.file) if target else match[1]

    page.toc = get_toc(nest_toc_tokens(headings(html)))
    return HTML_LINK.sub(moved, SCRIPT.sub(lambda script: script[0] if COPY_BUTTON in script[0] else "", html))
