// Tells the server how much room pages have on this screen, by a cookie: topologies are laid out for that. See Screen
// in fabric/topology/layout.py.
import { refresh } from "../../site/refresh.js";

let sent = "";

function send(width) {
  const screen = width < 530 ? "narrow" : width < 930 ? "medium" : "wide";
  if (screen === sent) return;
  sent = screen;
  const secure = location.protocol === "https:" ? "; secure" : "";
  // biome-ignore lint/suspicious/noDocumentCookie: browsers have a cookie store with HTTPS alone
  document.cookie = `screen=${screen}; path=/; max-age=31536000; samesite=lax${secure}`;
  if (document.querySelector(`svg[data-screen]:not([data-screen="${screen}"])`)) refresh();
}

new ResizeObserver(([{ contentRect }]) => send(contentRect.width)).observe(document.getElementById("content"));
