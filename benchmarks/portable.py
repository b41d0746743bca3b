"""pyproducer under a second name, so that its workers can have another environment (the portable kernel).

Lives in a module of its own, because the workers import it.
"""

from __future__ import annotations

from spark_producer.datasource.source import PyProducerDataSource


class PortableSource(PyProducerDataSource):  # type: ignore[misc,unused-ignore]
    """`format("pyproducer_portable")`."""

    @classmethod
    def name(cls) -> str:
        return "pyproducer_portable"
