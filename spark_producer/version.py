"""The version of this package, its one home.

The build (`pyproject.toml`), `spark_producer.__version__`, `pyproducer --version` and the name that brokers get (KIP-511) read
it here. This module imports nothing, so that every part of the package may import it. `make release` writes it.
"""

__version__ = "1.0.0rc1"
