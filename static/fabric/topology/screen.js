// Tells the server how wide the screen is, by a cookie: topologies are laid out for that. See Screen in
// fabric/topology/layout.py.
import { refresh } from "../../site/refresh.js";

const narrow = matchMedia("(max-width: 560px)");
const medium = matchMedia("(max-width: 960px)");

function tell() {
  const screen = narrow.matches ? "narrow" : medium.matches ? "medium" : "wide";
  const secure = location.protocol === "https:" ? "; secure" : "";
  // biome-ignore lint/suspicious/noDocumentCookie: browsers have a cookie store with HTTPS alone
  document.cookie = `screen=${screen}; path=/; max-age=31536000; samesite=lax${secure}`;
  if (document.querySelector(`svg[data-screen]:not([data-screen="${screen}"])`)) refresh();
}

for (const query of [narrow, medium]) query.addEventListener("change", tell);
tell();
