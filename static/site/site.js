// Functions of every page of a signed-in person, and the global keyboard shortcuts.
import "../telemetry/live/live.js";
import "../telemetry/live/live-values.js";
import "./copy.js";
import "./refresh.js";
import "../fabric/operations/compose.js";
import "../fabric/compose/tasks.js";
import "../fabric/plans/draft.js";
import "../fabric/topology/screen.js";
import "./copy-curl.js";
import { isTyping } from "./keyboard.js";
import "./notices.js";
import { openPalette } from "./palette.js";

const keys = document.getElementById("keys");

document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    openPalette();
  }
  if (isTyping(event)) return;
  const search = document.getElementById("search");
  if (event.key === "/") {
    event.preventDefault();
    if (search?.checkVisibility()) search.focus();
    else if (!document.querySelector("dialog[open]")) openPalette();
  } else if (event.key === "?" && keys && !keys.open) {
    event.preventDefault();
    keys.showModal();
  }
});
// What a form fetches has no token in its address: addresses are logged, and shared.
document.addEventListener("submit", ({ target, submitter }) => {
  const token = target.elements.namedItem("csrfmiddlewaretoken");
  if (token) token.disabled = (submitter?.formMethod || target.method) === "get";
});
// A secret is shown to be copied: focus selects it.
document.addEventListener("focusin", ({ target }) => target.matches("input.secret") && target.select());
document.getElementById("keys-open")?.addEventListener("click", ({ currentTarget }) => {
  // The menu closes, and regains the focus after the dialog has closed.
  const menu = currentTarget.closest("details");
  menu.querySelector("summary").focus();
  menu.open = false;
  keys.showModal();
});
document.getElementById("keys-close")?.addEventListener("click", () => keys.close());
