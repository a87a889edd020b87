import assert from "node:assert/strict";
import test from "node:test";

import { curlBody, curlCommand } from "../../static/site/copy-curl.js";

const AUTHORIZATION = '-H "Authorization: Bearer $FALCONWEB_TOKEN"';

test("a body has literals and the fields of the form, ids as numbers or null", () => {
  const form = { target: "12", expected: "", mode: "Standard" };
  const fields = {
    device_id: 3,
    target_host_port_id: ["target"],
    expected_host_port_id: ["expected"],
    mode: ["mode"],
  };
  const body = { device_id: 3, target_host_port_id: 12, expected_host_port_id: null, mode: "Standard" };
  assert.deepEqual(
    curlBody({ ...fields, roll_back: true }, (name) => form[name]),
    { ...body, roll_back: true },
  );
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
