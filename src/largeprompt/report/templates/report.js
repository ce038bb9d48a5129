const unfold = () => { const at = document.getElementById(location.hash.slice(1)); if (at instanceof HTMLDetailsElement) at.open = true; };
addEventListener("hashchange", unfold);
const number = text => { const found = parseFloat(text.replaceAll(",", "")); return isNaN(found) ? Infinity : found; };
const pair = text => { const [layer, head] = text.split("."); return 1e6 * layer + 1 * head; };
for (const table of document.querySelectorAll(".sortable")) table.tHead.addEventListener("click", e => {
  if (e.target.tagName !== "BUTTON") return;
  const head = e.target.parentElement, column = head.cellIndex, body = table.tBodies[0];
  const sign = head.ariaSort === "ascending" ? -1 : 1;
  for (const each of table.tHead.rows[0].cells) each.ariaSort = null;
  head.ariaSort = sign > 0 ? "ascending" : "descending";
  const of = row => row.cells[column].textContent, size = e.target.textContent === "head" ? pair : number;
  body.append(...[...body.rows].sort((a, b) => sign * (size(of(a)) - size(of(b)) || of(a).localeCompare(of(b), "en", { numeric: true }))));
});
addEventListener("load", unfold);
addEventListener("beforeprint", () => document.querySelectorAll("details.claim").forEach(each => each.open = true));
addEventListener("keydown", e => { if (e.key === "Escape" && location.hash.endsWith("-large")) location.hash = location.hash.slice(0, -6); });
