// The theme's colours for charts, read once: reading them at each drawing makes the browser compute all styles again.
let ink = null;

export function colours() {
  if (ink) return ink;
  const root = getComputedStyle(document.documentElement);
  const body = getComputedStyle(document.body);
  const scheme = root.colorScheme; // 'light dark' where the browser chooses
  const dark = scheme === "dark" || (scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  ink = {
    palette: root
      .getPropertyValue(dark ? "--chart-dark" : "--chart-light")
      .trim()
      .split(/\s*,\s*/),
    text: body.color,
    ground: body.backgroundColor,
    grid: "rgba(128, 128, 128, .3)",
    Critical: dark ? "#ff9b88" : "#a8321f", // as --bad and --warn, which are no plain colours
    Warning: dark ? "#f0bf62" : "#7a5200",
    family: body.fontFamily,
    font: `12px ${body.fontFamily}`,
  };
  return ink;
}

/** Draw again, in other colours, whenever the theme changes. */
export function onThemeChange(draw) {
  const redraw = () => {
    ink = null;
    draw();
  };
  document.addEventListener("falconweb:theme", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

/** Draw in light colours for paper, and `restore` the screen afterwards. */
export function onPrint(draw, restore) {
  const { style } = document.documentElement;
  addEventListener("beforeprint", () => {
    style.colorScheme = "light";
    ink = null;
    draw();
  });
  addEventListener("afterprint", () => {
    style.colorScheme = "";
    ink = null;
    restore();
  });
}
