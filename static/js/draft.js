// The draft of a person: what is added to it or taken out of it goes to the server without leaving the page.
import { refresh } from "./refresh.js";

/** Send a form; returns the sentence of the answer, and whether it was done. */
async function send(form, submitter) {
  const body = new FormData(form, submitter);
  try {
    const answer = await fetch(submitter?.getAttribute("formaction") ?? form.getAttribute("action"), {
      method: "POST",
      body,
      headers: { "X-Requested-With": "draft", Accept: "application/json" },
    });
    if (!answer.headers.get("Content-Type")?.startsWith("application/json")) {
      return { done: false, sentence: "That did not work. Load the page again, and sign in if it asks for it." };
    }
    return { done: answer.ok, sentence: (await answer.json()).sentence };
  } catch {
    return { done: false, sentence: "There is no connection to FalconWeb. Nothing was added. Try again." };
  }
}

/** Say what came of it: read aloud, and shown too where it did not work. */
function say(sentence, done) {
  const place = document.getElementById("draft-said") ?? document.getElementById("plan-said");
  if (!place) return;
  place.className = done ? "hidden" : "hidden notice error";
  place.textContent = done ? sentence : `▲ ${sentence}`;
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const adds = event.submitter?.id === "attach-draft";
  if (!adds && !form.matches?.("[data-draft-form]")) return;
  event.preventDefault();
  if (form.dataset.sending) return; // a double click adds nothing twice
  form.dataset.sending = "yes";
  const { done, sentence } = await send(form, event.submitter);
  delete form.dataset.sending;
  if (!adds) {
    say(sentence, done);
    refresh();
    return;
  }
  if (!done) {
    document.getElementById("attach-reason").textContent = sentence;
    return;
  }
  say(`${document.getElementById("attach-words").textContent} ${sentence}`, done);
  // Closing puts the focus back on the device; only then the page may be brought up to date.
  const dialog = form.closest("dialog");
  dialog.addEventListener("close", () => refresh(), { once: true });
  dialog.close();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "r" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, select, textarea, [contenteditable]") || document.querySelector("dialog[open]"))
    return;
  document.querySelector("[data-review]")?.click();
});
