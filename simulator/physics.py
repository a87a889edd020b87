"""Physics of a chassis over simulated time: link training, traffic, heat, errors; and the clock.

Everything follows from the seed and the simulated seconds: the same seed gives the same readings.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from simulator.lab import DeviceModelKind
from simulator.state import (
    ChassisState,
    SimulatedDevice,
    SimulatedDrawer,
    SimulatedFan,
    SimulatedHostPort,
    SimulatedLink,
    SimulatedSlot,
    SwitchPort,
    negotiated,
)

STEP_SECONDS = 1.0
CAUTION_CELSIUS = 83.0
CRITICAL_CELSIUS = 90.0
OVERHEATED_CELSIUS = 99.0
# The payload share of the raw rate after 128b/130b coding.
PAYLOAD_SHARE = 128 / 130
MIN_TRAINING = 1.0
MAX_TRAINING = 3.0
BASE_WATTS = 220.0
# A device with a lower load is idle.
MIN_LOAD = 0.001


class Physics:
    """Advances one chassis through simulated time in steps of a second.

    `link_changed` is called for a link that came up, `temperature_changed` with the name of the band that a slot's
    temperature has entered: normal, caution or critical.
    """

    def __init__(
        self,
        state: ChassisState,
        seed: int,
        *,
        link_changed: Callable[[SwitchPort], None],
        temperature_changed: Callable[[SimulatedSlot, str], None],
    ) -> None:
        self._state = state
        self.link_changed = link_changed
        self._temperature_changed = temperature_changed
        self._weather = random.Random(f"{seed}/{state.name}/weather")
        self._training = random.Random(f"{seed}/{state.name}/training")
        self.time = 0.0
        self._trained_at = math.inf  # when the next link has trained, simulated s; a link kept down trains until it may
        profile = random.Random(f"{seed}/{state.name}/profile")
        for slot in state.all_slots():
            phase, period = profile.random() * math.tau, profile.uniform(18, 55)
            if slot.device is not None:
                slot.device.phase, slot.device.period = phase, period
        for _ in range(90):
            # A warm chassis, with its counters still at zero.
            self._thermal_step()
        for slot in state.all_slots():
            slot.band = "normal"

    def train(self, link: SimulatedLink) -> None:
        """Start the training of a link; it takes 1 to 3 simulated seconds."""
        link.status = "Training"
        link.lanes = 0
        link.errors["L0ToRecoveryCount"] += 1
        link.trains_until = self.time + self._training.uniform(MIN_TRAINING, MAX_TRAINING)
        self._trained_at = min(self._trained_at, link.trains_until)

    def drop(self, port: SwitchPort) -> None:
        """Take the link of a port down without a notification; NoLink without anything at its other end."""
        port.link.status = "LinkDown" if port.connected else "NoLink"
        port.link.lanes = 0
        port.link.trains_until = None

    def advance(self, now: float) -> None:
        """Advance the chassis to the simulated second `now`."""
        while self.time + STEP_SECONDS <= now:
            self.time += STEP_SECONDS
            self._finish_training(self.time)
            self._traffic_step()
            self._thermal_step()
            self._state.steps += 1
        self._finish_training(now)

    def _finish_training(self, now: float) -> None:
        if now < self._trained_at:
            return
        ports = self._state.switch_ports()
        for port in ports:
            self._finish_link(port, now)
        until = (port.link.trains_until for port in ports)
        self._trained_at = min((one for one in until if one is not None), default=math.inf)

    def _finish_link(self, port: SwitchPort, now: float) -> None:
        link = port.link
        if link.trains_until is None or link.trains_until > now or link.forced_down:
            return
        link.trains_until = None
        device = port.present if isinstance(port, SimulatedSlot) else None
        link.lanes, link.generation = negotiated(link, device.model if device else None)
        link.status = "LinkUp"
        self.link_changed(port)

    def _traffic_step(self) -> None:
        for drawer in self._state.drawers.values():
            for port in drawer.host_ports.values():
                self._port_traffic(drawer, port)

    def _port_traffic(self, drawer: SimulatedDrawer, port: SimulatedHostPort) -> None:
        ceiling = port.link.gbps * PAYLOAD_SHARE / 8 * 1e9
        demands = [self._demand(drawer.slots[number]) for number in port.slots]
        # Traffic between devices of the drawer passes the switch, but not the host port.
        down = sum(to_device * (1 - between) for to_device, _, between in demands)
        up = sum(from_device * (1 - between) for _, from_device, between in demands)
        squeeze_down = min(1.0, ceiling / down) if down else 1.0
        squeeze_up = min(1.0, ceiling / up) if up else 1.0
        for number, (to_device, from_device, between) in zip(port.slots, demands, strict=True):
            slot = drawer.slots[number]
            sent = to_device * (between + (1 - between) * squeeze_down)
            received = from_device * (between + (1 - between) * squeeze_up)
            # A downstream port transmits to the device; an upstream port receives from the host.
            slot.link.transmitted_bytes += sent
            slot.link.received_bytes += received
            if slot.present is not None:
                slot.present.carried = (sent / STEP_SECONDS, received / STEP_SECONDS)
            self._count_link_errors(slot.link)
        port.link.received_bytes += down * squeeze_down
        port.link.transmitted_bytes += up * squeeze_up

    def _demand(self, slot: SimulatedSlot) -> tuple[float, float, float]:
        """Return the traffic to and from a device in a step, and the share that stays within the drawer."""
        device = slot.present
        if device is None:
            return 0.0, 0.0, 0.0
        capacity = slot.link.gbps * PAYLOAD_SHARE / 8 * 1e9 * STEP_SECONDS
        chance = self._weather.random()
        if (load := device.requested) is not None:
            jitter = (0.98 + 0.04 * chance) * STEP_SECONDS
            return (
                min(capacity, load.to_device * jitter),
                min(capacity, load.from_device * jitter),
                load.peer_share,
            )
        jitter = 0.9 + 0.2 * chance
        return (
            capacity * device.load * device.model.receive_share * jitter,
            capacity * device.load * device.model.transmit_share * jitter,
            0.0,
        )

    def _count_link_errors(self, link: SimulatedLink) -> None:
        if link.status == "LinkUp" and self._weather.random() < 1 / 900:
            for counter in ("CorrectableErrorCount", "BadTLPCount", "NAKSentCount", "ReplayCount"):
                link.errors[counter] += 1

    def _thermal_step(self) -> None:
        state = self._state
        moving = [fan for fan in state.fans if not fan.failed]
        airflow = sum(fan.percent for fan in moving) / (100 * len(state.fans))
        total = BASE_WATTS
        hottest = 0.0
        for drawer in state.drawers.values():
            watts = 0.0
            for slot in drawer.slots.values():
                self._slot_step(slot, airflow, reached=self._is_reached(drawer, slot))
                watts += slot.watts
                hottest = max(hottest, slot.temperature)
            drawer.inlet += (state.inlet - drawer.inlet) * 0.05 + self._weather.uniform(-0.05, 0.05)
            drawer.outlet += (drawer.inlet + 4 + watts / (40 + 120 * airflow) - drawer.outlet) * 0.08
            total += watts
        percent = min(100.0, max(30.0, 30 + (hottest - 45) * 1.8))
        for fan in state.fans:
            self._fan_step(fan, percent)
        state.watts = total + sum(12 * (fan.percent / 100) ** 3 for fan in moving)
        state.joules += state.watts * STEP_SECONDS

    @staticmethod
    def _is_reached(drawer: SimulatedDrawer, slot: SimulatedSlot) -> bool:
        """Return whether a host can reach the device: the links on both sides of the switch are up."""
        port = drawer.host_ports[slot.attached_to] if slot.attached_to is not None else None
        return port is not None and slot.link.status == port.link.status == "LinkUp"

    def _slot_step(self, slot: SimulatedSlot, airflow: float, *, reached: bool) -> None:
        noise = self._weather.uniform(-1, 1)
        device = slot.present
        if device is None:
            slot.watts = 0.0
            slot.temperature += (self._state.inlet + 3 - slot.temperature) * 0.05
            return
        self._device_load(device, noise, reached=reached)
        slot.watts = device.model.idle_watts + (device.model.max_watts - device.model.idle_watts) * device.load
        # Passive cards are cooled only by the chassis: the less air, the hotter.
        target = self._state.inlet + 8 + slot.watts * 0.2 / max(0.25, 0.4 + airflow)
        if slot.overheated:
            slot.temperature += (OVERHEATED_CELSIUS - slot.temperature) * 0.25
        else:
            slot.temperature += (target - slot.temperature) * 0.04 + noise * 0.08
        self._watch_band(slot)

    def _device_load(self, device: SimulatedDevice, noise: float, *, reached: bool) -> None:
        if not reached:
            device.load = 0.0
            device.carried = (0.0, 0.0)
            return
        if device.requested is not None or device.unused:
            share = 0.0 if device.requested is None else device.requested.share
            load = device.load + (share * (1 + 0.01 * noise) - device.load) * 0.6
            device.load = min(1.0, load) if load > MIN_LOAD else 0.0
            return
        device.phase += math.tau * STEP_SECONDS / device.period
        wave = math.sin(device.phase)
        # A training run: long stretches of work, a short pause between epochs.
        work = 0.86 + 0.06 * math.sin(3.1 * device.phase) if wave > -0.82 else 0.12
        if device.model.kind is not DeviceModelKind.GPU:
            work *= 0.55 + 0.35 * max(0.0, -wave)
        device.load = min(1.0, max(0.02, device.load + (work + 0.04 * noise - device.load) * 0.6))

    def _watch_band(self, slot: SimulatedSlot) -> None:
        if slot.temperature >= CRITICAL_CELSIUS:
            band = "critical"
        elif slot.temperature >= CAUTION_CELSIUS:
            band = "caution" if slot.band != "critical" or slot.temperature < CRITICAL_CELSIUS - 2 else "critical"
        else:
            band = "normal" if slot.temperature < CAUTION_CELSIUS - 2 else slot.band
        if band != slot.band:
            slot.band = band
            self._temperature_changed(slot, band)

    def _fan_step(self, fan: SimulatedFan, percent: float) -> None:
        if fan.failed:
            fan.percent = 0.0
            fan.rpm = max(0.0, fan.rpm * 0.3 - 50)
            return
        fan.percent += (percent - fan.percent) * 0.3
        fan.rpm = fan.percent * 150 + self._weather.uniform(-25, 25)


MAX_SPEED = 1000.0


class Clock:
    """Simulated seconds since the start, and the corresponding date; `speed` is in simulated seconds per second."""

    def __init__(self, speed: float = 1.0) -> None:
        self._started = time.time()
        self._base = 0.0
        # By which the displayed date is set forward or back, in seconds; the elapsed time does not change.
        self.shift = 0.0
        self._since = time.monotonic()
        self.speed = speed

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on; raises ValueError outside of 0 (exclusive) to 1000."""
        if not 0 < speed <= MAX_SPEED:
            raise ValueError(f"the speed must be between 0 and {MAX_SPEED:g}")
        self._base = self.now()
        self._since = time.monotonic()
        self.speed = speed

    def now(self) -> float:
        """Return the simulated seconds since the start."""
        return self._base + (time.monotonic() - self._since) * self.speed

    def timestamp(self, at: float | None = None) -> str:
        """Return the Redfish date and time of a simulated second (default: now)."""
        moment = datetime.fromtimestamp(self._started + self.shift + (self.now() if at is None else at), UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def date_time(self) -> str:
        """Return the present Redfish date and time in whole seconds."""
        return self.timestamp().partition(".")[0] + "Z"
