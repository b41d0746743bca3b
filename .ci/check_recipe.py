"""Render conda/recipe.yaml with rattler-build: it is a recipe, of this version, and needs what the wheel needs. `make conda`."""

from __future__ import annotations

import re
import tempfile
import tomllib
import venv
from pathlib import Path

from build_release import ROOT, run

RATTLER = "py-rattler-build==0.73.0"
RENDER = """
import sys
from rattler_build import Stage0Recipe
for each in Stage0Recipe.from_file(sys.argv[1]).render():
    package = each.recipe.package
    print(package.name, package.version)
"""


def main() -> None:
    """Render the recipe and compare it with pyproject.toml."""
    recipe = ROOT / "conda" / "recipe.yaml"
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", RATTLER)
        rendered = run(python, "-c", RENDER, recipe).strip()
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    listed = recipe.read_text(encoding="utf-8").partition("\n  run:\n")[2].partition("\ntests:")[0]
    assert set(re.findall(r"- (\S+) >=", listed)) - {"python"} == {line.partition(">=")[0] for line in needed}, listed
    print(f"rendered, not built (that needs conda's channels): {rendered}")


main()
