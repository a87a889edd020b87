// 'Copy as curl': the act of a form as a command for the API, with the token in a variable of the shell.
import { momentOf, pageZone } from "./format.js";
import { _ } from "./language.js";

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The instant of a time that was typed in a time zone. */
export function typedInstant(text, zone) {
  return new Date(momentOf(Date.parse(`${text}Z`) / 1000, zone) * 1000).toISOString();
}

/** What a field of a form has, as the API takes it under a name: `kind` is that of its input, `zone` that of times. */
export function apiValue(name, values, kind, zone) {
  const [value = ""] = values;
  if (name.endsWith("_ids")) return values.map(Number);
  if (name.endsWith("_id")) return Number(value) || null;
  if (name.endsWith("_at")) return value ? typedInstant(value, zone) : null;
  if (kind === "boxes") return values;
  if (kind === "checkbox") return values.length > 0;
  if (kind === "number") return value === "" ? null : Number(value);
  return kind === "time" ? value || null : value;
}

/** A body: `{ field }` stands for what `read` returns of a field for a name. List entries without a count go. */
export function curlBody(body, read, name = "") {
  if (Array.isArray(body))
    return body.map((one) => curlBody(one, read)).filter((one) => one?.count === undefined || one.count > 0);
  if (typeof body !== "object" || body === null) return body;
  if ("field" in body) return read(body.field, name);
  return Object.fromEntries(Object.entries(body).map(([key, value]) => [key, curlBody(value, read, key)]));
}

/** The command for a request; without a body where that is empty. */
export function curlCommand(method, address, body) {
  const parts = ["curl", "-X", method, quote(address), "-H", '"Authorization: Bearer $FALCONWEB_TOKEN"'];
  if (Object.keys(body).length > 0)
    parts.push("-H", "'Content-Type: application/json'", "-d", quote(JSON.stringify(body)));
  return parts.join(" ");
}

/** The name and values of a field: `name`, `{other}` (what the field `other` names), `name:start` or `name!start`. */
export function fieldValues(field, given) {
  const [, known, sign, start] = field.match(/^([^:!]*)([:!]?)(.*)$/);
  const name = known.replace(/^\{(.*)\}$/, (_whole, other) => given.get(other));
  const values = given.getAll(name).filter((value) => !sign || value.startsWith(start) === (sign === ":"));
  return [name, sign === ":" ? values.map((value) => value.slice(start.length)) : values];
}

function kindOf(input) {
  if (input instanceof RadioNodeList) return input[0].type === "checkbox" ? "boxes" : "";
  return ["decimal", "numeric"].includes(input.inputMode) ? "number" : input.type;
}

async function copy(button) {
  const form = button.closest("form");
  const given = new FormData(form ?? undefined);
  const [method, path] = button.dataset.curl.split(" ");
  const body = curlBody(JSON.parse(button.dataset.body), (field, apiName) => {
    const [name, values] = fieldValues(field, given);
    const input = form.elements.namedItem(name);
    return input ? apiValue(apiName, values, kindOf(input), pageZone()) : undefined; // left out
  });
  const command = curlCommand(method, new URL(path, location.href).href, body);
  // Browsers have no clipboard for sites without TLS.
  if (!navigator.clipboard) {
    prompt(_("Copy the command:"), command);
    return;
  }
  await navigator.clipboard.writeText(command);
  const words = button.textContent;
  button.textContent = _("Copied");
  setTimeout(() => {
    button.textContent = words;
  }, 2000);
}

globalThis.document?.addEventListener("click", ({ target }) => {
  const button = target.closest?.("[data-curl]");
  if (button) copy(button);
});
