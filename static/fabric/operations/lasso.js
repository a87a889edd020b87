// A lasso: a mouse draws it on the empty ground of a picture, and gets what it touches. A finger scrolls there.
const SLACK = 6; // px from where it began that are still a click

const ring = document.createElement("div");
ring.className = "lasso";

/** Draw on grounds that match a selector; `caught` gets those of the things that the lasso touches, and the event. */
export function drawLasso(ground, things, caught) {
  let begin = null;
  const release = () => {
    ring.remove();
    begin = null;
  };
  document.addEventListener("pointerdown", (event) => {
    release();
    if (!event.target.closest(ground) || event.target.closest("a, button, [data-handle]")) return;
    if (event.button !== 0 || event.pointerType !== "mouse") return;
    begin = { x: event.clientX, y: event.clientY };
    event.preventDefault(); // selects no text
  });
  document.addEventListener("pointermove", (event) => {
    if (!begin) return;
    const box = around(begin, event);
    if (!ring.isConnected && Math.max(box.width, box.height) < SLACK) return;
    document.body.append(ring);
    ring.style.translate = `${box.x}px ${box.y}px`;
    ring.style.width = `${box.width}px`;
    ring.style.height = `${box.height}px`;
  });
  document.addEventListener("pointerup", (event) => {
    if (ring.isConnected) {
      const box = around(begin, event);
      // The picture may have been refreshed meanwhile.
      const inside = [...document.querySelectorAll(`${ground} ${things}`)].filter((thing) => touches(thing, box));
      caught(inside, event);
    }
    release();
  });
  document.addEventListener("pointercancel", release);
  document.addEventListener("keydown", (event) => event.key === "Escape" && release());
}

const around = (begin, { clientX, clientY }) =>
  new DOMRect(
    Math.min(begin.x, clientX),
    Math.min(begin.y, clientY),
    Math.abs(begin.x - clientX),
    Math.abs(begin.y - clientY),
  );

function touches(thing, box) {
  const own = thing.getBoundingClientRect();
  return own.left < box.right && own.right > box.left && own.top < box.bottom && own.bottom > box.top;
}
