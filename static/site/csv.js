// Tables as CSV, and files that the browser saves.

/** A cell of text, in quotes; one that begins like a formula must not become a formula in a spreadsheet. */
export function csvCell(text) {
  const isFormula = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text));
  return `"${(isFormula ? `'${text}` : text).replaceAll('"', '""')}"`;
}

/** Rows of cells as CSV (RFC 4180). */
export const csvText = (rows) => rows.map((cells) => `${cells.join(",")}\r\n`).join("");

/** Have the browser save a blob as a file. */
export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Have the browser save rows as a CSV file. */
export const saveCsv = (rows, name) => saveBlob(new Blob([csvText(rows)], { type: "text/csv" }), name);
