"""Pure core: the stages of the platform joined into one pipeline, with its load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import simpy

from tools.simulation.measures import Freshness
from tools.simulation.model import Broker, Chunk, Context, Machine, Service, Stage, Steps, Topic

STAGES: Final = ("edge", "normalizer", "segmenter", "projector")
_PHASES: Final = 16
"""Groups of partitions whose ticks end one after the other: events of all partitions do not arrive at the same instant."""
_LEAST_STEP: Final = 0.001
"""Least time in s between the ends of the ticks of two groups."""


@dataclass(frozen=True, slots=True)
class Load:
    """Events that arrive. `shares`: of each partition. `seconds`: until the sender stops; `tick`: s, of a chunk."""

    rate: float
    shares: Sequence[float]
    seconds: float
    tick: float = 0.05
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Workers and service of each stage. `reader_seconds`: from a commit to the record in the hand of a reader of the feed.

    `edge_seconds`: processor time of an event at the edge; `edge_shared`: that of the broker for it, on a shared machine.
    `cores`: of a machine that all parts share; None: each worker has its own.
    """

    workers: Mapping[str, int]
    services: Mapping[str, Service]
    edge_seconds: float
    reader_seconds: float
    edge_shared: float = 0.0
    cores: int | None = None


class Pipeline:
    """edge -> topic -> normalizer -> topic -> segmenter -> feed, and from the feed's partitions the projector."""

    def __init__(self, layout: Layout, load: Load) -> None:
        self.env = simpy.Environment()
        self.broker = Broker(self.env)
        self.feed, self.read_model = Freshness(), Freshness()
        self.sent = 0
        self.done_at = 0.0
        """When the last event was readable in the read model."""
        self.times: list[float] = []
        self.backlog: dict[str, list[float]] = {name: [] for name in STAGES[1:]}
        self._layout, self._load = layout, load
        machine = Machine(self.env, layout.cores) if layout.cores else None
        self._around = Context(self.env, self.broker, machine)
        topics = {name: Topic(len(load.shares)) for name in STAGES[1:]}
        sinks = {"normalizer": topics["segmenter"].append, "segmenter": self._changes(topics["projector"].append)}
        self.stages = {
            name: Stage(
                name,
                self._around,
                layout.services[name],
                topics[name],
                self._read if name == "projector" else _each(sinks[name]),
            )
            for name in STAGES[1:]
        }
        for name, stage in self.stages.items():
            stage.start(layout.workers[name])
        self._edge = simpy.Resource(self.env, 1)
        self.env.process(self._send(topics["normalizer"]))
        self.env.process(self._sample())

    def run(self, until: float | None = None) -> None:
        """Run until a time in s, or until the sender has stopped and every event is readable."""
        if until is not None:
            self.env.run(until)
            return
        while self.env.now < self._load.seconds or self.read_model.events < self.sent:
            self.env.step()

    def utilisation(self, first: float, end: float) -> Mapping[str, float]:
        """Return the busy share of the workers of each stage between two whole seconds."""
        return {
            "edge": self._load.rate * self._layout.edge_seconds / self._layout.workers["edge"],
            **{
                name: sum(stage.busy[int(first) : int(end)]) / (len(stage.workers) * (end - first))
                for name, stage in self.stages.items()
            },
        }

    def _send(self, topic: Topic) -> Steps:
        """Send the chunk of each partition at the end of its tick. The ticks of the partitions are shifted against each other."""
        dice = np.random.default_rng(self._load.seed)
        tick, partitions = self._load.tick, len(self._load.shares)
        phases = max(1, min(_PHASES, partitions, int(tick / _LEAST_STEP)))
        groups = [range(phase, partitions, phases) for phase in range(phases)]
        expected = [np.array([self._load.shares[one] for one in group]) * (self._load.rate * tick) for group in groups]
        numbers, phase = [0] * partitions, 0
        yield self.env.timeout(tick)
        while self.env.now < self._load.seconds:
            counts = dice.poisson(expected[phase]).tolist()
            self.sent += sum(counts)
            self.env.process(self._accept(topic, dict(zip(groups[phase], counts, strict=True)), numbers, self.env.now - tick / 2))
            phase = (phase + 1) % phases
            yield self.env.timeout(tick / phases)

    def _accept(self, topic: Topic, counts: Mapping[int, int], numbers: list[int], born: float) -> Steps:
        """Accept chunks at the edge, in the order of their arrival; its workers divide them among themselves."""
        with self._edge.request() as turn:
            yield turn
            work = sum(counts.values()) * self._layout.edge_seconds / self._layout.workers["edge"]
            if self._around.machine is None:
                yield self.env.timeout(work)
            else:
                yield from self._around.machine.use(work + sum(counts.values()) * self._layout.edge_shared)
            yield from self.broker.answer()
            for partition, count in counts.items():
                if count:
                    topic.append(partition, Chunk(born, count, numbers[partition]))
                    numbers[partition] += 1

    def _changes(self, publish: Callable[[int, Chunk], None]) -> Callable[[int, Chunk], None]:
        """The segmenter's output: the feed, and the partitions that the projector reads."""

        def sink(partition: int, chunk: Chunk) -> None:
            self.feed.add(self.env.now + self._layout.reader_seconds, (chunk,))
            publish(partition, chunk)

        return sink

    def _read(self, partition: int, chunks: Sequence[Chunk]) -> None:
        del partition  # the read model is one for all
        self.read_model.add(self.env.now, chunks)
        self.done_at = self.env.now

    def _sample(self) -> Steps:
        while True:
            self.times.append(self.env.now)
            for name, stage in self.stages.items():
                self.backlog[name].append(stage.source.backlog)
            yield self.env.timeout(0.5)

    def total_backlog(self) -> Sequence[float]:
        """Return the records that wait in all topics, at each of `times`."""
        return [sum(sizes) for sizes in zip(*self.backlog.values(), strict=True)]


def _each(append: Callable[[int, Chunk], None]) -> Callable[[int, Sequence[Chunk]], None]:
    def sink(partition: int, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            append(partition, chunk)

    return sink
