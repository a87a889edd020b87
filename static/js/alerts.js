// The list of alerts: how many are chosen, and that they stay so when the page is brought up to date.
const chosen = new Set();
const boxes = () => [...document.querySelectorAll("[data-alert-form] input[name=alert]")];
let note = "";

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
  if (target.id === "alert-note") note = target.value;
});

document.addEventListener("falconweb:refreshed", () => {
  const there = new Set();
  for (const box of boxes()) {
    box.checked = chosen.has(box.value);
    there.add(box.value);
  }
  // What rings no more, or was acknowledged by somebody else, is chosen no more.
  for (const value of [...chosen]) if (!there.has(value)) chosen.delete(value);
  const field = document.getElementById("alert-note");
  if (field && note && !field.value) field.value = note;
  say();
});

// A reload may bring ticks back that the browser remembered.
for (const box of boxes()) if (box.checked) chosen.add(box.value);
say();
