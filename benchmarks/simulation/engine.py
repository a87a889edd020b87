"""Events: processes that compute, wait and move bytes over shared resources, in order of simulated time.

A process is a generator. It yields a SimulatedActivity (and goes on when that is done) or a Gate (and goes on when it
is open). Activities with paths share resources max-min fairly; others run at the speed of their owner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

DONE = 1e-9  # relative: what is left of an activity that is done


class Gate:
    """Opens when `count` processes have arrived; who waits goes on then."""

    __slots__ = ("left", "waiting")

    def __init__(self, count: int = 1) -> None:
        self.left = count
        self.waiting: list[Process] = []

    @property
    def is_open(self) -> bool:
        return self.left <= 0


@dataclass(slots=True, eq=False)
class SimulatedActivity:
    """An amount of work. `path` maps resources to what one unit of the amount takes of them.

    `key` names activities with equal paths and limits, so that shares are computed once. `speed` slows an activity
    without a path, and is asked anew whenever others begin or end.
    """

    amount: float
    key: str = ""
    path: Mapping[str, float] = field(default_factory=dict)
    limit: float = float("inf")
    speed: Callable[[], float] | None = None
    rate: float = 0.0


Process = Generator["SimulatedActivity | Gate"]


class Engine:
    """The clock, the running activities, and the capacities of resources."""

    def __init__(self, capacities: Mapping[str, float]) -> None:
        self.now = 0.0
        self.carried: dict[str, float] = {}  # amounts that resources have passed on, by resource
        self._capacities = capacities
        self._running: list[tuple[SimulatedActivity, Process]] = []
        self._ready: list[Process] = []
        self._shares: dict[tuple[object, ...], dict[str, float]] = {}
        self._held: dict[str, float] = {}
        self.rates: dict[str, float] = {}  # of the running activities with paths, by key

    def start(self, process: Process) -> None:
        self._ready.append(process)

    def free(self, resource: str, demand: float = 0.0) -> float:
        """Return what is left of a resource beside what is held, or the part that activities with a demand get.

        Where both are more than there is, all get equal parts of what they ask for, as threads do of cores.
        """
        amount, held = self._capacities[resource], self._held.get(resource, 0.0)
        return max(amount - held, amount * demand / (demand + held) if held else amount)

    def held(self, resource: str) -> float:
        """Return how much of a resource is held."""
        return self._held.get(resource, 0.0)

    def hold(self, resource: str, amount: float) -> None:
        """Take an amount of a resource's capacity from all activities, or give it back with a negative one."""
        self._held[resource] = self._held.get(resource, 0.0) + amount

    def arrive(self, gate: Gate) -> None:
        """Note one arrival at a gate."""
        gate.left -= 1
        if gate.left == 0:
            self._ready.extend(gate.waiting)
            gate.waiting.clear()

    def run(self, done: Gate) -> None:
        """Let time pass until a gate is open. Raises RuntimeError where nothing moves any more."""
        while True:
            self._resume()
            if done.is_open:
                return
            if not self._running:
                raise RuntimeError("All processes wait for each other.")
            self._set_rates()
            passed = min(one.amount / one.rate for one, _ in self._running)
            self.now += passed
            still: list[tuple[SimulatedActivity, Process]] = []
            for entry in self._running:
                one = entry[0]
                moved = one.rate * passed
                left = one.amount - moved
                for resource, weight in one.path.items():
                    self.carried[resource] = self.carried.get(resource, 0.0) + weight * moved
                one.amount = left
                if left <= DONE * (moved + left):
                    self._ready.append(entry[1])
                else:
                    still.append(entry)
            self._running = still

    def _resume(self) -> None:
        while self._ready:
            process = self._ready.pop(0)
            for wanted in process:
                if isinstance(wanted, Gate):
                    if wanted.is_open:
                        continue
                    wanted.waiting.append(process)
                    break
                if wanted.amount > 0:
                    self._running.append((wanted, process))
                    break

    def _set_rates(self) -> None:
        flows = [one for one, _ in self._running if one.key]
        keys = (*sorted(one.key for one in flows), *self._held.items())
        if keys not in self._shares:
            capacities = {**self._capacities}
            for name in self._held:
                capacities[name] = self.free(name, sum(flow.limit for flow in flows if name in flow.path))
            self._shares[keys] = fair_shares(flows, capacities)
        self.rates = self._shares[keys]
        for one, _ in self._running:
            if one.key:
                one.rate = self.rates[one.key]
            else:
                one.rate = one.speed() if one.speed is not None else 1.0


class Store:
    """Batches between who makes and who takes them: at most `size`."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine, self._size = engine, size
        self._filled, self._space = Gate(), Gate()
        self.batches = 0

    def fill(self) -> None:
        self.batches = self._size

    def room(self) -> Process:
        """Wait until there is room for a batch."""
        while self.batches >= self._size:
            yield self._space

    def put(self) -> None:
        self.batches += 1
        filled, self._filled = self._filled, Gate()
        self._engine.arrive(filled)

    def take(self) -> Process:
        """Wait for a batch, and take it."""
        while not self.batches:
            yield self._filled
        self.batches -= 1
        space, self._space = self._space, Gate()
        self._engine.arrive(space)


def fair_shares(flows: Sequence[SimulatedActivity], capacities: Mapping[str, float]) -> dict[str, float]:
    """Return the max-min fair rate of each flow by its key: the scarcest resource is divided first."""
    left = dict(capacities)
    rates: dict[str, float] = {}
    open_flows = list(flows)
    while open_flows:
        demand: dict[str, float] = {}
        for flow in open_flows:
            for resource, weight in flow.path.items():
                demand[resource] = demand.get(resource, 0.0) + weight
        share, scarcest = min(((left[name] / weight, name) for name, weight in demand.items()), default=(0.0, ""))
        limited = [flow for flow in open_flows if flow.limit <= share or not flow.path]
        if limited:
            tightest = min(flow.limit for flow in limited)
            fixed = [flow for flow in limited if flow.limit <= tightest]
            share = tightest
        else:
            fixed = [flow for flow in open_flows if scarcest in flow.path]
        for flow in fixed:
            rates[flow.key] = share
            for resource, weight in flow.path.items():
                left[resource] = max(0.0, left[resource] - weight * share)
        open_flows = [flow for flow in open_flows if flow not in fixed]
    return rates
