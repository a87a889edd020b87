// Says what the cell under the pointer is.
const words = document.getElementById("heat-words");
const usual = words?.textContent;

document.querySelector("svg.heat")?.addEventListener("pointerover", ({ target }) => {
  words.textContent = target.dataset.words ?? usual;
});
document.querySelector("svg.heat")?.addEventListener("pointerleave", () => {
  words.textContent = usual;
});
