import { _ } from "../../site/language.js";

// Forms that make a passkey (`data-passkey="create"`) or use one ("get"), and send what the browser answers.
const SENTENCES = {
  AbortError: _("Nothing was chosen. Try again."),
  InvalidStateError: _("This device keeps a passkey of yours already."),
  NotAllowedError: _("Nothing was chosen, or it took too long. Try again."),
  SecurityError: _("Passkeys need the site's host name, over HTTPS (or http://localhost), not a plain IP address."),
};
const isAble = Boolean(window.PublicKeyCredential?.parseRequestOptionsFromJSON);

/** What the browser is asked for: in the page, or, where a page may be open for long, fetched when it is needed. */
async function optionsOf(form) {
  return form.dataset.options ? JSON.parse(form.dataset.options) : (await fetch(form.action)).json();
}

async function askBrowser(form) {
  const options = await optionsOf(form);
  const credential =
    form.dataset.passkey === "create"
      ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
      : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
  return JSON.stringify(credential);
}

for (const note of document.querySelectorAll("[data-without-passkeys]")) note.hidden = isAble;
for (const form of document.querySelectorAll("form[data-passkey]")) {
  form.hidden = !isAble;
  const problem = form.querySelector("[role=alert]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      form.elements.credential.value = await askBrowser(form);
      form.submit(); // without this listener
    } catch (error) {
      problem.textContent =
        SENTENCES[error.name] ?? _("The browser could not do this: {reason}", { reason: error.message });
      problem.hidden = false;
    }
  });
}
