// Shows the fields of an export that its target, format and schedule need; without scripts all are shown.
const form = document.querySelector(".export-form");
const FILE = ["download", "directory"];
const SHOWN_IF = {
  address: ({ destination }) => !FILE.includes(destination),
  ca: ({ destination }) => !FILE.includes(destination),
  batch: ({ destination }) => !FILE.includes(destination),
  secret: ({ destination }) => destination === "webhook",
  unsigned: ({ destination }) => destination === "webhook",
  folder: ({ destination }) => destination === "directory",
  gzip: ({ destination }) => destination !== "syslog",
  keep_files: ({ destination }) => FILE.includes(destination),
  keep_days: ({ destination }) => FILE.includes(destination),
  facility: ({ destination, format }) => destination === "syslog" || format === "syslog",
  cef_version: ({ format }) => format === "cef",
  on_days: ({ schedule }) => schedule === "cron",
  at_hours: ({ schedule }) => schedule === "cron",
  at_minute: ({ schedule }) => schedule === "cron",
  cron: ({ schedule }) => schedule === "cron",
  span: ({ schedule }) => schedule !== "stream",
  from_now: ({ schedule, span }) => schedule === "stream" || span === "new",
  minutes: ({ schedule }) => schedule !== "stream",
};

function show() {
  const values = Object.fromEntries(new FormData(form));
  for (const [name, isShown] of Object.entries(SHOWN_IF)) {
    const field = form.querySelector(`[data-field="${name}"]`);
    // A field with an error stays visible.
    if (field) field.hidden = !isShown(values) && !field.classList.contains("wrong");
  }
}

form.addEventListener("change", show);
show();
