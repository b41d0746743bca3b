"""Build what a release has: source archive, wheel of this platform, zip for `--py-files`, SBOM, checksums.

    python .ci/build_release.py dist                     # all of it
    python .ci/build_release.py --epoch                  # SOURCE_DATE_EPOCH of this release

Equal sources give equal bytes, whatever the folder and the day. The tools come by hash from .ci/release-requirements.txt.
Only the standard library is needed to start it.
"""

from __future__ import annotations

import argparse
import calendar
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "build" / "release" / "tools"
REQUIREMENTS = ROOT / ".ci" / "release-requirements.txt"
DATED = re.compile(r"^## \[[^\]]+\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
SECONDS = 3600
NOT_SOURCE = shutil.ignore_patterns(
    "*.so", "*.c", "__pycache__", ".git", ".venv", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info"
)


def epoch() -> int:
    """Return the start of the day of the newest release in CHANGELOG.md: the time of every file in every archive."""
    found = DATED.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if found is None:
        sys.exit("CHANGELOG.md names no release with its day: ## [1.0.0] - 2026-01-31")
    return calendar.timegm(time.strptime(found[1], "%Y-%m-%d"))


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Return the output of a command that must succeed. With a PYTHONPATH to this tree pip would find the package there."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def tools() -> Path:
    """Return the Python of an environment with the tools of releases, each of which has a known hash."""
    python, stamp = TOOLS / "bin" / "python", TOOLS / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not stamp.exists():
        venv.create(TOOLS, clear=True, with_pip=True)
        run(python, *PIP_INSTALL, "--require-hashes", "-r", REQUIREMENTS)
        stamp.touch()
    return python


def sources(folder: Path) -> Path:
    """Return a copy of the sources: what git tracks, or all that is there in an unpacked source archive."""
    target = folder / "sources"
    if not (ROOT / ".git").exists():
        return Path(shutil.copytree(ROOT, target, ignore=NOT_SOURCE))
    for name in run("git", "ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    return target


def build_sdist(out: Path) -> Path:
    """Build the source archive, and write it again with equal times, owners, modes and order."""
    with tempfile.TemporaryDirectory() as folder:
        run(tools(), "-c", BUILD, "build_sdist", folder, cwd=sources(Path(folder)))
        (made,) = Path(folder).glob("*.tar.gz")
        target = out / made.name
        target.write_bytes(normalised(made))
    return target


def normalised(archive: Path) -> bytes:
    """Return a .tar.gz with the same files, and bytes that follow from these and the day of the release alone."""
    plain, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(archive) as given, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as made:
        for member in sorted((each for each in given if each.isfile()), key=lambda each: each.name):
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mtime, entry.mode = member.size, epoch(), 0o644
            made.addfile(entry, given.extractfile(member))
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch(), compresslevel=9) as file:
        file.write(plain.getvalue())
    return packed.getvalue()


def equal_bytes(tree: Path) -> dict[str, str]:
    """Return the variables with which a build of the sources in `tree` depends neither on the day nor on the folder."""
    return {"SOURCE_DATE_EPOCH": str(epoch()), "CFLAGS": f"{os.environ.get('CFLAGS', '')} -ffile-prefix-map={tree}=."}


def build_wheel(sdist: Path, out: Path) -> Path:
    """Build the wheel from the source archive. No path of the folder goes into the compiled modules."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (tree,) = (path for path in Path(folder).iterdir() if path.is_dir())
        made = Path(folder) / "made"
        made.mkdir()
        run(tools(), "-c", BUILD, "build_wheel", made, cwd=tree, **equal_bytes(tree))
        (wheel,) = made.glob("*.whl")
        return Path(shutil.copy(wheel, out / wheel.name))


def build_zip(out: Path) -> Path:
    """Build the zip for `spark-submit --py-files`."""
    target = out / "pyproducer.zip"
    run(sys.executable, ROOT / ".ci" / "make_zip.py", target)
    return target


def write_sbom(wheel: Path, out: Path) -> Path:
    """Write the bill of materials (CycloneDX) of the wheel with what it needs, as pip installs it here by constraints.txt."""
    target = out / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        inside = Path(folder) / "bin" / "python"
        run(
            inside,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-c",
            ROOT / "constraints.txt",
            wheel,
        )
        run(inside, "-m", "pip", "uninstall", "--quiet", "--yes", "--disable-pip-version-check", "setuptools", "pip")
        arguments = ("--output-format", "JSON", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml")
        run(tools().with_name("cyclonedx-py"), "environment", inside, *arguments, "--output-file", target)
    return target


def write_checksums(out: Path) -> Path:
    """Write SHA256SUMS of all files in `out`, as `sha256sum --check` reads it."""
    target = out / "SHA256SUMS"
    files = sorted(path for path in out.iterdir() if path.is_file() and path != target)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    target.write_text("".join(lines), encoding="utf-8")
    return target


def build(out: Path, kinds: set[str]) -> None:
    """Build the chosen kinds into `out`, and name each file."""
    out.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist(out)
    made = [sdist]
    if kinds & {"wheel", "sbom"}:
        made.append(build_wheel(sdist, out))
    if "sbom" in kinds:
        made.append(write_sbom(made[-1], out))
    if "zip" in kinds:
        made.append(build_zip(out))
    for path in [*made, write_checksums(out)]:
        print(path)


def write_urls(address: str) -> None:
    """Write [project.urls] into pyproject.toml: the address of the repository that builds, since no other one exists."""
    path = ROOT / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    if "[project.urls]" in text:
        sys.exit("pyproject.toml has [project.urls] already")
    links = {
        "Repository": "",
        "Issues": "/issues",
        "Changelog": "/blob/main/CHANGELOG.md",
        "Documentation": "/tree/main/docs",
    }
    lines = "".join(f'{name} = "{address}{link}"\n' for name, link in links.items())
    path.write_text(
        text.replace("\n[project.scripts]\n", f"\n[project.urls]\n{lines}\n[project.scripts]\n"), encoding="utf-8"
    )


def main() -> None:
    """Build what the arguments name."""
    parser = argparse.ArgumentParser(description="Build what a release has.")
    parser.add_argument("out", nargs="?", type=Path, help="the folder")
    parser.add_argument("--epoch", action="store_true", help="print SOURCE_DATE_EPOCH of this release")
    parser.add_argument("--checksums", type=Path, metavar="DIR", help="write SHA256SUMS of a folder")
    parser.add_argument("--url", metavar="ADDRESS", help="write [project.urls] of a repository into pyproject.toml")
    parser.add_argument("--only", nargs="+", choices=["sdist", "wheel", "sbom", "zip"], help="not all of it")
    chosen = parser.parse_args()
    if chosen.url:
        write_urls(chosen.url)
    if chosen.epoch:
        print(epoch())
    elif chosen.checksums:
        print(write_checksums(chosen.checksums))
    elif chosen.out:
        build(chosen.out.resolve(), set(chosen.only or ["sdist", "wheel", "sbom", "zip"]))
    elif not chosen.url:
        parser.error("name a folder")


if __name__ == "__main__":
    main()
