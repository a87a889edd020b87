// Menus of the header. On narrow screens the whole navigation is behind one button; without scripts it is always
// there.
const button = document.getElementById("menu");
const navigation = document.getElementById("navigation");
if (button && navigation) {
  const show = (open) => {
    navigation.classList.toggle("open", open);
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => show(!navigation.classList.contains("open")));
  navigation.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.target.closest("details[open]") || !button.offsetParent) return;
    show(false);
    button.focus();
  });
}

/** Close a menu (a details element) like any other: by Escape, by a click elsewhere, and when it loses the focus.
 * */
export function closeLikeMenu(menu) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
}

for (const menu of document.querySelectorAll("details.menu, details.popover")) closeLikeMenu(menu);
