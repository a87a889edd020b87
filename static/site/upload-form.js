// A file that is too large is refused before it is sent, and typed text is not sent beside a file.
const file = document.getElementById("file");
const text = document.getElementById("text");
const refused = document.getElementById("file-refused");

function isTooLarge() {
  const tooLarge = (file.files[0]?.size ?? 0) > Number(file.dataset.largest);
  refused.hidden = !tooLarge;
  refused.textContent = tooLarge ? file.dataset.tooLarge : "";
  file.toggleAttribute("aria-invalid", tooLarge);
  return tooLarge;
}

file.addEventListener("change", isTooLarge);
file.form.addEventListener("submit", (event) => {
  if (isTooLarge()) {
    event.preventDefault();
    file.focus();
    return;
  }
  text.disabled = file.files.length > 0;
});
addEventListener("pageshow", () => {
  text.disabled = false; // after the back button
});
