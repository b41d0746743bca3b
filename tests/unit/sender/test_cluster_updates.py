"""The snapshot of a cluster: answers that no broker in its senses gives."""

from __future__ import annotations

import pytest

from tests.fakes.sender_fakes import metadata_of
from tests.unit.sender.test_metadata import NOW, learn, metadata


@pytest.mark.parametrize("indexes", [(0, 5), (-1, 0), (0, 0), (0, 2**31 - 1)])
def test_an_answer_with_other_partitions_than_0_to_n_is_waited_out(indexes: tuple[int, ...]) -> None:
    made = metadata("a")
    response = metadata_of({"a": (1, 2)})
    described = response.topics[0]
    odd = tuple(row._replace(partition_index=index) for row, index in zip(described.partitions, indexes, strict=True))
    learn(made, response._replace(topics=(described._replace(partitions=odd),)))
    assert "a" not in made.cluster.topics, "rows would go to partitions that their keys do not say"
    made.request_topics("a")
    learn(made, response, NOW + 1)
    assert made.cluster.topics["a"].leaders == (1, 2)
