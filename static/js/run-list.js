// The list of runs: what was chosen stays chosen while the list is brought up to date, and is counted.
const chosen = new Set();

function show() {
  const form = document.querySelector("[data-choosing]");
  if (!form) return;
  for (const box of form.querySelectorAll('input[name="run"]')) box.checked = chosen.has(box.value);
  const count = [...form.querySelectorAll('input[name="run"]:checked')].length;
  form.querySelector("[data-chosen]").textContent = count
    ? `${count} chosen`
    : "Choose runs to compare, or to cancel those that have not ended.";
  for (const button of form.querySelectorAll("[data-compare], [data-cancel]")) button.disabled = count === 0;
}

document.addEventListener("change", ({ target }) => {
  if (!target.matches?.('[data-choosing] input[name="run"]')) return;
  if (target.checked) chosen.add(target.value);
  else chosen.delete(target.value);
  show();
});
// What a comparison reads stands in its address: the token of the form is none of it.
document.addEventListener("submit", ({ target, submitter }) => {
  if (!target.matches?.("[data-choosing]") || !submitter?.matches("[data-compare]")) return;
  for (const field of target.querySelectorAll('input[type="hidden"]')) field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll('[data-choosing] input[type="hidden"]')) field.disabled = false;
  for (const box of document.querySelectorAll('[data-choosing] input[name="run"]:checked')) chosen.add(box.value);
  show();
});
document.addEventListener("falconweb:refreshed", show);
show();
