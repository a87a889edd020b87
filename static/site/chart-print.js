// Charts on paper: drawn at that moment, since the worker would finish too late, and in light colours.
import { drawChart, HEIGHT } from "./chart-drawing.js";
import { charts } from "./chart-schedule.js";
import { onPrint } from "./theme-colours.js";

const RATIO = 2; // paper shows more than a screen

function addPictures() {
  for (const chart of charts) {
    if (chart.width === 0) continue;
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { className: "printed", width: chart.width * RATIO, height: HEIGHT * RATIO });
    const context = canvas.getContext("2d");
    context.setTransform(RATIO, 0, 0, RATIO, 0, 0);
    drawChart(context, { ...chart.view(), columns: chart.columns });
    chart.place.append(canvas);
    chart.describe();
  }
}

function removePictures() {
  for (const canvas of document.querySelectorAll("canvas.printed")) canvas.remove();
  for (const chart of charts) chart.draw(); // readings that arrived meanwhile were drawn in those colours
}

onPrint(addPictures, removePictures);
