// Opens a heat map at its newest end, and describes the cell under the pointer.
const picture = document.querySelector("svg.heat");
const words = document.getElementById("heat-words");
const usual = words?.textContent;

if (picture) {
  const place = picture.closest(".wide");
  const ends = [...picture.querySelectorAll("rect")].map((cell) => cell.getBoundingClientRect().right);
  // A little more, so that the hour below it can be read.
  if (ends.length > 0) place.scrollLeft += Math.max(...ends) + 24 - place.getBoundingClientRect().right;
}

picture?.addEventListener("pointerover", ({ target }) => {
  words.textContent = target.dataset.words ?? usual;
});
picture?.addEventListener("pointerleave", () => {
  words.textContent = usual;
});
