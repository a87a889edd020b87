import assert from "node:assert/strict";
import test from "node:test";

import { boxByKey, isTyping, pointByKey, tabByKey } from "../../static/site/keyboard.js";

const press = (more = {}, field = null) => ({ target: { closest: () => field }, ...more });

test("keys go to fields and to the browser's own shortcuts first", () => {
  assert.equal(isTyping(press()), false);
  assert.equal(isTyping(press({}, {})), true);
  for (const key of ["ctrlKey", "metaKey", "altKey"]) assert.equal(isTyping(press({ [key]: true })), true);
  assert.equal(isTyping({ target: {} }), false); // the document itself
});

test("arrow keys lead from point to point, with Shift ten, and no further than the ends", () => {
  assert.equal(pointByKey("ArrowLeft", false, 5, 100), 4);
  assert.equal(pointByKey("ArrowRight", true, 5, 100), 15);
  assert.equal(pointByKey("ArrowLeft", true, 5, 100), 0);
  assert.equal(pointByKey("ArrowRight", false, 99, 100), 99);
  assert.equal(pointByKey("Home", false, 5, 100), 0);
  assert.equal(pointByKey("End", false, 5, 100), 99);
  assert.equal(pointByKey("a", false, 5, 100), undefined);
});

test("tabs go round", () => {
  assert.equal(tabByKey("ArrowRight", 2, 3), 0);
  assert.equal(tabByKey("ArrowLeft", 0, 3), 2);
  assert.equal(tabByKey("ArrowRight", -1, 3), undefined);
  assert.equal(tabByKey("Enter", 0, 3), undefined);
});

const box = (left, top) => ({ left, top, width: 10, height: 10 });

test("an arrow key leads to the nearest box ahead, rather straight on than aside", () => {
  const boxes = [box(100, 0), box(50, 40), box(0, 60), box(0, -60), box(-30, 0)];
  const keys = ["ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft"];
  assert.deepEqual(
    keys.map((key) => boxByKey(key, box(0, 0), boxes)),
    [0, 2, 3, 4],
  );
});

test("where nothing lies ahead, the focus stays", () => {
  assert.equal(boxByKey("ArrowRight", box(0, 0), [box(0, 0), box(2, 0), box(-50, 0)]), -1);
});
