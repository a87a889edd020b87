// A new sweep: what the grid comes to is counted while the form is filled in; a manifest is explained without leaving it.
import { loadFragment } from "./fragment.js";

const PAUSE = 350; // ms after the last change
const form = document.querySelector("[data-count]");
const place = document.getElementById("count");
let timer = 0;

function count() {
  const data = new URLSearchParams(new FormData(form));
  data.delete("csrfmiddlewaretoken");
  const failure = "It could not be counted: the server does not answer. It is counted again with your next change.";
  loadFragment(place, `${form.dataset.count}?${data}`, failure);
}

if (form) {
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(count, PAUSE);
  });
}

const manifest = document.querySelector("[data-manifest]");
const told = document.getElementById("manifest-told");
if (manifest) {
  manifest.addEventListener("submit", async (event) => {
    if (event.submitter?.name !== "look") return;
    event.preventDefault();
    const given = new FormData(manifest, event.submitter);
    event.submitter.disabled = true;
    try {
      const answer = await fetch(location.pathname, { method: "POST", body: given });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const part = fresh.getElementById("manifest-told");
      if (!part) throw new Error(String(answer.status));
      told.replaceChildren(...part.childNodes);
      told.querySelector("h2, .notice")?.scrollIntoView({ block: "nearest" });
    } catch {
      told.replaceChildren(
        Object.assign(document.createElement("p"), {
          className: "notice error",
          textContent: "The server did not take it. Try again; if it says so again, reload the page.",
        }),
      );
    } finally {
      event.submitter.disabled = false;
    }
  });
}
