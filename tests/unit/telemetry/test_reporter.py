"""The decisions of telemetry: what is asked and pushed when, and what a broker's answers and absurdities lead to."""

from __future__ import annotations

import logging
from random import Random

import pytest

from spark_producer.common.error_codes import Code
from spark_producer.errors import ConfigError, ConnectionFailed
from spark_producer.metrics import Levels, Snapshot
from spark_producer.metrics.metric_table import METRICS
from spark_producer.protocol import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from spark_producer.protocol.messages import (
    NO_UUID,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.telemetry import reporter as reporter_module
from spark_producer.telemetry.points import MAX_POINTS
from spark_producer.telemetry.reporter import NEVER, ReportedClient, TelemetryReporter, TelemetryRequest, TelemetryState
from spark_producer.telemetry.subscription import DEFAULT_INTERVAL_S, MAX_INTERVAL_S, MIN_INTERVAL_S
from tests.fakes.metric_events import everything_once, new_metrics
from tests.unit.telemetry.pushed import CUMULATIVE, DELTA, Pushed, pushed

ID = bytes(range(16))
START = 1000.0
SENT = "org.apache.kafka.producer.record.send.total"
ANSWER = GetTelemetrySubscriptionsResponse(
    client_instance_id=ID,
    subscription_id=7,
    accepted_compression_types=(4, 3, 1, 2),
    push_interval_ms=60_000,
    telemetry_max_bytes=1 << 20,
    requested_metrics=("*",),
)


class Scene:
    """A reporter of a producer, with a clock, and the broker's part."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cost = 0.0
        self.metrics = new_metrics()
        everything_once(self.metrics)
        client = ReportedClient(METRICS, self.snapshot, {"client_rack": "b"})
        self.reporter = TelemetryReporter(client, START, lambda: self.now, lambda: START + self.now, Random(1))

    def snapshot(self) -> Snapshot:
        self.now += self.cost
        return self.metrics.snapshot(Levels(), self.now)

    def next(self) -> TelemetryRequest:
        """The next request, when it is due."""
        assert self.reporter.due_at < NEVER
        assert self.reporter.request(self.reporter.due_at - 0.001) is None
        self.now = max(self.now, self.reporter.due_at)
        request = self.reporter.request(self.now)
        assert request is not None
        assert self.reporter.due_at == NEVER
        return request

    def answer(self, body: object) -> None:
        api = PUSH_TELEMETRY if isinstance(body, PushTelemetryResponse) else GET_TELEMETRY_SUBSCRIPTIONS
        self.reporter.on_completion(api, body, None, self.now)

    def subscribe(self, answer: GetTelemetrySubscriptionsResponse = ANSWER) -> None:
        assert self.next().api is GET_TELEMETRY_SUBSCRIPTIONS
        self.answer(answer)

    def push(self, code: int = 0) -> Pushed:
        request = self.next()
        assert request.api is PUSH_TELEMETRY
        self.answer(PushTelemetryResponse(error_code=code))
        return pushed(request.body)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_first_push_comes_after_a_part_of_the_interval_and_the_others_after_all_of_it(scene: Scene) -> None:
    request = scene.next()
    assert request.body == GetTelemetrySubscriptionsRequest(NO_UUID)
    scene.answer(ANSWER)
    assert 30 <= scene.reporter.due_at <= 90
    scene.push()
    assert scene.reporter.due_at == scene.now + 60
    assert scene.reporter.client_instance_id == "AAECAwQFBgcICQoLDA0ODw", "as Kafka's Uuid shows it"


def test_first_pushes_of_a_fleet_are_spread() -> None:
    dues = set()
    for seed in range(20):
        scene = Scene()
        scene.reporter._random = Random(seed)
        scene.subscribe()
        dues.add(round(scene.reporter.due_at))
    assert len(dues) > 10


def test_a_push_has_the_names_of_the_kip_and_what_names_the_client(scene: Scene) -> None:
    scene.subscribe()
    found = scene.push()
    assert found.resource == {"client_rack": "b"}
    assert found.value(SENT) == scene.snapshot().value("producer-metrics", "record-send-total")
    assert found.value("org.apache.kafka.producer.node.request.total", "node-1") == 1
    assert ("org.apache.kafka.producer.topic.record.send.total", "t") in found.points
    assert "pyproducer.record.delivered.total" in {name for name, _ in found.points}
    assert found.points[SENT, ""].temporality == CUMULATIVE
    assert found.points[SENT, ""].started == int(START * 1e9)
    assert found.points["org.apache.kafka.producer.record.queue.time.avg", ""].temporality is None
    assert all(point.at == round((START + scene.now) * 1e9) for point in found.points.values())


def test_only_names_with_a_wanted_prefix_are_pushed(scene: Scene) -> None:
    prefixes = ("org.apache.kafka.producer.record.queue", "org.apache.kafka.producer.topic.", "no.such")
    scene.subscribe(ANSWER._replace(requested_metrics=prefixes))
    names = {name for name, _ in scene.push().points}
    assert {"org.apache.kafka.producer.record.queue.time.avg", "org.apache.kafka.producer.topic.byte.total"} <= names
    assert all(name.startswith(prefixes) for name in names)


@pytest.mark.parametrize("prefixes", [(), ("*", "no.such"), ("org.*",), (".*",)])
def test_a_pattern_is_no_pattern_and_nothing_wanted_is_asked_again(scene: Scene, prefixes: tuple[str, ...]) -> None:
    scene.subscribe(ANSWER._replace(requested_metrics=prefixes))
    if prefixes:  # a prefix that nothing has
        scene.now = scene.reporter.due_at
        assert scene.reporter.request(scene.now) is None
    assert scene.reporter.state is TelemetryState.SUBSCRIPTION_NEEDED
    assert scene.reporter.due_at == scene.now + 60
    assert scene.next().body == GetTelemetrySubscriptionsRequest(ID)


def test_deltas_add_up_to_the_total_also_after_refused_pushes(scene: Scene) -> None:
    scene.subscribe(ANSWER._replace(delta_temporality=True))
    first = scene.push()
    assert first.points[SENT, ""].temporality == DELTA
    assert first.points[SENT, ""].started == int(START * 1e9)
    everything_once(scene.metrics, scene.now)
    assert scene.push(Code.THROTTLING_QUOTA_EXCEEDED).value(SENT) == first.value(SENT)
    scene.subscribe(ANSWER._replace(delta_temporality=True))
    again = scene.push()
    assert again.value(SENT) == first.value(SENT), "what was refused comes again"
    assert again.points[SENT, ""].started == first.points[SENT, ""].at
    assert scene.push().value(SENT) == 0


def test_a_broker_that_was_lost_may_have_taken_a_delta(scene: Scene) -> None:
    scene.subscribe(ANSWER._replace(delta_temporality=True))
    assert pushed(scene.next().body).value(SENT) > 0
    scene.reporter.on_completion(PUSH_TELEMETRY, None, ConnectionFailed("lost"), scene.now)
    scene.subscribe(ANSWER._replace(delta_temporality=True))
    assert scene.push().value(SENT) == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_codec_is_used_that_is_known(scene: Scene, codec: Codec) -> None:
    scene.subscribe(ANSWER._replace(accepted_compression_types=(99, -3, codec, codec, 1)))
    request = scene.next()
    assert request.body.compression_type == codec
    assert SENT in {name for name, _ in pushed(request.body).points}


def test_a_codec_without_its_package_is_left_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(codec: Codec) -> object:
        if codec is Codec.LZ4:
            raise ConfigError("no package")
        return real(codec)

    real = Compressor
    monkeypatch.setattr(reporter_module, "Compressor", refuse)
    scene.subscribe(ANSWER._replace(accepted_compression_types=(3, 1)))
    assert scene.next().body.compression_type == Codec.GZIP


def test_a_refused_codec_is_not_used_again(scene: Scene) -> None:
    for codec in (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY, Codec.NONE):
        scene.subscribe()
        request = scene.next()
        assert request.body.compression_type == codec
        scene.answer(PushTelemetryResponse(error_code=Code.UNSUPPORTED_COMPRESSION_TYPE))
        assert scene.reporter.due_at == scene.now + MIN_INTERVAL_S


def test_another_subscription_is_requested_at_once_and_pushed_with_its_number(scene: Scene) -> None:
    scene.subscribe()
    scene.push(Code.UNKNOWN_SUBSCRIPTION_ID)
    assert scene.reporter.due_at == scene.now + MIN_INTERVAL_S
    assert scene.next().body == GetTelemetrySubscriptionsRequest(ID)
    scene.answer(ANSWER._replace(subscription_id=8))
    assert scene.next().body.subscription_id == 8


@pytest.mark.parametrize("code", [Code.UNKNOWN_SUBSCRIPTION_ID, Code.THROTTLING_QUOTA_EXCEEDED])
def test_a_broker_that_refuses_every_request_is_asked_rarely(scene: Scene, code: Code) -> None:
    for _ in range(3):
        scene.subscribe(ANSWER._replace(error_code=code))
        assert scene.reporter.due_at == scene.now + DEFAULT_INTERVAL_S


@pytest.mark.parametrize(
    "code", [Code.INVALID_REQUEST, Code.INVALID_RECORD, Code.UNSUPPORTED_VERSION, Code.INVALID_CONFIG]
)
def test_other_errors_end_it_with_a_warning(scene: Scene, code: Code, caplog: pytest.LogCaptureFixture) -> None:
    scene.subscribe()
    scene.push(code)
    assert scene.reporter.is_off
    assert scene.reporter.due_at == NEVER
    assert caplog.messages[-1].startswith(
        "client telemetry (KIP-714) is off for this client: the broker refuses PushTele"
    )
    assert caplog.records[-1].levelno == logging.WARNING


def test_lost_connections_end_it_at_the_third_time(scene: Scene) -> None:
    for left in (2, 1, 0):
        request = scene.next()
        scene.reporter.on_completion(request.api, None, ConnectionFailed("the broker closed it"), scene.now)
        assert scene.reporter.is_off is (left == 0)
        assert left == 0 or scene.reporter.due_at == scene.now + DEFAULT_INTERVAL_S


# Absurd wishes


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        (0, DEFAULT_INTERVAL_S),
        (-5, DEFAULT_INTERVAL_S),
        (1, MIN_INTERVAL_S),
        (60_000, 60),
        (2**31 - 1, MAX_INTERVAL_S),
    ],
)
def test_the_interval_is_bounded(scene: Scene, milliseconds: int, seconds: float) -> None:
    scene.subscribe(ANSWER._replace(push_interval_ms=milliseconds))
    assert 0.5 * seconds <= scene.reporter.due_at <= 1.5 * seconds
    scene.push()
    assert scene.reporter.due_at == scene.now + seconds


def test_pushes_take_a_hundredth_of_the_time_at_most(scene: Scene) -> None:
    scene.cost = 0.25
    scene.subscribe(ANSWER._replace(push_interval_ms=1))
    scene.push()
    assert scene.reporter.due_at == pytest.approx(scene.now + 25)


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31)])
def test_a_broker_that_takes_no_bytes_gets_none(scene: Scene, max_bytes: int) -> None:
    scene.subscribe(ANSWER._replace(telemetry_max_bytes=max_bytes))
    assert scene.reporter.state is TelemetryState.SUBSCRIPTION_NEEDED
    assert scene.reporter.due_at == scene.now + 60


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_push_is_as_small_as_the_broker_wants_and_begins_with_the_whole_client(scene: Scene, codec: Codec) -> None:
    scene.subscribe(ANSWER._replace(telemetry_max_bytes=1000, accepted_compression_types=(codec,)))
    request = scene.next()
    assert 300 < len(request.body.metrics) <= 1000
    assert all(owner == "" for _, owner in pushed(request.body).points)


def test_a_push_that_was_too_large_is_halved(scene: Scene) -> None:
    scene.subscribe()
    request = scene.next()
    scene.answer(PushTelemetryResponse(error_code=Code.TELEMETRY_TOO_LARGE))
    assert scene.reporter.due_at == scene.now + 60
    scene.subscribe()
    assert len(scene.next().body.metrics) <= len(request.body.metrics) // 2


def test_if_nothing_fits_nothing_is_pushed(scene: Scene) -> None:
    scene.subscribe(ANSWER._replace(telemetry_max_bytes=20))
    scene.now = scene.reporter.due_at
    assert scene.reporter.request(scene.now) is None
    assert scene.reporter.due_at == scene.now + 60


def test_thousands_of_topics_are_cut_and_the_whole_client_stays(scene: Scene) -> None:
    for number in range(900):
        scene.metrics.batch_retried(f"topic-{number}", 1, 1.0)
    scene.subscribe()
    found = scene.push()
    assert len(found.points) == MAX_POINTS
    assert ("pyproducer.record.delivered.total", "") in found.points


def test_ten_thousand_prefixes_are_cut(scene: Scene) -> None:
    scene.subscribe(ANSWER._replace(requested_metrics=(*(f"(a+)+{each}" for each in range(10_000)), "org.apache")))
    assert scene.reporter.subscription is not None
    assert len(scene.reporter.subscription.prefixes) == 1000


def test_a_subscription_that_was_too_long_to_be_decoded_ends_it(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.next()
    scene.answer(None)
    assert scene.reporter.is_off
    assert "the response to GetTelemetrySubscriptions is too large" in caplog.text


def test_no_client_instance_id_ends_it(scene: Scene) -> None:
    scene.subscribe(ANSWER._replace(client_instance_id=NO_UUID))
    assert scene.reporter.is_off


# The end


def test_the_last_push_is_marked_and_none_follows(scene: Scene) -> None:
    scene.subscribe()
    request = scene.reporter.last_request()
    assert request is not None
    assert isinstance(request.body, PushTelemetryRequest)
    assert request.body.terminating
    assert request.body.subscription_id == 7
    assert scene.reporter.is_off
    assert scene.reporter.last_request() is None
    scene.answer(PushTelemetryResponse())
    assert scene.reporter.due_at == NEVER


def test_the_last_push_does_not_repeat_the_deltas_of_one_in_flight(scene: Scene) -> None:
    scene.subscribe(ANSWER._replace(delta_temporality=True))
    assert pushed(scene.next().body).value(SENT) > 0
    request = scene.reporter.last_request()
    assert request is not None
    assert pushed(request.body).value(SENT) == 0


def test_without_a_subscription_there_is_no_last_push(scene: Scene) -> None:
    assert scene.reporter.last_request() is None
    scene = Scene()
    scene.next()
    assert scene.reporter.last_request() is None
    scene.answer(ANSWER)
    assert scene.reporter.is_off
