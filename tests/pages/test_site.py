"""The site is built offline and strictly, no link in it is dead, and no page loads anything from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag

import pytest

from docs.site.hooks import labelled, linked_from, links_in, place_of, target_of
from tests.pages.test_documentation import ROOT, anchors

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]

SECONDS = 240
BUILD = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        raise OSError(f"the site is built without a network, and not with {event} of {arguments}")

sys.addaudithook(refuse)
from mkdocs.__main__ import cli
cli(["build", "--strict", "--config-file", sys.argv[1], "--site-dir", sys.argv[2]])
"""

LOADING = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src",
    "track": "src", "input": "src", "object": "data", "use": "href", "image": "href", "link": "href",
}  # fmt: skip
"""The attribute by which an element makes a browser load something."""
NOT_LOADED = {"prev", "next", "canonical", "alternate"}
"""Kinds of `link` that say something and load nothing."""
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")
ELSEWHERE = re.compile(r"(?:https?:)?//")

ELEMENTS = set(
    re.findall(
        r"[\w-]+",
        """
    html head meta title link script style body div span p a h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table caption colgroup col
    thead tbody tfoot tr th td pre code samp kbd em strong i b del ins sub sup small q cite abbr mark time img figure figcaption
    wbr nav header footer main article section aside details summary blockquote hr br form input label button noscript template
    iframe clipboard-copy svg g path rect circle line polyline polygon ellipse text tspan defs use
    """,
    )
)
"""Elements that a page may have. Another name is text that looks like an element, as `array<struct>`: browsers hide it."""
NOT_FOUND = "404.html"
"""The page that a server shows at any address, so that its links begin at the root."""


class Link(NamedTuple):
    """A link, or something that is loaded, on a page."""

    page: str
    target: str


class Page(HTMLParser):
    """The parts of a page: its anchors, links, loaded files, and the text of its scripts and styles."""

    def __init__(self, name: str, html: str) -> None:
        super().__init__()
        self.name = name
        self.anchors: set[str] = set()
        self.links: list[Link] = []
        self.loaded: list[Link] = []
        self.elements: set[str] = set()
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.add(tag)
        self._inside = tag
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(Link(self.name, given["href"]))
        if LOADING.get(tag) in given and given.get("rel") not in NOT_LOADED:
            self.loaded.append(Link(self.name, given[LOADING[tag]]))
        self.loaded += [Link(self.name, found) for found in IN_STYLES.findall(given.get("style", ""))]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.loaded += [Link(self.name, found) for found in IN_STYLES.findall(data)]
        elif self._inside == "script":
            self.loaded += [Link(self.name, found) for found in re.findall(r"""["'`](https?://[^"'`]+)""", data)]


def foreign(links: list[Link]) -> list[Link]:
    return [link for link in links if ELSEWHERE.match(link.target)]


def dead(pages: dict[str, Page], files: set[str]) -> Iterator[Link]:
    """Links within the site to a file or an anchor that it does not have."""
    for page in pages.values():
        for link in page.links + page.loaded:
            if re.match(r"\w+:|//", link.target):
                continue
            target, anchor = urldefrag(unquote(link.target))
            path = target_of(target, page.name) if target else page.name
            if page.name == NOT_FOUND:
                path = path.removeprefix("/")
            known = pages.get(path)
            if path not in files or (anchor and known is not None and anchor not in known.anchors):
                yield link


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by a process that may not use the network."""
    place = tmp_path_factory.mktemp("site") / "built"
    build = subprocess.run(
        [sys.executable, "-c", BUILD, str(ROOT / "mkdocs.yml"), str(place)],
        cwd=place.parent,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert build.returncode == 0, build.stderr[-3000:]
    assert "WARNING" not in build.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {name: Page(name, path.read_text(encoding="utf-8")) for name, path in found.items()}


@pytest.mark.covers("COM25")
@pytest.mark.slow
def test_the_site_has_every_page_and_every_notebook(pages: dict[str, Page]) -> None:
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
    places = {place_of(source.relative_to(ROOT).as_posix()) for source in sources}
    wanted = {re.sub(r"(README)?\.\w+$", lambda end: "index.html" if end[1] else ".html", place) for place in places}
    assert wanted <= set(pages)
    assert {"index.html", "errors.html", "notebooks/partitioners.html", "repository/conf.html"} <= set(pages)


@pytest.mark.covers("COM25")
def test_no_link_and_no_anchor_is_dead(site: Path, pages: dict[str, Page]) -> None:
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert list(dead(pages, files)) == []


@pytest.mark.covers("COM25")
def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    assert all(page.loaded for page in pages.values()), "each page has a style and a script at least"
    assert foreign([link for page in pages.values() for link in page.loaded]) == []
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        found = IN_STYLES.findall(path.read_text(encoding="utf-8"))
        assert foreign([Link(path.name, target) for target in found]) == []


@pytest.mark.covers("COM25")
def test_nothing_in_a_page_makes_the_theme_fetch_its_diagrams_script(site: Path) -> None:
    """The theme's bundle takes mermaid from elsewhere, on pages with such a diagram."""
    for path in site.rglob("*.html"):
        assert 'class="mermaid"' not in path.read_text(encoding="utf-8"), path.name


@pytest.mark.covers("COM25")
def test_text_in_angle_brackets_is_shown(pages: dict[str, Page]) -> None:
    assert {name: page.elements - ELEMENTS for name, page in pages.items() if page.elements - ELEMENTS} == {}


@pytest.mark.covers("COM25")
def test_the_search_needs_no_server(site: Path, pages: dict[str, Page]) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = {")
    assert '"location":"options.html"' in index
    assert '"location":"repository/' not in index
    assert Link("index.html", "site/iframe-worker.js") in pages["index.html"].loaded


@pytest.mark.covers("COM25")
def test_anchors_are_those_of_github(pages: dict[str, Page]) -> None:
    for source in (ROOT / "docs").glob("*.md"):
        assert anchors(source) <= pages[f"{source.stem}.html"].anchors, source.name


@pytest.mark.covers("COM25")
def test_each_cell_of_a_table_names_its_column(site: Path) -> None:
    """On a phone the cells stand below each other, and the header is not shown."""
    page = (site / "options.html").read_text(encoding="utf-8")
    cells = re.findall(r"<td[^>]*>", page)
    assert len(cells) > 100
    assert {"option", "default", "description"} <= {
        match for cell in cells for match in re.findall('data-label="([^"]+)"', cell)
    }
    assert [cell for cell in cells if "data-label=" not in cell] == []


def test_the_stylesheet_names_languages_that_blocks_of_code_have(site: Path) -> None:
    """The lines of terminals are wrapped: without its language a block would be cut at the edge, and so were comments there."""
    named = set(re.findall(r"\.(language-\w+)", (site / "site" / "site.css").read_text(encoding="utf-8")))
    found = {
        language
        for page in site.glob("*.html")
        for language in re.findall(r'<div class="(language-\w+) highlight">', page.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= found


def test_a_cell_beyond_the_header_has_an_empty_label() -> None:
    html = '<table>\n<tr><th>a <code>b</code></th></tr><tr>\n<td style="x">1</td><td>2</td></tr></table><td>3</td>'
    assert labelled(html) == (
        '<table>\n<tr><th>a <code>b</code></th></tr><tr>\n<td data-label="a b" style="x">1</td><td data-label="">2</td></tr>'
        "</table><td>3</td>"
    )


@pytest.mark.parametrize(
    "html",
    [
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<script src="//cdn.example/require.js"></script>',
        '<script>load("https://cdn.example/mathjax.js")</script>',
        "<style>@import 'https://cdn.example/x.css'; </style>",
        '<p style="background: url(https://cdn.example/x.png)">',
        '<img src="http://elsewhere.example/x.svg">',
    ],
)
def test_what_a_page_would_load_from_elsewhere_is_seen(html: str) -> None:
    assert len(foreign(Page("page.html", html).loaded)) == 1


def test_links_elsewhere_may_stand_in_a_page_and_dead_ones_within_the_site_are_seen() -> None:
    html = '<h2 id="here"></h2><a href="https://kafka.apache.org"></a><a href="#here"></a><a href="../a.html"></a>'
    page = Page("folder/page.html", html + '<a href="#there"></a><a href="b.html#x"></a><img src="c.svg">')
    assert foreign(page.loaded) == []
    found = [link.target for link in dead({page.name: page}, {page.name, "a.html"})]
    assert found == ["#there", "b.html#x", "c.svg"]


@pytest.mark.parametrize(
    "code", ['```python\nnames["a"](b)\n```', '`names["a"](b)`', "``a](b``", "````\n```\nx](y)\n````"]
)
def test_code_is_no_link(code: str) -> None:
    assert links_in(f"[`c`](../conf) and\n\n{code}\n\n[d](e.md#f), [g](https://h)") == ["../conf", "e.md"]


def test_pages_outside_of_docs_are_found_through_others() -> None:
    found = linked_from(["docs/deploying.md", "docs/design.md"])
    assert {"conf", "pyproject.toml", "CONTRIBUTING.md", "SECURITY.md"} <= set(found)
    assert not [path for path in found if path.startswith("docs/")]
    assert place_of(".github/workflows/release.yml") == "repository/github/workflows/release.yml.md"
