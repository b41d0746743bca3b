"""The version of this package, its one home.

Owns: the number, and nothing else. The build (`pyproject.toml`), `spark_producer.__version__`, `pyproducer --version` and what
brokers are told (KIP-511) read it here: a module without imports, so that every room may.
"""

__version__ = "0.1.0"
