// The theme's colours for charts, read once: to do so at each drawing would make the browser work out all styles anew.
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
    family: body.fontFamily,
    font: `12px ${body.fontFamily}`,
  };
  return ink;
}

/** The theme has changed. */
export function forgetColours() {
  ink = null;
}
