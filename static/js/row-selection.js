// Rows of a table that are chosen for one button: how many, and that they stay so when the page is brought up to date.
// A form with data-choose="name" has a checkbox of that name in each row, and a bar marked with data-chosen.
const chosen = new Set();
const typed = new Map(); // what is written in the bar, by the field's id
const form = () => document.querySelector("[data-choose]");
const boxes = () => [...(form()?.querySelectorAll(`input[name="${form().dataset.choose}"]`) ?? [])];

function say() {
  const bar = document.querySelector("[data-chosen]");
  if (!bar) return;
  const words = chosen.size === 0 ? "Nothing is chosen." : `${chosen.size} chosen.`;
  const said = bar.querySelector("[data-chosen-words]");
  if (said.textContent !== words) said.textContent = words;
  for (const button of bar.querySelectorAll("button")) button.disabled = chosen.size === 0;
  bar.classList.toggle("held", chosen.size > 0);
}

document.addEventListener("change", ({ target }) => {
  if (!boxes().includes(target)) return;
  if (target.checked) chosen.add(target.value);
  else chosen.delete(target.value);
  say();
});
document.addEventListener("input", ({ target }) => {
  if (target.matches("[data-chosen] input")) typed.set(target.id, target.value);
});

document.addEventListener("falconweb:refreshed", () => {
  const there = new Set();
  for (const box of boxes()) {
    box.checked = chosen.has(box.value);
    there.add(box.value);
  }
  // What is not there any more, or somebody else has dealt with, is chosen no more.
  for (const value of [...chosen]) if (!there.has(value)) chosen.delete(value);
  for (const field of document.querySelectorAll("[data-chosen] input")) field.value ||= typed.get(field.id) ?? "";
  say();
});

// A reload may bring ticks back that the browser remembered.
for (const box of boxes()) if (box.checked) chosen.add(box.value);
say();
