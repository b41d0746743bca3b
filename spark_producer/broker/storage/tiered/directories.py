"""The directories of an engine: those of the journal and of the ledgers lie in its folder, or outside where the user says so.

A directory outside belongs to one data directory. A file in it tells which, and as what (BookKeeper's cookies). So the broker
does not begin with a directory that another one uses, in another order, or while the disk that should be there is not mounted: it
would take records for lost that are somewhere else.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.directory_lock import LOCK_NAME
from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.catalog import Catalog, ExternalDirectories
from spark_producer.broker.storage.tiered.location_index import require_rocksdict
from spark_producer.broker.storage.tiered.options import TieredOptions
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConfigError

JOURNAL: Final = "journal"
LEDGERS: Final = "ledgers"
OWNER: Final = "owner"
"""The name of the file in a directory outside that says to which data directory it belongs."""

_IGNORED_NAMES: Final = frozenset({OWNER, f"{OWNER}.new", LOCK_NAME, "lost+found"})
"""Names that an empty directory may have: a new file system has the last one."""

logger = escaping_logger(__name__)


class EngineDirectories(NamedTuple):
    """The directory of the journal, and those of the ledgers by their numbers."""

    journal: Path
    ledgers: tuple[Path, ...]


def check_new_engine(files: FileOps, directory: Path, options: TieredOptions) -> None:
    """Check that an engine can begin in the folder `directory`, if that is not there yet. Nothing is made.

    The folder decides with which engine the data directory is opened from then on, so a start that is refused must not leave it.

    Raises:
        ConfigError: a directory outside holds anything, or belongs to another data directory; or a library is missing.
        OSError: the disk refused.
    """
    if directory.name in _names(files, directory.parent):
        return
    if options.index_engine == "rocks":
        require_rocksdict()
    for path in (*([] if options.journal_dir is None else [options.journal_dir]), *options.ledger_dirs):
        _check_free(files, path, _names(files, path), b"")


def _names(files: FileOps, path: Path) -> list[str]:
    try:
        return files.names(path)
    except FileNotFoundError:
        return []


def _check_free(files: FileOps, path: Path, names: list[str], owner: bytes) -> None:
    """Check that a directory outside, which has these names, may be taken."""
    if OWNER in names and files.read_file(path / OWNER) != owner:
        raise ConfigError(
            f"the directory {path} belongs to another data directory, or to this one as something else ({path / OWNER} says "
            "so): name an empty one"
        )
    if not _IGNORED_NAMES.issuperset(names):
        found = min(set(names) - _IGNORED_NAMES)
        raise ConfigError(f"the directory {path} is not empty (it has {found}): name an empty one")


def prepare_directories(files: FileOps, directory: Path, options: TieredOptions, catalog: Catalog) -> EngineDirectories:
    """Return the directories of the engine in the folder `directory`, all of which are there then.

    Those that are outside are taken when the catalog is new; later they must be the same ones.

    Raises:
        ConfigError: they are not those of before; or a new one holds anything, or belongs to another data directory.
        OSError: the disk refused.
    """
    external = ExternalDirectories(
        None if options.journal_dir is None else str(options.journal_dir), tuple(map(str, options.ledger_dirs))
    )
    owners = _owners(catalog.identity, external)
    if catalog.external is None:
        _take(files, owners, catalog)
        catalog.set_external(external)
        catalog.store()  # else its loss could not be told from a first start that a full disk has ended
    elif catalog.external != external:
        raise ConfigError(
            f"the records of {directory} are kept with {_described(catalog.external)}, and this start names "
            f"{_described(external)}: name the same directories, in the same order"
        )
    else:
        _check(files, owners, directory)
    directories = engine_directories(directory, options)
    for path in (directories.journal, *directories.ledgers):
        files.make_directory(path)
    return directories


def engine_directories(directory: Path, options: TieredOptions) -> EngineDirectories:
    """Return the directories of the engine in the folder `directory`, whether they are there or not."""
    return EngineDirectories(options.journal_dir or directory / JOURNAL, options.ledger_dirs or (directory / LEDGERS,))


def log_shared_devices(files: FileOps, directory: Path, directories: EngineDirectories, are_chosen: bool) -> None:
    """Say in the log if the journal or any of the ledgers share a device. It is for engines that force each batch.

    BookKeeper recommends to put them apart, because a force of the journal waits for what a flush writes to the same disk. It
    is a warning for those who have chosen directories, and a mere information for those with one for everything.

    Raises:
        OSError: the disk refused.
    """
    on: dict[int, list[str]] = {}
    for name, path in [("the journal", directories.journal), *(("ledgers", path) for path in directories.ledgers)]:
        on.setdefault(files.device(path), []).append(f"{name} in {path}")
    shared = "; ".join(" and ".join(names) for names in on.values() if len(names) > 1)
    if shared:
        logger.log(
            logging.WARNING if are_chosen else logging.INFO,
            "%s: on one device are %s. Each batch waits until the journal is forced, which waits for flushes to the same disk: "
            "put the journal on a disk of its own (journal_dir, --journal-dir), and each ledger directory too (ledger_dirs, "
            "--ledger-dirs)",
            *(directory, shared),
        )


def _owners(identity: str, external: ExternalDirectories) -> dict[Path, bytes]:
    """Return what the file of each directory outside says."""
    journal = {} if external.journal is None else {external.journal: "journal"}
    count = len(external.ledgers)
    ledgers = {path: f"ledgers {number} of {count}" for number, path in enumerate(external.ledgers, 1)}
    return {Path(path): f"{identity} {role}\n".encode() for path, role in (journal | ledgers).items()}


def _take(files: FileOps, owners: dict[Path, bytes], catalog: Catalog) -> None:
    if owners:
        catalog.store()  # so that after a crash the next life is the same owner
    for path, owner in owners.items():
        files.make_directory(path)
        _check_free(files, path, files.names(path), owner)
        files.replace_file(path / OWNER, owner, sync=True)


def _check(files: FileOps, owners: dict[Path, bytes], directory: Path) -> None:
    for path, owner in owners.items():
        try:
            found = files.read_file(path / OWNER)
        except FileNotFoundError:
            raise ConfigError(
                f"{path} is not the directory in which {directory} keeps records: its file {OWNER} is missing. "
                "Is its disk mounted?"
            ) from None
        if found != owner:
            raise ConfigError(
                f"{path} is not the directory in which {directory} keeps records: its file {OWNER} says that it is another one's"
            )


def _described(external: ExternalDirectories) -> str:
    journal = f"the journal in {external.journal}" if external.journal else "the journal inside"
    ledgers = f"ledgers in {', '.join(external.ledgers)}" if external.ledgers else "ledgers inside"
    return f"{journal} and {ledgers}"
