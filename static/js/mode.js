// A drawer's mode is changed only after a dialog has said what that does.
import { whyNotCompose } from "./show.js";

const form = document.querySelector("[data-mode-form]");
const dialog = document.getElementById("mode");

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const { name, about } = form.querySelector("[name=mode]:checked").dataset;
  document.getElementById("mode-new").textContent = name;
  document.getElementById("mode-about").textContent = about;
  const reason = whyNotCompose(Number(dialog.dataset.chassis));
  document.getElementById("mode-reason").textContent = reason;
  document.getElementById("mode-yes").disabled = reason !== "";
  dialog.showModal();
});
document.getElementById("mode-yes").addEventListener("click", () => form.submit()); // asks nothing again
