// The charts of the published experiment: each figure's are loaded when it comes near the view.
import { loadFragment } from "../../site/fragment.js";
import { showFigures } from "../figures/figure.js";

async function load(part) {
  await loadFragment(part, part.dataset.charts);
  for (const table of part.querySelectorAll("details")) table.open = false; // the next figure is near
  showFigures(part);
}

const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      load(target);
    }
  },
  { rootMargin: "400px" },
);
for (const part of document.querySelectorAll("[data-charts]")) observer.observe(part);
