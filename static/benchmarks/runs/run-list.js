// The list of runs: those that are selected are counted, and stay selected when the list is refreshed.
const selected = new Set();

function show() {
  const form = document.querySelector("[data-choosing]");
  if (!form) return;
  for (const box of form.querySelectorAll('input[name="run"]')) box.checked = selected.has(box.value);
  const count = [...form.querySelectorAll('input[name="run"]:checked')].length;
  form.querySelector("[data-chosen]").textContent = count
    ? `${count} chosen`
    : "Choose runs to compare, or to cancel those that have not ended.";
  for (const button of form.querySelectorAll("[data-compare], [data-cancel]")) button.disabled = count === 0;
}

document.addEventListener("change", ({ target }) => {
  if (!target.matches?.('[data-choosing] input[name="run"]')) return;
  if (target.checked) selected.add(target.value);
  else selected.delete(target.value);
  show();
});
// The address of a comparison has its runs, and not the token of the form.
document.addEventListener("submit", ({ target, submitter }) => {
  if (!target.matches?.("[data-choosing]") || !submitter?.matches("[data-compare]")) return;
  for (const field of target.querySelectorAll('input[type="hidden"]')) field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll('[data-choosing] input[type="hidden"]')) field.disabled = false;
  for (const box of document.querySelectorAll('[data-choosing] input[name="run"]:checked')) selected.add(box.value);
  show();
});
document.addEventListener("falconweb:refreshed", show);
show();
