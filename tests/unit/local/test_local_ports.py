import pytest

from starling_local.ports import DEFAULT_BASE, FIXED, MAX_WORKERS, SPAN, WORKERS, Ports


def test_every_port_of_an_instance_is_its_own() -> None:
    ports = Ports(20_000)
    fixed = [ports.fixed(name) for name in FIXED]
    workers = [ports.worker(service, index) for service in WORKERS for index in range(MAX_WORKERS)]
    assert len({*fixed, *workers}) == len(fixed) + len(workers)


def test_all_ports_lie_between_the_base_and_the_next_instance() -> None:
    ports = Ports(20_000)
    every = [ports.fixed(name) for name in FIXED] + [ports.worker(s, i) for s in WORKERS for i in range(MAX_WORKERS)]
    assert min(every) == 20_000
    assert max(every) < 20_000 + SPAN


def test_the_documented_addresses() -> None:
    ports = Ports()
    assert ports.base == DEFAULT_BASE == 18080
    assert ports.address("ingest") == "127.0.0.1:18080"
    assert ports.address("api") == "127.0.0.1:18081"
    assert ports.address("kafka") == "127.0.0.1:18083"
    assert ports.worker("segmenter", 1) == 18111


@pytest.mark.parametrize("base", [0, 80, 1023, 65_436, 70_000])
def test_a_base_that_leaves_no_room_is_refused(base: int) -> None:
    with pytest.raises(ValueError, match="--port-base"):
        Ports(base)


def test_an_eleventh_worker_has_no_port() -> None:
    with pytest.raises(ValueError, match="--scale segmenter"):
        Ports().worker("segmenter", MAX_WORKERS)
