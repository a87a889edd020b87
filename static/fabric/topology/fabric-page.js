// The fabric page: the address names the shown chassis, so that it stays the same; [ and ] go to the one before and
// after it.
import { isTyping } from "../../site/keyboard.js";

const shown = document.querySelector(".chassis-steps")?.dataset.shown;
const address = new URL(location.href);
if (shown && address.searchParams.get("chassis") !== shown) {
  address.searchParams.set("chassis", shown);
  history.replaceState(null, "", address);
}
// Of very many tiles some are scrolled out of sight.
const map = document.getElementById("fabric-map");
const tile = map.querySelector("[aria-current]")?.closest("li");
if (tile) map.scrollTop = tile.offsetTop - map.clientHeight / 2;

const STEPS = { "[": "prev", "]": "next" };
document.addEventListener("keydown", (event) => {
  if (!(event.key in STEPS) || isTyping(event) || document.querySelector("dialog[open]")) return;
  document.querySelector(`.chassis-steps a[rel="${STEPS[event.key]}"]`)?.click();
});
