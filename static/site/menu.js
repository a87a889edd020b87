// Menus of the header, and the sidebar. On narrow screens that is behind one button; without scripts it is always
// there.
const root = document.documentElement;
const button = document.getElementById("menu");
const navigation = document.getElementById("navigation");

/** Close a menu (a details element) like any other, where it is one `when` it is asked: by Escape, by a click
 * elsewhere, and when it loses the focus. */
function closeLikeMenu(menu, when = () => true) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open || !when()) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => {
    if (when() && !menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("focusout", (event) => {
    if (when() && event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
}

for (const menu of document.querySelectorAll("details.menu, details.popover")) closeLikeMenu(menu);

if (button && navigation) {
  const show = (open) => {
    navigation.classList.toggle("open", open);
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => {
    show(!navigation.classList.contains("open"));
    navigation.querySelector("a").focus(); // there is more between the button and what it opens
  });
  navigation.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !button.offsetParent) return;
    show(false);
    button.focus();
  });

  // As icons, the groups of the sidebar are menus.
  const width = document.getElementById("sidebar-width");
  const groups = [...navigation.querySelectorAll("details")];
  const hasIcons = () => root.dataset.sidebar === "icons" && !button.offsetParent;
  const arrange = () => {
    width.setAttribute("aria-pressed", String(root.dataset.sidebar === "icons"));
    for (const group of groups) group.open = !hasIcons() && group.classList.contains("here");
  };
  for (const group of groups) closeLikeMenu(group, hasIcons);
  width.addEventListener("click", () => {
    root.dataset.sidebar = root.dataset.sidebar === "icons" ? "words" : "icons";
    localStorage.setItem("sidebar", root.dataset.sidebar);
    arrange();
  });
  if (hasIcons()) arrange();
}
