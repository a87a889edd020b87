// A request for a deployment is sent without leaving the page, so that its text stays in the field; files are tabs.
import { element } from "../../site/dom.js";
import { submitFragment } from "../../site/fragment.js";
import { tabByKey } from "../../site/keyboard.js";
import { _ } from "../../site/language.js";

const result = document.getElementById("deployment");
const text = document.getElementById("request");

function buildTabs(box) {
  const files = [...box.querySelectorAll("[data-tab]")];
  const list = element("div", { role: "tablist", ariaLabel: box.dataset.tabs || _("Files") });
  const tabs = files.map((file) => {
    const tab = element("button", { type: "button", id: `tab-${file.id}`, role: "tab" }, file.dataset.tab);
    tab.setAttribute("aria-controls", file.id);
    file.setAttribute("role", "tabpanel");
    file.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => select(file));
    list.append(tab);
    return tab;
  });
  function select(selected) {
    for (const [place, file] of files.entries()) {
      file.hidden = file !== selected;
      tabs[place].setAttribute("aria-selected", String(file === selected));
      tabs[place].tabIndex = file === selected ? 0 : -1;
    }
  }
  list.addEventListener("keydown", (event) => {
    const next = tabByKey(event.key, tabs.indexOf(document.activeElement), tabs.length);
    if (next === undefined) return;
    event.preventDefault();
    select(files[next]);
    tabs[next].focus();
  });
  box.prepend(list);
  box.classList.add("tabbed");
  select(files.find((file) => "open" in file.dataset) ?? files[0]);
}

const buildAllTabs = (root) => root.querySelectorAll("[data-tabs]").forEach(buildTabs);

document.querySelectorAll("[data-use-example]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => {
    text.value = button.parentElement.previousElementSibling.textContent;
    text.focus();
  });
});

document.querySelectorAll("[data-request]").forEach((form) => {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!(await submitFragment(form, event.submitter, result))) {
      form.submit();
      return;
    }
    buildAllTabs(result);
    result.scrollIntoView({ block: "start" });
  });
});

buildAllTabs(document);
