// Charts on paper: drawn anew at that moment, since what a worker paints would come too late, and in light colours.
import { HEIGHT, sketch } from "./chart-drawing.js";
import { charts } from "./chart-schedule.js";
import { forgetColours } from "./theme-colours.js";

const RATIO = 2; // paper shows more than a screen
const root = document.documentElement;

addEventListener("beforeprint", () => {
  root.style.colorScheme = "light";
  forgetColours();
  for (const chart of charts) {
    if (chart.width === 0) continue;
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { className: "printed", width: chart.width * RATIO, height: HEIGHT * RATIO });
    const context = canvas.getContext("2d");
    context.setTransform(RATIO, 0, 0, RATIO, 0, 0);
    sketch(context, { ...chart.view(), columns: chart.columns });
    chart.place.append(canvas);
    chart.describe();
  }
});

addEventListener("afterprint", () => {
  root.style.colorScheme = "";
  forgetColours();
  for (const canvas of document.querySelectorAll("canvas.printed")) canvas.remove();
  for (const chart of charts) chart.draw(); // what came while it was printed was drawn in those colours
});
