"""The RocksDB database of an index of locations: how it is opened, what memory it takes, and what its errors mean here.

RocksDB comes by the extra `rocksdb` (rocksdict). It has a write-ahead log and files of its own, so it does not use `FileOps`.
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
"""The folder of the database in a ledger directory."""
LOGS_KEPT: Final = 2
BLOOM_BITS: Final = 10
MIN_WRITE_BUFFER_BYTES: Final = 64 * 1024


def require_rocksdict() -> None:
    """Raise ConfigError, with the extra to install, if rocksdict is missing."""
    try:
        import rocksdict  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "an index in RocksDB (--index rocks, index_engine='rocks') needs rocksdict: pip install 'pyproducer[rocksdb]'. "
            "Or take arrays, the default, which needs nothing"
        ) from error


def open_database(directory: Path, cache_bytes: int) -> Rdict:
    """Open the database in `directory`, which is made if it is missing.

    Blocks that were read and rows that are only in the write-ahead log take `cache_bytes` together.

    Raises:
        ConfigError: rocksdict is missing.
        IndexDamaged: what is there cannot be read.
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
    options = Options(raw_mode=True)  # else keys get a byte for their Python type in front
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
    """Raise errors of RocksDB, which rocksdict gives as bare exceptions with a text, as IndexDamaged or OSError.

    A file that is missing is damage, as RocksDB made it before.
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
    """Remove a database that is not open, if it is there.

    Raises:
        OSError: the disk refused.
    """
    if directory.is_dir():
        for path in directory.iterdir():  # RocksDB makes no folders
            path.unlink()
        directory.rmdir()


def set_aside(directory: Path) -> None:
    """Give a database that is not open the name with `.damaged`, instead of what has that name.

    Raises:
        OSError: the disk refused.
    """
    aside = directory.with_name(f"{directory.name}.damaged")
    remove_database(aside)
    if directory.is_dir():
        directory.rename(aside)
