// Parts of a page that the server renders at an address of their own.
import { element } from "./dom.js";
import { _ } from "./language.js";

const requests = new WeakMap(); // part -> number of its newest request

/** Replace the content of a part by the server's response. A response older than a later request is dropped; without
 * one, the part is unchanged, or shows the sentence `failure`. */
export async function loadFragment(part, address, failure = "") {
  const request = (requests.get(part) ?? 0) + 1;
  requests.set(part, request);
  part.setAttribute("aria-busy", "true");
  let html = "";
  try {
    const answer = await fetch(address);
    if (answer.ok && !answer.redirected) html = await answer.text();
  } catch {
    // No connection: as with an error.
  }
  if (request !== requests.get(part)) return;
  part.removeAttribute("aria-busy");
  if (html) part.innerHTML = html;
  else if (failure) {
    part.replaceChildren(element("p", { className: "notice" }, failure));
  }
}

/** Send a form without leaving the page, and show the response's part with the id of `part`; false without one. */
export async function submitFragment(form, submitter, part) {
  const body = new FormData(form, submitter); // before its button is disabled, and thereby left out
  submitter.disabled = true;
  try {
    const answer = await fetch(form.action, { method: "POST", body });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const replacement = page.getElementById(part.id);
    if (!replacement) return false;
    part.replaceChildren(...replacement.childNodes);
    return true;
  } catch {
    return false;
  } finally {
    submitter.disabled = false;
  }
}

/** Send a form by a script that names itself `by`; returns { done, sentence } with what the server tells besides. */
export async function sendForm(form, submitter, by, lost) {
  const body = new FormData(form, submitter);
  try {
    const answer = await fetch(submitter?.getAttribute("formaction") ?? form.getAttribute("action"), {
      method: "POST",
      body,
      headers: { "X-Requested-With": by, Accept: "application/json" },
    });
    if (!answer.headers.get("Content-Type")?.startsWith("application/json")) {
      return {
        done: false,
        sentence: _("That did not work. Load the page again, and sign in if it asks for it."),
      };
    }
    return { ...(await answer.json()), done: answer.ok };
  } catch {
    return { done: false, sentence: lost };
  }
}
