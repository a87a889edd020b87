// A new sweep: what the grid comes to is counted while the form is filled in; a manifest is explained without leaving it.
const PAUSE = 350; // ms after the last change
const form = document.querySelector("[data-count]");
const place = document.getElementById("count");
let timer = 0;
let asked = 0;

async function count() {
  asked += 1;
  const mine = asked;
  const given = new URLSearchParams(new FormData(form));
  given.delete("csrfmiddlewaretoken");
  place.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(`${form.dataset.count}?${given}`, { headers: { "X-Requested-With": "count" } });
    if (mine !== asked) return; // a later change has been asked about
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...fresh.body.childNodes);
  } catch {
    if (mine === asked) {
      place.replaceChildren(
        Object.assign(document.createElement("p"), {
          className: "notice",
          textContent:
            "It could not be counted: the server does not answer. It is counted again with your next change.",
        }),
      );
    }
  } finally {
    if (mine === asked) place.removeAttribute("aria-busy");
  }
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
