// The form of a run: another workload brings its own sizes, and only what fits the chosen place is shown.
const what = document.querySelector("[data-what]");
const form = document.querySelector("[data-run-form]");

function show() {
  const values = new FormData(form);
  const [host, where] = [values.get("host"), values.get("where")];
  for (const part of form.querySelectorAll("[data-on]")) {
    part.hidden = part.dataset.on !== where || (part.dataset.host !== undefined && part.dataset.host !== host);
  }
  const part = form.querySelector(`[data-host="${host}"]`);
  const own = Number(part?.querySelector("[data-count]")?.value ?? 0) || 0;
  const of = (kind) => [...(part?.querySelectorAll(`select[data-kind="${kind}"]`) ?? [])].filter((one) => one.value).length;
  const gpus = own + of("gpu");
  const drives = of("nvme");
  const place = form.querySelector("[data-counted]");
  place.textContent = `${gpus} GPU${gpus === 1 ? "" : "s"}${drives ? ", data from a drive of the chassis" : ""}`;
}

if (what) {
  what.querySelector("[data-show]").hidden = true;
  what.addEventListener("change", () => {
    // Where it runs stays as it was chosen.
    for (const name of ["host", "where", "executor"]) {
      const value = form && new FormData(form).get(name);
      if (value) what.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
    }
    what.requestSubmit();
  });
}
if (form) {
  form.addEventListener("input", show);
  show();
}
