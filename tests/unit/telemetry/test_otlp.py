"""The encoder of MetricsData, beside opentelemetry-proto."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_producer.telemetry.otlp import Point, metrics_data
from tests.unit.telemetry.pushed import CUMULATIVE, DELTA, message_of, read

UINT64 = st.integers(0, 2**64 - 1)
points = st.lists(
    st.builds(
        Point,
        st.text(min_size=1),
        st.floats(allow_nan=False),
        st.text(max_size=300).map(lambda text: (("topic", text),)),
        st.none() | UINT64,
    ),
    unique_by=lambda point: point.name,
)


@given(points, st.dictionaries(st.text(), st.text()), UINT64, st.booleans())
def test_everything_is_read_back(given_points: list[Point], resource: dict[str, str], now: int, delta: bool) -> None:
    found = read(metrics_data(given_points, resource, now, delta=delta))
    assert found.resource == resource
    sums = DELTA if delta else CUMULATIVE
    assert found.points == {
        (point.name, point.attributes[0][1]): (
            point.value,
            point.since or 0,
            now,
            None if point.since is None else sums,
        )
        for point in given_points
    }


def test_points_of_one_metric_are_in_one_message() -> None:
    named = [Point("bytes", 1.0, (("topic", topic),), 5) for topic in ("a", "b")]
    message = message_of(metrics_data([named[0], Point("age", 2.0), named[1]], {}, 9, delta=True))
    (of_client,) = message.resource_metrics
    (scope,) = of_client.scope_metrics
    assert scope.scope.name == "pyproducer"
    assert [(metric.name, metric.WhichOneof("data")) for metric in scope.metrics] == [
        ("age", "gauge"),
        ("bytes", "sum"),
    ]
    assert [point.attributes[0].value.string_value for point in scope.metrics[1].sum.data_points] == ["a", "b"]
