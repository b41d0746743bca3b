"""The RocksDB database of a location index: its options, memory and errors.

RocksDB is installed by the extra `rocksdb` (rocksdict). It has its own write-ahead log and files, so it does not use `FileOps`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_producer.broker.storage.tiered.location_index.base import IndexDamaged
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from rocksdict import Options, Rdict

NAME: Final = "index.rocks"
"""Name of the directory of the database in a ledger directory."""
LOGS_KEPT: Final = 2
BLOOM_BITS: Final = 10
MIN_WRITE_BUFFER_BYTES: Final = 64 * 1024


def require_rocksdict() -> None:
    """Raise ConfigError, with the extra to install, if rocksdict is missing."""
    try:
        import rocksdict  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "an index in RocksDB (--index rocks, index_engine='rocks') needs rocksdict. Run pip install 'pyproducer[rocksdb]'. "
            "Or use arrays, the default, which needs no library"
        ) from error


def open_database(directory: Path, cache_bytes: int) -> Rdict:
    """Open the database in `directory`, or create it if it is missing.

    Cached blocks, and rows that are only in the write-ahead log, use at most `cache_bytes` together.

    Raises:
        ConfigError: rocksdict is missing.
        IndexDamaged: the database cannot be read.
        OSError: the disk refused, or another process has the database open.
    """
    require_rocksdict()
    from rocksdict import Rdict

    options = _options(cache_bytes)
    with translated_errors(f"{directory}"):
        return Rdict(str(directory), options)


def _options(cache_bytes: int) -> Options:
    from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

    cache = Cache(cache_bytes)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_bloom_filter(BLOOM_BITS, False)
    options = Options(raw_mode=True)  # else keys get a prefix byte for their Python type
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    write_buffer = max(cache_bytes // 4, MIN_WRITE_BUFFER_BYTES)
    options.set_write_buffer_size(write_buffer)
    options.set_write_buffer_manager(
        WriteBufferManager.new_write_buffer_manager_with_cache(2 * write_buffer, False, cache)
    )
    options.set_keep_log_file_num(LOGS_KEPT)
    return options


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Raise errors of RocksDB, which rocksdict raises as bare exceptions with a message, as IndexDamaged or OSError.

    A missing file is damage, since RocksDB has created it.
    """
    try:
        yield
    except (OSError, IndexDamaged):
        raise
    except Exception as error:  # rocksdict has no narrower class
        text = str(error)
        if text.startswith("Corruption") or "No such file" in text:
            raise IndexDamaged(f"{what} is damaged: {text}") from error
        raise OSError(errno.EIO, f"RocksDB: {text}", what) from error


def remove_database(directory: Path) -> None:
    """Remove a database that is not open, if it exists.

    Raises:
        OSError: the disk refused.
    """
    if directory.is_dir():
        for path in directory.iterdir():  # RocksDB creates no directories
            path.unlink()
        directory.rmdir()


def set_aside(directory: Path) -> None:
    """Rename a database that is not open to `.damaged`, and replace a directory with that name.

    Raises:
        OSError: the disk refused.
    """
    aside = directory.with_name(f"{directory.name}.damaged")
    remove_database(aside)
    if directory.is_dir():
        directory.rename(aside)
