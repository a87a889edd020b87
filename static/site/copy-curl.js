// 'Copy as curl': the act of a form as a command for the API, with the token in a variable of the shell.

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The value of a form's field as the API takes it: ids are numbers, and none is null. */
const sent = (name, value) => (name.endsWith("_id") ? (value ? Number(value) : null) : value);

/** The body of a request: `fields` has literals, and lists with the name of a field whose value `read` returns. */
export function curlBody(fields, read) {
  const entries = Object.entries(fields);
  return Object.fromEntries(
    entries.map(([name, value]) => [name, Array.isArray(value) ? sent(name, read(value[0])) : value]),
  );
}

/** The command for a request; without a body where that is empty. */
export function curlCommand(method, address, body) {
  const parts = ["curl", "-X", method, quote(address), "-H", '"Authorization: Bearer $FALCONWEB_TOKEN"'];
  if (Object.keys(body).length > 0)
    parts.push("-H", "'Content-Type: application/json'", "-d", quote(JSON.stringify(body)));
  return parts.join(" ");
}

async function copy(button) {
  const form = button.closest("form");
  const given = new FormData(form ?? undefined);
  const [method, path] = button.dataset.curl.split(" ");
  const body = curlBody(JSON.parse(button.dataset.body), (name) => given.get(name));
  const command = curlCommand(method, new URL(path, location.href).href, body);
  // Browsers have no clipboard for sites without TLS.
  if (!navigator.clipboard) {
    prompt("Copy the command:", command);
    return;
  }
  await navigator.clipboard.writeText(command);
  const words = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => {
    button.textContent = words;
  }, 2000);
}

globalThis.document?.addEventListener("click", ({ target }) => {
  const button = target.closest?.("[data-curl]");
  if (button) copy(button);
});
