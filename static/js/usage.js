// Hours by kind and month as stacked bars, read from the table beside it: page and chart cannot tell two things.
const place = document.querySelector("[data-usage-chart]");
const table = document.getElementById(place?.dataset.usageChart ?? "");
const CONFIG = { displayModeBar: false, responsive: true };
// Plotly takes names as markup.
const plain = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** The months, and for each kind its hours in them, summed up over the tenants that are shown. */
function hoursOf(rows) {
  const months = [...table.tHead.rows[0].cells].slice(2, -1).map((cell) => cell.textContent);
  const kinds = new Map();
  for (const row of rows) {
    const kind = row.querySelector("[data-kind]").textContent;
    const hours = kinds.get(kind) ?? months.map(() => 0);
    row.querySelectorAll("[data-hours]").forEach((cell, month) => {
      hours[month] += Number(cell.dataset.hours);
    });
    kinds.set(kind, hours);
  }
  return { months, kinds };
}

function draw() {
  const style = getComputedStyle(document.documentElement);
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const palette = style
    .getPropertyValue(dark ? "--chart-dark" : "--chart-light")
    .trim()
    .split(/\s*,\s*/);
  const body = getComputedStyle(document.body);
  const { months, kinds } = hoursOf(table.tBodies[0].rows);
  const patterns = ["", "/", ".", "x", "-"]; // so that kinds are not told apart by colour alone
  const traces = [...kinds].map(([kind, hours], nth) => ({
    type: "bar",
    name: plain(kind),
    x: months,
    y: hours,
    marker: { color: palette[nth % palette.length], pattern: { shape: patterns[nth % patterns.length] } },
    hovertemplate: "%{y:,.1f} h",
  }));
  const most = Math.max(
    1,
    ...months.map((_, month) => [...kinds.values()].reduce((sum, hours) => sum + hours[month], 0)),
  );
  const layout = {
    barmode: "stack",
    height: 280,
    margin: { l: 64, r: 12, t: 8, b: 56 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: body.color, size: 12, family: body.fontFamily },
    hovermode: "x unified",
    hoverlabel: { bgcolor: getComputedStyle(place.closest(".chart")).backgroundColor, font: { color: body.color } },
    legend: { orientation: "h", y: -0.18, traceorder: "normal" },
    showlegend: true,
    xaxis: { type: "category", fixedrange: true, automargin: true },
    yaxis: {
      title: { text: "hours" },
      gridcolor: "rgba(128,128,128,.25)",
      fixedrange: true,
      range: [0, most * 1.05],
      nticks: 6,
    },
  };
  Plotly.react(place, traces, layout, CONFIG);
}

if (place && table && typeof Plotly !== "undefined") {
  draw();
  document.addEventListener("falconweb:theme", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
