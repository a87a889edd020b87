// Buttons that copy a text of the page: `data-copy` is the id of its element.
import { _ } from "./language.js";

const COPIED_SECONDS = 2;

async function copy(button, source) {
  const words = button.firstElementChild;
  const before = words.textContent;
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    words.textContent = _("Copied");
  } catch {
    // Over plain HTTP, and without leave, there is no clipboard: the text is selected instead.
    if (source.select) source.select();
    else getSelection().selectAllChildren(source);
    words.textContent = _("Press Ctrl+C");
  }
  setTimeout(() => {
    words.textContent = before;
  }, 1000 * COPIED_SECONDS);
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-copy]");
  const source = button && document.getElementById(button.dataset.copy);
  if (source) copy(button, source);
});
