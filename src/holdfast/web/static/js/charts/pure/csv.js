// Tables as CSV (RFC 4180), safe to open in a spreadsheet.

const FORMULA = /(^|[\t\r\n;])(?=\s*[=+\-@＝＋－＠])/g;

function cell(value) {
  if (value === null || value === undefined) return "";
  let text = typeof value === "object" ? JSON.stringify(value) : String(value);
  // A text that a spreadsheet would run as a formula. A paste divides it into cells at tabs and lines, some at semicolons.
  if (typeof value === "string" && Number.isNaN(Number(text))) text = text.replace(FORMULA, "$1'");
  return /[",;\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** `{columns: [name...], rows: [[value...]...]}` as text, one line for each row. */
export const csv = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
