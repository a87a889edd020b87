import assert from "node:assert/strict";
import test from "node:test";

import {
  composeBlocker,
  freshnessState,
  headerSentence,
  isOutdated,
  reconnectDelay,
  worstState,
} from "../../static/telemetry/live/connection.js";

test("a chassis is live up to 3 s, late to 10 s, then stale", () => {
  const states = [0, 3000, 3001, 10_000, 10_001].map((age) => freshnessState("connected", age, 0));
  assert.deepEqual(states, ["live", "live", "late", "late", "stale"]);
});

test("a chassis that is read every 20 s is live up to 30 s, late to 60 s, then stale", () => {
  const states = [20_000, 30_001, 60_001].map((age) => freshnessState("connected", age, 0, 20_000));
  assert.deepEqual(states, ["live", "late", "stale"]);
});

test("a chassis without values is joining, and stale once that takes too long", () => {
  assert.equal(freshnessState("connected", null, 500), "joining");
  assert.equal(freshnessState("connected", null, 10_001), "stale");
});

test("without the site nothing else counts", () => {
  for (const state of ["offline", "joining", "signed-out"]) assert.equal(freshnessState(state, 0, 0), state);
});

test("the worst chassis decides, the connection where there is none", () => {
  assert.equal(worstState(["live", "stale", "late"], "connected"), "stale");
  assert.equal(worstState([], "connected"), "connected");
  assert.equal(worstState([], "offline"), "offline");
});

test("the header counts the chassis that do not send", () => {
  assert.equal(headerSentence("stale", ["stale"]), "▲ Chassis not sending");
  assert.equal(headerSentence("stale", ["stale", "live", "stale"]), "▲ 2 of 3 chassis not sending");
  assert.equal(headerSentence("live", ["live", "live"]), "● Live");
});

test("values that may be out of date block composing, with the reason", () => {
  for (const state of ["live", "late", "joining"]) {
    assert.equal(composeBlocker({ state, age: 0 }), "");
    assert.equal(isOutdated(state), false);
  }
  assert.match(composeBlocker({ state: "stale", age: 12_400 }), /last heard of 12 s ago/);
  assert.match(composeBlocker({ state: "stale", age: null }), /before this page was opened/);
  assert.match(composeBlocker({ state: "offline" }), /no connection/);
  assert.match(composeBlocker({ state: "signed-out" }), /Sign in again/);
});

test("attempts to connect are 0.5 to 30.5 s apart, at random", () => {
  assert.equal(reconnectDelay(0, 0), 500);
  assert.equal(reconnectDelay(0, 1), 1000);
  assert.equal(reconnectDelay(3, 1), 4500);
  assert.equal(reconnectDelay(50, 1), 30_500);
});
