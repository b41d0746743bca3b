"""Folders of jars by Maven coordinates, fetched once per machine by the Ivy that PySpark ships.

Owns: the jar cache (outside the tree), its locking, and the call of Ivy.
Must not know: what the jars are for.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

Coordinate = tuple[str, str, str]
"""Group, artifact, version."""

Retrieve = Callable[[tuple[Coordinate, ...], Path, bool], None]
"""The tool that copies the jars of coordinates into a folder, with their run-time dependencies if asked."""

FETCH_SECONDS = 600.0
"""One deadline for resolving and downloading; a cold cache takes about half a minute per Kafka version."""

ATTEMPTS = 3
"""Registries fail now and then; what has come already is not fetched again."""


class JarsUnavailable(RuntimeError):
    """The jars could not be fetched; the message holds the end of what Ivy said."""


def cache_root() -> Path:
    """The folder that outlives checkouts: PYPRODUCER_CACHE, else the XDG cache directory."""
    chosen = os.environ.get("PYPRODUCER_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyproducer"


def java() -> str:
    """Path of the java that Spark would use; raises JarsUnavailable when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise JarsUnavailable("java was not found: install a Java 17 runtime or set JAVA_HOME")
    return found


def fetch_jars(*coordinates: Coordinate, name: str, transitive: bool = True, retrieve: Retrieve | None = None) -> Path:
    """Return the folder that holds the jars of `coordinates`, if `transitive` with all their run-time dependencies.

    `name` is the readable part of the folder's name; the coordinates are the rest of the key, so a changed
    version never meets old jars. A folder appears complete or not at all, also when two processes fetch at once.
    `retrieve` fills a folder; Ivy does unless another caller is named.
    """
    key = hashlib.sha256(repr(coordinates).encode()).hexdigest()[:10] + ("" if transitive else "-only")
    folder = cache_root() / "jars" / f"{name}-{key}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / ".lock"):
        if not folder.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
            try:
                (retrieve or _retrieve)(coordinates, partial, transitive)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def fetch_archive(group: str, artifact: str, version: str, classifier: str) -> Path:
    """Return the folder in which a `.tar.gz` that was published beside an artifact is unpacked. Its parents are not asked for."""

    def retrieve(coordinates: tuple[Coordinate, ...], target: Path, _: bool) -> None:
        settings = target / "settings.xml"
        settings.write_text(
            "<ivysettings><settings defaultResolver='central'/><resolvers>"
            "<ibiblio name='central' m2compatible='true' usepoms='false'/></resolvers></ivysettings>"
        )
        description = target / "ivy.xml"
        description.write_text(_archive_file(*coordinates[0], classifier))
        _run_ivy(description, target, ["-settings", str(settings)], "*.tar.gz", coordinates)
        (archive,) = target.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")
        for each in (archive, description, settings):
            each.unlink()

    return fetch_jars((group, artifact, version), name=artifact, transitive=False, retrieve=retrieve)


def class_path(*folders: Path) -> str:
    """Every jar of the folders as a Java class path."""
    return os.pathsep.join(f"{folder}/*" for folder in folders)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # flock, not a marker file: a killed holder leaves nothing. Ivy's own cache is not safe for two writers either.
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _retrieve(coordinates: tuple[Coordinate, ...], target: Path, transitive: bool) -> None:
    description = target / "ivy.xml"
    description.write_text(_ivy_file(coordinates, transitive))
    _run_ivy(description, target, [], "*.jar", coordinates)
    description.unlink()


def _run_ivy(
    description: Path, target: Path, more: list[str], wanted: str, coordinates: tuple[Coordinate, ...]
) -> None:
    command = [java(), "-jar", str(_ivy_jar()), *more, "-cache", str(cache_root() / "ivy"), "-ivy", str(description)]
    command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
    for _ in range(ATTEMPTS):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise JarsUnavailable(f"fetching {coordinates} took longer than {FETCH_SECONDS:.0f} s") from error
        if done.returncode == 0:
            break
    if done.returncode != 0 or not any(target.glob(wanted)):
        said = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise JarsUnavailable(f"could not fetch {coordinates} (exit code {done.returncode}):\n{said}")


def _archive_file(group: str, artifact: str, version: str, classifier: str) -> str:
    return (
        "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>"
        "<info organisation='pyproducer' module='jars'/><dependencies>"
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} conf='default'"
        " transitive='false'>"
        f"<artifact name={quoteattr(artifact)} type='tar.gz' ext='tar.gz' m:classifier={quoteattr(classifier)}/>"
        "</dependency></dependencies></ivy-module>"
    )


def _ivy_file(coordinates: tuple[Coordinate, ...], transitive: bool) -> str:
    wanted = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} conf='default'"
        f" transitive='{str(transitive).lower()}'/>"
        for group, artifact, version in coordinates
    )
    return (
        "<ivy-module version='2.0'><info organisation='pyproducer' module='jars'/>"
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = list(spec.submodule_search_locations or []) if spec else []
    jars = [jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar")]
    if not jars:
        raise JarsUnavailable(f"no pyspark with an Ivy jar in {sys.prefix}: install pyspark")
    return jars[0]
