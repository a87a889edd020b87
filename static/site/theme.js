// Theme and sidebar: chosen before the first paint, so that no page flashes in the other theme, or moves.
const root = document.documentElement;
for (const name of ["theme", "sidebar"]) {
  const chosen = localStorage.getItem(name);
  if (chosen) root.dataset[name] = chosen;
}

addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    document.dispatchEvent(new CustomEvent("falconweb:theme"));
  });
});
