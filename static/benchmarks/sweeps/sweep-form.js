// A new sweep: its runs are counted while the form is filled in, and a manifest is checked without leaving the page.
import { element } from "../../site/dom.js";
import { loadFragment, submitFragment } from "../../site/fragment.js";
import { _ } from "../../site/language.js";

const PAUSE = 350; // ms after the last change
const form = document.querySelector("[data-count]");
const place = document.getElementById("count");
let timer = 0;

function count() {
  const data = new URLSearchParams(new FormData(form));
  data.delete("csrfmiddlewaretoken");
  const failure = _("It could not be counted: the server does not answer. It is counted again with your next change.");
  loadFragment(place, `${form.dataset.count}?${data}`, failure);
}

if (form) {
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(count, PAUSE);
  });
}

const manifest = document.querySelector("[data-manifest]");
const result = document.getElementById("manifest-result");
if (manifest) {
  manifest.addEventListener("submit", async (event) => {
    if (event.submitter?.name !== "look") return;
    event.preventDefault();
    if (await submitFragment(manifest, event.submitter, result)) {
      result.querySelector("h2, .notice")?.scrollIntoView({ block: "nearest" });
    } else {
      const sentence = _("The server did not accept it. Try again; if that fails again, reload the page.");
      result.replaceChildren(element("p", { className: "notice error" }, sentence));
    }
  });
}
