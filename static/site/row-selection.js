// Rows of a table that are selected for one button: they are counted, and stay selected when the page is refreshed.
// A form with data-choose="name" has a checkbox of that name in each row, and a bar marked with data-chosen.
import { _n } from "./language.js";

const selected = new Set(); // values of the checkboxes
const typed = new Map(); // what is typed into the bar, by the field's id
const form = () => document.querySelector("[data-choose]");
const boxes = () => [...(form()?.querySelectorAll(`input[name="${form().dataset.choose}"]`) ?? [])];

function show() {
  const bar = document.querySelector("[data-chosen]");
  if (!bar) return;
  const count = bar.querySelector("[data-chosen-words]");
  count.dataset.none ??= count.textContent;
  const words = selected.size === 0 ? count.dataset.none : _n("{count} chosen.", "{count} chosen.", selected.size);
  if (count.textContent !== words) count.textContent = words;
  for (const button of bar.querySelectorAll("button")) button.disabled = selected.size === 0;
  bar.classList.toggle("held", selected.size > 0);
}

document.addEventListener("change", ({ target }) => {
  if (!boxes().includes(target)) return;
  if (target.checked) selected.add(target.value);
  else selected.delete(target.value);
  show();
});
document.addEventListener("input", ({ target }) => {
  if (target.matches("[data-chosen] input")) typed.set(target.id, target.value);
});

document.addEventListener("falconweb:refreshed", () => {
  const present = new Set();
  for (const box of boxes()) {
    box.checked = selected.has(box.value);
    present.add(box.value);
  }
  // Removed rows, and rows without a checkbox now, are deselected.
  for (const value of [...selected]) if (!present.has(value)) selected.delete(value);
  for (const field of document.querySelectorAll("[data-chosen] input")) field.value ||= typed.get(field.id) ?? "";
  show();
});

// A browser may restore checkboxes after a reload.
addEventListener("pageshow", () => {
  for (const box of boxes()) if (box.checked) selected.add(box.value);
  show();
});
show();
