// Selected photos: export them as a zip file or as a list. On the page of duplicates, the photos to delete are marked
// instead; the list of them is for the user.

import { $, $$, count, createElement, showNotice } from "./dom.js";

const bar = $("#selection-bar");
const MAX_ZIP = 1000; // photos, as on the server
const STORAGE = "logt-selection";
const selections = {
  export: new Set(JSON.parse(sessionStorage.getItem(STORAGE) ?? "[]")),
  delete: marksOfPage(),
};
let last = null; // the card whose checkbox was clicked last, for ranges
let virtualGrid = null; // the list of all photos, if it is shown

// Return all photos but the best of each group; those of a similar series are not marked.
function marksOfPage() {
  return new Set($$(".group[data-marked] .card:not(:first-child)").map((card) => card.dataset.id));
}

export function marked() {
  return selections.delete;
}

// Add photos to the selection, also if they are not on the page.
export function selectIds(ids) {
  for (const id of ids) selections.export.add(id);
  syncSelection(document);
}

// Mark the photos of the groups that are on the page now.
export function resetMarks() {
  selections.delete = marksOfPage();
  syncSelection(document);
}

function kind() {
  return $("[data-selection]")?.dataset.selection ?? "export";
}

// Show in new cards which photos are selected.
export function syncSelection(root) {
  if (!bar) return; // an index without photos
  const chosen = selections[kind()];
  for (const box of $$("[data-select]", root)) {
    const card = box.closest(".card");
    box.checked = chosen.has(card.dataset.id);
    card.classList.toggle("selected", box.checked);
  }
  bar.hidden = !chosen.size;
  document.body.classList.toggle("selecting", chosen.size > 0);
  $("#selection-count").textContent = `${count(chosen.size, "photo")} ${kind() === "delete" ? "marked" : "selected"}`;
  $("#zip-form").hidden = kind() === "delete";
  try {
    sessionStorage.setItem(STORAGE, JSON.stringify([...selections.export]));
  } catch { // too many for the browser: they are selected on this page only
  }
}

async function toggle(box, range) {
  const { checked } = box;
  const chosen = selections[kind()];
  const ids = range ? await idsInRange(last, box) : [box.closest(".card").dataset.id];
  for (const id of ids) {
    if (checked) chosen.add(id);
    else chosen.delete(id);
  }
  last = box.closest(".card");
  syncSelection(document);
}

// Return the ids from the card that was clicked last to that of a box; of this one alone if there is no other.
async function idsInRange(from, box) {
  const to = box.closest(".card");
  if (virtualGrid && from) {
    const numbers = [from, to].map((card) => Number(card.dataset.number)).sort((a, b) => a - b);
    return virtualGrid.idsBetween(...numbers).catch(() => [to.dataset.id]);
  }
  const cards = $$("#main .card");
  const [first, end] = [cards.indexOf(from), cards.indexOf(to)].sort((a, b) => a - b);
  return (first < 0 ? [to] : cards.slice(first, end + 1)).map((card) => card.dataset.id);
}

// Return one id per line. An id that contains a line break would read as two, so it is left out.
function toList(ids) {
  const safe = ids.filter((id) => !/[\n\r]/.test(id));
  if (safe.length < ids.length) showNotice(`${ids.length - safe.length} names with line breaks were left out`);
  return safe.map((id) => `${id}\n`).join("");
}

function save(text) {
  const name = kind() === "delete" ? "delete.txt" : "photos.txt";
  const link = createElement("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: "text/plain" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// grid: the list of all photos, or null.
export function initExport(grid) {
  if (!bar) return;
  virtualGrid = grid;
  document.addEventListener("click", (event) => {
    const box = event.target.closest("[data-select]");
    if (box) return void toggle(box, event.shiftKey);
    const action = event.target.closest("[data-export]")?.dataset.export;
    if (!action) return;
    const ids = [...selections[kind()]];
    if (action === "save") save(toList(ids));
    if (action === "clear") { selections[kind()].clear(); syncSelection(document); }
  });
  $("#zip-form").addEventListener("submit", (event) => {
    if (selections.export.size > MAX_ZIP) {
      event.preventDefault();
      flash(event.submitter, `At most ${MAX_ZIP.toLocaleString("en")} photos`);
      return;
    }
    event.target.elements.ids.value = JSON.stringify([...selections.export]);
  });
}

function flash(button, text) {
  const before = button.textContent;
  button.textContent = text;
  setTimeout(() => { button.textContent = before; }, 1500);
}
