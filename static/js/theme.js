// Chosen before the first paint, so that no page flashes in the other theme.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
