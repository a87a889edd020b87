// A drawer's mode changes only after a dialog has shown the effects.
import { _, _n } from "../../site/language.js";
import { whyNotCompose } from "../../telemetry/live/live.js";

const form = document.querySelector("[data-mode-form]");
const dialog = document.getElementById("mode");

form.addEventListener("submit", (event) => {
  if (event.submitter?.id === "mode-draft") return; // added to the draft
  event.preventDefault();
  const { name, about, reason: rule, breaks } = form.querySelector("[name=mode]:checked").dataset;
  document.getElementById("mode-new").textContent = name;
  document.getElementById("mode-about").textContent = about;
  const broken = Number(breaks);
  document.getElementById("mode-why").textContent = rule
    ? _("Not at once: {reason}", { reason: rule })
    : _("Not at once: your draft conflicts with it.");
  document.getElementById("mode-breaks").hidden = !rule && !broken;
  document.getElementById("mode-count").textContent = _n("{count} attachment.", "{count} attachments.", broken);
  form.elements.detach.closest("label").hidden = !broken;
  document.getElementById("mode-impact").hidden = Boolean(rule);
  const reason = rule ? "" : whyNotCompose(Number(dialog.dataset.chassis));
  document.getElementById("mode-reason").textContent = reason;
  document.getElementById("mode-yes").disabled = Boolean(rule) || reason !== "";
  dialog.showModal();
});
document.getElementById("mode-yes").addEventListener("click", () => form.submit()); // without the dialog
