// The search of the site: a dialog with a combobox, whose listbox the server renders; see the combobox pattern of
// ARIA. The focus stays in the field, and the chosen option is named by aria-activedescendant.
import { loadFragment } from "./fragment.js";
import { _, _n } from "./language.js";

const DELAY = 120; // ms after the last key
const STEPS = { ArrowDown: 1, ArrowUp: -1 };
const dialog = document.getElementById("palette");
const field = document.getElementById("palette-words");
const list = document.getElementById("palette-results");
const status = dialog?.querySelector("[role=status]");
let timer = 0;
let isPending = false; // the list is not yet that of the words

const options = () => [...list.querySelectorAll("[role=option]")];
const chosen = () => list.querySelector("[aria-selected=true]");

/** Choose an option of the list, the first after the last; none where there is none. */
function choose(index) {
  const all = options();
  chosen()?.setAttribute("aria-selected", "false");
  const next = all.at(index % all.length);
  field.setAttribute("aria-expanded", String(all.length > 0));
  field.setAttribute("aria-activedescendant", next?.id ?? "");
  next?.setAttribute("aria-selected", "true");
  next?.scrollIntoView({ block: "nearest" });
}

async function load() {
  clearTimeout(timer);
  const words = field.value.trim();
  const address = `${dialog.dataset.address}?${new URLSearchParams({ q: words })}`;
  await loadFragment(list, address, _("The site does not answer. Try again."));
  if (words !== field.value.trim()) return; // the next load shows its own
  isPending = false;
  const failure = list.querySelector(".notice")?.textContent;
  if (failure) list.replaceChildren();
  const count = options().length;
  list.scrollTop = 0;
  choose(0);
  const found = count ? _n("{count} result", "{count} results", count) : _("Nothing found for “{words}”.", { words });
  status.textContent = failure ?? (words && found);
  document.getElementById("palette-scope").hidden = Boolean(words) && count > 0;
}

/** Open the search, with the words of the last time selected. */
export function openPalette() {
  if (dialog.open) return;
  dialog.showModal();
  field.select();
  load();
}

if (dialog) {
  document.getElementById("palette-open").addEventListener("click", openPalette);
  field.addEventListener("input", () => {
    isPending = true;
    clearTimeout(timer);
    timer = setTimeout(load, DELAY);
  });
  dialog.addEventListener("keydown", async (event) => {
    event.stopPropagation(); // keys of the page below
    // It is open already; without this the browser's own function of the keys would follow.
    const isOpening = (event.ctrlKey || event.metaKey) && event.key === "k";
    if (!isOpening && (!(event.key in STEPS || event.key === "Enter") || event.isComposing)) return;
    event.preventDefault();
    if (event.key in STEPS) choose(options().indexOf(chosen()) + STEPS[event.key]);
    else if (event.key === "Enter") {
      if (isPending) await load();
      chosen()?.click();
    }
  });
  // A click on the backdrop.
  dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());
}
