// Starts what a page of a signed-in person needs, and the keys that work everywhere.
import "./live.js";
import "./live-values.js";
import "./refresh.js";
import "./compose.js";
import "./draft.js";
import "./alert-badge.js";

const typing = (target) => target.closest?.("input, select, textarea, [contenteditable]");
const keys = document.getElementById("keys");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const search = document.getElementById("search");
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "?" && keys && !keys.open) {
    event.preventDefault();
    keys.showModal();
  }
});
// A secret is there to be copied: its field is selected as a whole.
document.addEventListener("focusin", ({ target }) => target.matches("input.secret") && target.select());
document.getElementById("keys-open")?.addEventListener("click", ({ currentTarget }) => {
  // Its menu closes, and gets the focus back once the dialog has closed.
  const menu = currentTarget.closest("details");
  menu.querySelector("summary").focus();
  menu.open = false;
  keys.showModal();
});
document.getElementById("keys-close")?.addEventListener("click", () => keys.close());
