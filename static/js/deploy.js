// A request is sent without leaving the page, so that its text stays in the field; files are shown as tabs.
const form = document.getElementById("request-form");
const result = document.getElementById("deployment");
const text = document.getElementById("request");

function asTabs(box) {
  const files = [...box.querySelectorAll("[data-tab]")];
  const list = document.createElement("div");
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Files");
  const tabs = files.map((file) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.textContent = file.dataset.tab;
    tab.id = `tab-${file.id}`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", file.id);
    file.setAttribute("role", "tabpanel");
    file.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => choose(file));
    list.append(tab);
    return tab;
  });
  function choose(chosen) {
    files.forEach((file, place) => {
      file.hidden = file !== chosen;
      tabs[place].setAttribute("aria-selected", String(file === chosen));
      tabs[place].tabIndex = file === chosen ? 0 : -1;
    });
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = tabs.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = (at + step + tabs.length) % tabs.length;
    choose(files[next]);
    tabs[next].focus();
  });
  box.prepend(list);
  box.classList.add("tabbed");
  choose(files[0]);
}

function dress(root) {
  root.querySelectorAll("[data-tabs]").forEach(asTabs);
  root.querySelectorAll("[data-copy]").forEach((button) => {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => {
        button.textContent = "Copy";
      }, 2000);
    });
  });
}

document.querySelectorAll("[data-use-example]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => {
    text.value = button.parentElement.previousElementSibling.textContent;
    text.focus();
  });
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector(".actions button");
  button.disabled = true;
  try {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form), credentials: "same-origin" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const made = page.getElementById("deployment");
    if (!made) {
      form.submit();
      return;
    }
    result.replaceChildren(...made.childNodes);
    dress(result);
    result.scrollIntoView({ block: "start" });
  } catch {
    form.submit();
  } finally {
    button.disabled = false;
  }
});

dress(document);
