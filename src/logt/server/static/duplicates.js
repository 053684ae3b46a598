// The page of duplicates: the slider applies at once; groups are compared side by side, dismissed, or moved to the trash.

import { $, $$, count, photoUrl, send, showNotice } from "./dom.js";
import { marked, resetMarks } from "./selection.js";

const form = $("#tiers"), comparison = $("#compare"), UNDO = "logt-undo";
let pair = null; // {cards, other, swapped} of the comparison: the first card beside another one

// initCards(root): called for new cards.
export function initDuplicates(initCards) {
  if (!form) return;
  const slider = $("[type=range]", form);
  let timer = null;
  slider.addEventListener("input", () => {
    $("output", form).textContent = Number(slider.value).toFixed(3);
    clearTimeout(timer);
    timer = setTimeout(() => load(slider, initCards), 150);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (event.submitter) slider.value = event.submitter.value;
    slider.dispatchEvent(new Event("input"));
  });
  $("#trash")?.addEventListener("click", confirmTrash);
  const undo = sessionStorage.getItem(UNDO);
  if (undo && $("#trash")) offerUndo(JSON.parse(undo));
}

// Show the groups at the score of the slider.
async function load(slider, initCards) {
  const { value } = slider, url = new URL(location.href);
  url.searchParams.set("threshold", value);
  history.replaceState(history.state, "", url);
  const response = await fetch(url);
  const text = await response.text();
  if (!response.ok || slider.value !== value) return; // the latest request wins
  const page = new DOMParser().parseFromString(text, "text/html"); // rendered and escaped by the server
  $("#groups").replaceWith($("#groups", page));
  for (const button of $$("button", form)) button.setAttribute("aria-pressed", Number(button.value) === Number(value));
  resetMarks();
  initCards($("#groups"));
}

async function confirmTrash() {
  const ids = [...marked()], dialog = $("#confirm");
  $("#confirm-text").textContent = `Move ${count(ids.length, "photo")} to the trash? They go to the folder .trash of the photo folder. Nothing is deleted.`;
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  const answer = dialog.returnValue === "yes" && (await send("photos/trash", { ids }));
  if (!answer) return;
  const undo = { batch: answer.batch, number: ids.length }, gone = new Set(ids);
  sessionStorage.setItem(UNDO, JSON.stringify(undo));
  for (const card of $$(".group .card")) if (gone.has(card.dataset.id)) card.remove();
  for (const group of $$(".group")) if ($$(".card", group).length < 2) group.remove();
  resetMarks();
  offerUndo(undo);
}

function offerUndo({ batch, number }) {
  showNotice(`${count(number, "photo")} moved to the trash.`, [], "Undo", async () => {
    const answer = await send("photos/restore", { batch });
    if (!answer) return;
    sessionStorage.removeItem(UNDO);
    if (!answer.failed) return void location.reload();
    showNotice(`${count(answer.restored, "photo")} moved back; ${answer.failed} stay in the trash, because there is another file in their place.`);
  });
}

function draw() {
  const { cards, other, swapped } = pair;
  const shown = swapped ? [cards[other], cards[0]] : [cards[0], cards[other]];
  for (const [place, figure] of $$("figure", comparison).entries()) {
    const card = shown[place];
    Object.assign($("img", figure), { src: photoUrl(card.dataset.id, "large"), alt: card.dataset.id });
    $("figcaption", figure).textContent = [card.dataset.id, card.dataset.about, card === cards[0] && "best"].filter(Boolean).join(" · ");
    figure.classList.toggle("selected", card.classList.contains("selected"));
  }
}

const actions = {
  swap() { pair.swapped = !pair.swapped; },
  mark() { $("[data-select]", pair.cards[pair.other]).click(); },
  next(step) {
    const others = pair.cards.length - 1;
    pair.other = ((pair.other - 1 + step + others) % others) + 1;
  },
};
const KEYS = { x: ["swap"], " ": ["mark"], arrowleft: ["next", -1], arrowright: ["next", 1] };

async function act(name, value) {
  await actions[name](value);
  draw();
}

document.addEventListener("click", async (event) => {
  const group = event.target.closest(".group");
  if (group && event.target.closest("[data-compare]")) {
    pair = { cards: $$(".card", group), other: 1, swapped: false };
    draw();
    comparison.showModal();
  } else if (group && event.target.closest("[data-dismiss]")) {
    const ids = $$(".card", group).map((card) => card.dataset.id);
    if (await send("duplicates/dismiss", { ids })) { group.remove(); resetMarks(); }
  }
});
comparison?.addEventListener("click", (event) => {
  const dataset = event.target.closest("button")?.dataset;
  if (!dataset) return;
  if ("close" in dataset) comparison.close();
  else if ("next" in dataset) act("next", Number(dataset.next));
  else act("swap" in dataset ? "swap" : "mark");
});
comparison?.addEventListener("keydown", (event) => {
  const action = KEYS[event.key.toLowerCase()];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act(...action);
});
