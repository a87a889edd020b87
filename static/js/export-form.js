// Shows of the form of an export what its target, format and schedule ask for; without script all of it is there.
const form = document.querySelector(".export-form");
const FILE = ["download", "directory"];
const WANTS = {
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
  cron: ({ schedule }) => schedule === "cron",
  span: ({ schedule }) => schedule !== "stream",
  from_now: ({ schedule, span }) => schedule === "stream" || span === "new",
  minutes: ({ schedule }) => schedule !== "stream",
};

function show() {
  const values = Object.fromEntries(new FormData(form));
  for (const [name, wanted] of Object.entries(WANTS)) {
    const field = form.querySelector(`[data-field="${name}"]`);
    // What was refused stays in sight.
    if (field) field.hidden = !wanted(values) && !field.classList.contains("wrong");
  }
}

form.addEventListener("change", show);
show();
