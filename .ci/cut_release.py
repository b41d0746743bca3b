"""Cut a release: write the version, and CHANGELOG.md from changes/. Runs as `make release VERSION=1.0.0`.

Commit and tag follow. `make changes` shows what would be written."""

from __future__ import annotations

import re
import sys

from build_release import ROOT, run, tools

VERSION_FILE, RECIPE = ROOT / "spark_producer" / "version.py", ROOT / "conda" / "recipe.yaml"
FORM = re.compile(r"\d+\.\d+\.\d+(?:rc\d+)?")


def main(version: str = "") -> None:
    """Write both files, and say what is left to do; without a version show what would be written."""
    towncrier = tools().with_name("towncrier")
    if not version:
        print(run(towncrier, "build", "--draft", "--version", "next"))
        return
    if not FORM.fullmatch(version):
        sys.exit(f"{version!r} is no version: make release VERSION=1.0.0, or 1.0.0rc1")
    text = VERSION_FILE.read_text(encoding="utf-8")
    VERSION_FILE.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', text), encoding="utf-8")
    recipe = RECIPE.read_text(encoding="utf-8")
    RECIPE.write_text(re.sub(r"(?m)^  version: [\d.rc]+ ", f"  version: {version} ", recipe), encoding="utf-8")
    run(towncrier, "build", "--yes", "--version", version)
    print(f"spark_producer/version.py and CHANGELOG.md are of {version}. Read them, commit, then: git tag v{version}")


main(*sys.argv[1:])
