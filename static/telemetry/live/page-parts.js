// What is looked up on the page, once until elements come or go: a page of 200 chassis has thousands of them.

const found = new Map();
const observer = new MutationObserver(() => found.clear());
observer.observe(document.body, { childList: true, subtree: true });

/** What `find` returns for the elements that the page has now; `name` is its own. */
export function lookedUp(name, find) {
  if (observer.takeRecords().length > 0) found.clear();
  if (!found.has(name)) found.set(name, find());
  return found.get(name);
}

/** The sections that show a chassis. */
export const sectionsOf = (chassis) =>
  lookedUp(`sections ${chassis}`, () => [...document.querySelectorAll(`[data-chassis="${chassis}"]`)]);

/** The chassis that the page shows. */
export const shownChassis = () =>
  lookedUp("chassis", () => [
    ...new Set([...document.querySelectorAll("[data-chassis]")].map((one) => Number(one.dataset.chassis))),
  ]);
