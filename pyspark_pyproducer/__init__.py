"""Lets Spark find `format("pyproducer")` after a plain `pip install`, with no register call.

Spark imports every top-level module named `pyspark_*` and takes its `DefaultSource`; one module that raises makes the
lookup of *all* Python data sources fail. So this module must never raise and imports nothing heavy when it cannot.
"""

try:
    from spark_producer.datasource import PyProducerDataSource as DefaultSource
except Exception:  # a broken installation must not take other data sources along
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
