"""The budget of bytes: who is admitted when, and that nothing is held for ever."""

from spark_producer.broker.memory.budget import ConnectionMemory, MemoryHolding

LIMIT = 800


def test_requests_are_admitted_in_order_as_memory_becomes_free() -> None:
    budget: ConnectionMemory[str] = ConnectionMemory(6400)
    first, second, middle, small = (MemoryHolding(budget, name) for name in ("first", "second", "middle", "small"))
    assert first.admit(3200)
    second.hold_response(3150)
    assert not middle.admit(100)
    assert not small.admit(10), "it would fit, but an earlier one waits"
    assert budget.next_admitted() is None
    first.request_done()
    assert budget.next_admitted() == "middle"
    assert middle.admit(100)
    assert budget.next_admitted() == "small"
    assert small.admit(10)
    assert budget.next_admitted() is None
    assert not budget.is_contended
    assert budget.held == 3260


def test_large_requests_that_do_not_come_keep_no_small_one_waiting() -> None:
    budget: ConnectionMemory[str] = ConnectionMemory(6400)
    large = [MemoryHolding(budget, f"large {number}") for number in range(3)]
    small = MemoryHolding(budget, "small")
    assert large[0].admit(2500)
    assert not large[1].admit(2500), "all large ones together have half"
    assert small.admit(100)
    assert not large[2].admit(700)
    assert budget.is_contended
    large[0].request_done()
    assert budget.next_admitted() == "large 1"
    assert large[1].admit(2500)
    assert budget.next_admitted() == "large 2"
    assert large[2].admit(700)


def test_who_leaves_gives_back_what_he_held_and_his_place() -> None:
    budget: ConnectionMemory[str] = ConnectionMemory(LIMIT)
    holder, waiting, other = (MemoryHolding(budget, name) for name in ("holder", "waiting", "other"))
    assert holder.admit(400)
    holder.hold_response(400)
    holder.hold_waiting(50)
    assert not waiting.admit(10)
    assert not other.admit(20)
    waiting.close()
    holder.close()
    assert budget.held == 0
    assert budget.next_admitted() == "other"


def test_fetches_are_held_back_before_other_requests() -> None:
    budget: ConnectionMemory[str] = ConnectionMemory(LIMIT)
    one, two = MemoryHolding(budget, "one"), MemoryHolding(budget, "two")
    one.hold_response(60)
    assert budget.max_fetch_bytes == 20, "half of the free memory"
    for response, may_fetch, may_respond in ((30, True, True), (40, False, True), (139, False, True)):
        two.hold_response(response)
        assert (budget.may_respond(fetch=True), budget.may_respond(fetch=False)) == (may_fetch, may_respond)
    assert budget.max_fetch_bytes == 0


def test_one_answer_of_any_size_holds_back_fetches_alone() -> None:
    budget: ConnectionMemory[str] = ConnectionMemory(LIMIT)
    one, two = MemoryHolding(budget, "one"), MemoryHolding(budget, "two")
    one.hold_response(10 * LIMIT)
    for response, may_respond in ((199, True), (200, False), (0, True)):
        two.hold_response(response)
        assert (budget.may_respond(fetch=True), budget.may_respond(fetch=False)) == (False, may_respond)


def test_a_fetch_waits_while_there_is_an_eighth_for_that() -> None:
    budget: ConnectionMemory[str] = ConnectionMemory(LIMIT)
    holding = MemoryHolding(budget, "one")
    assert budget.may_wait(100)
    holding.hold_waiting(60)
    assert not budget.may_wait(50)
    holding.hold_waiting(0)
    assert budget.may_wait(50)


def test_the_largest_request_is_admitted_beside_the_largest_answers_and_waits() -> None:
    budget: ConnectionMemory[str] = ConnectionMemory(LIMIT)
    slow, patient, sender = (MemoryHolding(budget, name) for name in ("slow", "patient", "sender"))
    slow.hold_response(LIMIT // 4)
    patient.hold_waiting(LIMIT // 8)
    budget.unconfirmed.change(LIMIT // 8)
    assert not budget.unconfirmed.is_full
    assert sender.admit(budget.max_request_bytes), "else they could keep each other waiting"
