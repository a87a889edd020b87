// The draft of a person: steps are added to it and removed from it without leaving the page.
import { sendForm } from "../../site/fragment.js";
import { isTyping } from "../../site/keyboard.js";
import { _ } from "../../site/language.js";
import { refresh } from "../../site/refresh.js";

const LOST = _("There is no connection to FalconWeb. Nothing was added. Try again.");

/** Announce the outcome, and show it where it is an error. */
function announce(sentence, done) {
  const place = document.getElementById("draft-status") ?? document.getElementById("plan-status");
  if (!place) return;
  place.className = done ? "hidden" : "hidden notice error";
  place.textContent = done ? sentence : `▲ ${sentence}`;
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const adds = event.submitter?.id === "attach-draft";
  if (!adds && !form.matches?.("[data-draft-form]")) return;
  event.preventDefault();
  if (form.dataset.sending) return; // a double click adds it once
  form.dataset.sending = "yes";
  const { done, sentence } = await sendForm(form, event.submitter, "draft", LOST);
  delete form.dataset.sending;
  if (!adds) {
    announce(sentence, done);
    refresh();
    return;
  }
  if (!done) {
    form.closest("dialog").dispatchEvent(new CustomEvent("falconweb:refused", { detail: sentence }));
    return;
  }
  announce(`${document.getElementById("attach-words").textContent} ${sentence}`, done);
  // Closing returns the focus to the device; only then the page may be refreshed.
  const dialog = form.closest("dialog");
  dialog.addEventListener("close", () => refresh(), { once: true });
  dialog.close();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "r" || isTyping(event) || document.querySelector("dialog[open]")) return;
  document.querySelector("[data-review]")?.click();
});
