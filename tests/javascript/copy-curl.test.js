import assert from "node:assert/strict";
import test from "node:test";

import { apiValue, curlBody, curlCommand, fieldValues, typedInstant } from "../../static/site/copy-curl.js";

const AUTHORIZATION = '-H "Authorization: Bearer $FALCONWEB_TOKEN"';

test("a body has literals and the fields of the form, also in lists, but no wish without a count", () => {
  const wish = (kind) => ({ kind, count: { field: `count_${kind}` }, chassis_id: { field: "chassis" } });
  const form = { target: 12, count_gpu: 2, count_drive: null, count_nic: 0 };
  const body = {
    device_id: 3,
    target_host_port_id: { field: "target" },
    other: null,
    wishes: [wish("gpu"), wish("drive"), wish("nic")],
  };
  assert.deepEqual(
    curlBody({ ...body, roll_back: true }, (name) => form[name]),
    {
      device_id: 3,
      target_host_port_id: 12,
      other: null,
      wishes: [{ kind: "gpu", count: 2, chassis_id: undefined }],
      roll_back: true,
    },
  );
});

test("the API gets numbers, lists, boxes and none as JSON has them", () => {
  for (const [name, values, kind, expected] of [
    ["item_ids", ["3", "4"], "boxes", [3, 4]],
    ["item_ids", [], "checkbox", []],
    ["tenant_id", ["7"], "select-one", 7],
    ["tenant_id", [""], "select-one", null],
    ["scope_id", ["gpu"], "select-one", null],
    ["days", ["0", "6"], "boxes", ["0", "6"]],
    ["enabled", ["on"], "checkbox", true],
    ["enabled", [], "checkbox", false],
    ["value", ["80.5"], "number", 80.5],
    ["value", [""], "number", null],
    ["from_time", [""], "time", null],
    ["note", [""], "textarea", ""],
    ["ends_at", [""], "datetime-local", null],
    ["ends_at", ["2026-03-02T10:00"], "datetime-local", "2026-03-02T10:00:00.000Z"],
  ])
    assert.deepEqual(apiValue(name, values, kind, "UTC"), expected, name);
});

test("a time is that of its zone, also around the change of the clocks", () => {
  assert.equal(typedInstant("2026-01-02T10:00", "Europe/Berlin"), "2026-01-02T09:00:00.000Z");
  assert.equal(typedInstant("2026-03-29T01:30", "Europe/Berlin"), "2026-03-29T00:30:00.000Z");
  assert.equal(typedInstant("2026-03-29T03:30", "Europe/Berlin"), "2026-03-29T01:30:00.000Z");
});

test("a field may be the one that another names, and have its values by their start", () => {
  const given = new FormData();
  given.append("scope", "chassis");
  given.append("chassis", "5");
  given.append("what", "rule-3");
  assert.deepEqual(fieldValues("{scope}", given), ["chassis", ["5"]]);
  assert.deepEqual(fieldValues("what:rule-", given), ["what", ["3"]]);
  assert.deepEqual(fieldValues("what!rule-", given), ["what", []]);
  assert.deepEqual(fieldValues("what", given), ["what", ["rule-3"]]);
});

test("a command names the token by its variable, and sends a body only where there is one", () => {
  assert.equal(
    curlCommand("DELETE", "https://a.example/b/", {}),
    `curl -X DELETE 'https://a.example/b/' ${AUTHORIZATION}`,
  );
});

test("no text of a form leaves its quotes", () => {
  const command = curlCommand("POST", "https://a.example/", { note: "it's $(reboot)" });
  assert.ok(command.endsWith(`-d '{"note":"it'\\''s $(reboot)"}'`), command);
});
