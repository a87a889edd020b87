// The list of runs: the address of a comparison has the selected runs, and not the token of the form.
import "../../site/row-selection.js";

document.addEventListener("submit", ({ target, submitter }) => {
  if (!submitter?.matches("[data-compare]")) return;
  for (const field of target.querySelectorAll('input[type="hidden"]')) field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll('[data-choose] input[type="hidden"]')) field.disabled = false;
});
