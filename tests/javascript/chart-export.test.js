import assert from "node:assert/strict";
import test from "node:test";

import { columnNames, tableRows } from "../../static/site/chart-export.js";
import { Columns } from "../../static/site/columns.js";
import { csvCell, csvText } from "../../static/site/csv.js";

const chart = (series, more = {}) => ({
  columns: Columns.from([0, 1], 0, series),
  lines: series.map((_, i) => ({ name: `line ${i}` })),
  options: { unit: "GB/s" },
  scale: 1,
  ...more,
});

test("rows have the exact time and scaled values; what is missing is empty", () => {
  const rows = tableRows(chart([{ mean: [1e9, null] }], { scale: 1e-9 }));
  assert.deepEqual(rows, [
    ["1970-01-01T00:00:00.000Z", "1"],
    ["1970-01-01T00:00:01.000Z", ""],
  ]);
});

test("values have seven digits, totals all of theirs", () => {
  const rows = tableRows(chart([{ mean: [1 / 3, 123456789] }]));
  assert.deepEqual(
    rows.map((cells) => cells[1]),
    ["0.3333333", "123456789"],
  );
});

test("a line with a band has three columns", () => {
  const found = chart([{ mean: [2, 3], low: [1, 2], high: [3, 4] }]);
  assert.deepEqual(columnNames(found), ["line 0 (GB/s), low", "line 0 (GB/s), mean", "line 0 (GB/s), high"]);
  assert.deepEqual(tableRows(found)[0].slice(1), ["1", "2", "3"]);
});

test("text that begins like a formula is none in a spreadsheet, and numbers stay numbers", () => {
  assert.equal(csvCell("=1+1"), `"'=1+1"`);
  assert.equal(csvCell("@name"), `"'@name"`);
  assert.equal(csvCell("-5"), `"-5"`);
  assert.equal(csvCell('a "b", c'), `"a ""b"", c"`);
});

test("rows end as RFC 4180 has it", () => {
  assert.equal(
    csvText([
      ["a", "b"],
      ["1", "2"],
    ]),
    "a,b\r\n1,2\r\n",
  );
});
