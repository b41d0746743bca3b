"""The directories of the journal and of the ledgers: inside the directory of the engine, or external ones from the settings.

An external directory belongs to one data directory. A file in it has the id of the data directory, and the role of the external
one (BookKeeper's cookies). So the broker does not start with a directory of another broker, with a different order of
directories, or while a disk is not mounted: records in the right directories would be missing.
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
"""Name of the file in an external directory with the id of its data directory."""

_IGNORED_NAMES: Final = frozenset({OWNER, f"{OWNER}.new", LOCK_NAME, "lost+found"})
"""Names that do not count when a directory must be empty: a new file system has the last one."""

logger = escaping_logger(__name__)


class EngineDirectories(NamedTuple):
    """The directory of the journal, and those of the ledgers in the order of their numbers."""

    journal: Path
    ledgers: tuple[Path, ...]


def check_new_engine(files: FileOps, directory: Path, options: TieredOptions) -> None:
    """Check that an engine can be created in `directory`, if that does not exist yet. No file is created.

    The existence of the directory decides the engine of the data directory, so a refused start must not create it.

    Raises:
        ConfigError: an external directory is not empty, or belongs to another data directory; or a library is missing.
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
    """Check that an external directory with these `names` can be used."""
    if OWNER in names and files.read_file(path / OWNER) != owner:
        raise ConfigError(
            f"cannot use the directory {path}: by its file {OWNER} it belongs to another data directory, or has another role in "
            "this one. Name an empty directory"
        )
    if not _IGNORED_NAMES.issuperset(names):
        found = min(set(names) - _IGNORED_NAMES)
        raise ConfigError(f"cannot use the directory {path}: it is not empty (it has {found}). Name an empty directory")


def prepare_directories(files: FileOps, directory: Path, options: TieredOptions, catalog: Catalog) -> EngineDirectories:
    """Create the directories of the engine in `directory`, and return them.

    External ones are assigned when the catalog is new; later they must be the same ones.

    Raises:
        ConfigError: they have changed; or a new one is not empty, or belongs to another data directory.
        OSError: the disk refused.
    """
    external = ExternalDirectories(
        None if options.journal_dir is None else str(options.journal_dir), tuple(map(str, options.ledger_dirs))
    )
    owners = _owners(catalog.identity, external)
    if catalog.external is None:
        _take(files, owners, catalog)
        catalog.set_external(external)
        catalog.store()  # else its loss would look like a first start that a full disk has ended
    elif catalog.external != external:
        raise ConfigError(
            f"cannot open {directory} with {_described(external)}: its records are kept with {_described(catalog.external)}. "
            "Name the same directories, in the same order"
        )
    else:
        _check(files, owners, directory)
    directories = engine_directories(directory, options)
    for path in (directories.journal, *directories.ledgers):
        files.make_directory(path)
    return directories


def engine_directories(directory: Path, options: TieredOptions) -> EngineDirectories:
    """Return the directories of the engine in `directory`, whether they exist or not."""
    return EngineDirectories(options.journal_dir or directory / JOURNAL, options.ledger_dirs or (directory / LEDGERS,))


def log_shared_devices(files: FileOps, directory: Path, directories: EngineDirectories, are_chosen: bool) -> None:
    """Log if the journal and ledgers share a device. Call it for engines that force each batch.

    BookKeeper recommends separate disks, because a force of the journal waits for the writes of a flush to the same disk. The
    level is WARNING if the directories were configured, else INFO.

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
    """Return the content of the owner file of each external directory."""
    journal = {} if external.journal is None else {external.journal: "journal"}
    count = len(external.ledgers)
    ledgers = {path: f"ledgers {number} of {count}" for number, path in enumerate(external.ledgers, 1)}
    return {Path(path): f"{identity} {role}\n".encode() for path, role in (journal | ledgers).items()}


def _take(files: FileOps, owners: dict[Path, bytes], catalog: Catalog) -> None:
    if owners:
        catalog.store()  # so that after a crash the next run has the same id
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
                f"{path} is not the directory in which {directory} keeps records: its file {OWNER} is missing. Check that its "
                "disk is mounted"
            ) from None
        if found != owner:
            raise ConfigError(
                f"{path} belongs to another data directory than {directory}, by its file {OWNER}. Name the right directory"
            )


def _described(external: ExternalDirectories) -> str:
    journal = f"the journal in {external.journal}" if external.journal else "the journal inside"
    ledgers = f"ledgers in {', '.join(external.ledgers)}" if external.ledgers else "ledgers inside"
    return f"{journal} and {ledgers}"
