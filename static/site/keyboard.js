// The meaning of keys, independent of the page.
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

/** Whether a key goes to what has the focus: a field, or a shortcut of the browser. */
export const isTyping = ({ target, ctrlKey, metaKey, altKey }) =>
  ctrlKey || metaKey || altKey || Boolean(target.closest?.("input, select, textarea, [contenteditable]"));

/** The point of `length` that a key leads to from the point `now`, ten points with Shift; undefined for other keys.
 * */
export function pointByKey(key, isFar, now, length) {
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  if (!(key in STEPS)) return undefined;
  return Math.min(Math.max(now + STEPS[key] * (isFar ? 10 : 1), 0), length - 1);
}

/** The tab of `length` that a key leads to from the tab `now`, the first after the last; undefined for other keys. */
export function tabByKey(key, now, length) {
  return key in STEPS && now >= 0 ? (now + STEPS[key] + length) % length : undefined;
}

/** The index of the box { left, top, width, height } nearest to another in the direction of an arrow key; -1 without
 * one. What lies aside counts three times as far as what lies ahead. */
export function boxByKey(key, from, boxes) {
  const [x, y] = middle(from);
  let best = -1;
  let least = Infinity;
  for (const [index, box] of boxes.entries()) {
    const [otherX, otherY] = middle(box);
    const [ahead, aside] = {
      ArrowLeft: [x - otherX, y - otherY],
      ArrowRight: [otherX - x, y - otherY],
      ArrowUp: [y - otherY, x - otherX],
      ArrowDown: [otherY - y, x - otherX],
    }[key];
    const distance = ahead + 3 * Math.abs(aside);
    if (ahead >= 4 && distance < least) [best, least] = [index, distance];
  }
  return best;
}

const middle = ({ left, top, width, height }) => [left + width / 2, top + height / 2];
