// Settings shared by the charts that Plotly draws.
export const CONFIG = { displayModeBar: false, responsive: true, showSendToCloud: false };
export const CLEAR = "rgba(0,0,0,0)";

/** The part of a layout that follows the theme; `ground` is the background colour of tooltips. */
export const themeLayout = (ink, ground = ink.ground) => ({
  paper_bgcolor: CLEAR,
  plot_bgcolor: CLEAR,
  font: { color: ink.text, size: 12, family: ink.family },
  hoverlabel: { bgcolor: ground, font: { color: ink.text } },
});
