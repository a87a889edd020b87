// Tells the server the zone of the browser's clock: a page that shows another is in it from the next load on.
const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
if (timeZone && !document.cookie.split("; ").includes(`zone=${timeZone}`)) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store needs TLS, which not every site has
  document.cookie = `zone=${timeZone}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
}
