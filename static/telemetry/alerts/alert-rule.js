// Forms about a part of the lab show the one field that applies; that of a rule previews the alerts it would have
// raised.
import { loadFragment } from "../../site/fragment.js";
import { _ } from "../../site/language.js";

const scope = document.getElementById("id_scope");
const condition = document.getElementById("id_condition");
const form = document.getElementById("rule-form");
const preview = document.getElementById("preview");
const PAUSE = 600; // ms after the last key
let timer = 0;

function showFields() {
  for (const part of document.querySelectorAll("[data-scope-of]")) {
    part.hidden = part.dataset.scopeOf !== scope?.value;
    part.querySelector("select").disabled = part.hidden; // and not sent
  }
  for (const id of ["id_value", "id_clear_value"]) {
    const field = document.getElementById(id)?.closest(".field");
    if (!field) continue;
    const isUnused =
      condition.value === "missing" || (id === "id_clear_value" && !["above", "below"].includes(condition.value));
    field.hidden = isUnused;
  }
}

function loadPreview() {
  const data = new FormData(form);
  data.delete("csrfmiddlewaretoken");
  const failure = _("The site does not answer. Try it again in a moment.");
  loadFragment(preview, `${form.dataset.preview}?${new URLSearchParams(data)}`, failure);
}

scope?.addEventListener("change", showFields);
condition?.addEventListener("change", showFields);
showFields();

const pictures = document.getElementById("metric-pictures");
if (pictures) {
  const metric = form.elements.metric;
  const markChosen = () => {
    for (const one of pictures.querySelectorAll("[data-metric]"))
      one.setAttribute("aria-pressed", String(one.dataset.metric === metric.value));
  };
  pictures.addEventListener("click", ({ target }) => {
    const chosen = target.closest("[data-metric]");
    if (!chosen) return;
    metric.value = chosen.dataset.metric;
    metric.dispatchEvent(new Event("input", { bubbles: true })); // previews it
  });
  metric.addEventListener("input", markChosen);
  loadFragment(pictures, pictures.dataset.address).then(markChosen);
}

if (form && preview) {
  const schedule = () => {
    clearTimeout(timer);
    timer = setTimeout(loadPreview, PAUSE);
  };
  form.addEventListener(
    "input",
    ({ target }) => !["id_name", "id_note", "id_severity"].includes(target.id) && schedule(),
  );
  form.querySelector("[data-try]").addEventListener("click", (event) => {
    event.preventDefault();
    loadPreview();
  });
  if (form.elements.metric.value) loadPreview();
}
