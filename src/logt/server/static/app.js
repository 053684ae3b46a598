// The page works with links and forms alone. This script adds navigation without reloading, drop and paste of photos,
// selection of a region, the large view, the list of all photos and keyboard navigation.
// The server renders and escapes file names; scripts handle them as text only, never as HTML.

import { initExport, syncSelection } from "./selection.js";
import { $, $$ } from "./dom.js";
import { leaveLightbox, openLightbox } from "./lightbox.js";
import { announce, load, main, navigate, onContent, restore } from "./navigation.js";
import { RegionSelector, formatRegion } from "./region.js";
import { watchIndexing } from "./indexing.js";
import { VirtualGrid } from "./virtual_grid.js";
import "./filters.js";
import "./photo_input.js";

let virtualGrid = null;
let poll = 0;

// Attach handlers to new content: missing previews, the region, the list of all photos, a search that is running.
onContent(() => {
  virtualGrid?.stop();
  virtualGrid = $("#virtual") ? new VirtualGrid($("#virtual"), initCards) : null;
  clearTimeout(poll);
  if ($("[data-poll]")) poll = setTimeout(() => load(location.href, { keep: true }), 700);
  initCards(main);
  initRegion();
  const filters = $(".filter-box");
  if (filters && matchMedia("(max-width: 760px)").matches) filters.open = Boolean($(".filter-actions a", filters));
});

function initCards(root) {
  for (const image of $$(".tile img", root)) {
    const markMissing = () => image.closest(".tile")?.classList.add("missing");
    if (image.complete && image.currentSrc && !image.naturalWidth) markMissing();
    else image.addEventListener("error", markMissing, { once: true });
  }
  syncSelection(root);
}

function initRegion() {
  const container = $("#query-photo");
  if (!container) return;
  const image = $("#query");
  const enable = () => {
    if (!container.isConnected) return; // other content is shown by now
    $("#region-tools").hidden = false;
    new RegionSelector(container, (box) => {
      const url = new URL(location.href);
      if (box) url.searchParams.set("box", formatRegion(box));
      else url.searchParams.delete("box");
      url.searchParams.delete("k");
      navigate(url, { focus: false });
    });
  };
  const hide = () => {
    if (!container.isConnected) return;
    container.hidden = true;
    $("#no-preview").hidden = false;
    $("#region-help").hidden = true;
  };
  image.addEventListener("error", hide, { once: true });
  if (image.complete && image.naturalWidth) enable();
  else image.addEventListener("load", enable, { once: true });
}

// ------------------------------------------------------------------------------------------------ links, keys

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest("a[data-go]");
  if (link) {
    event.preventDefault();
    if (link.dataset.go === "more") return void showMore(link.href);
    return void navigate(link.href, { replace: leaveLightbox(), focus: !link.matches("[role=switch]") });
  }
  const tile = event.target.closest("a.tile");
  if (!tile) return;
  event.preventDefault();
  if ($("#lightbox") && !tile.matches(".text-tile")) openLightbox(tile.closest(".card"));
  else navigate(tile.href);
});

// Show more results, and go on with the first new one.
async function showMore(url) {
  const shown = $$(".card", main).length;
  await navigate(url, { replace: true, focus: false, keep: true });
  $$(".card .tile", main)[shown]?.focus({ preventScroll: true });
}

// Arrow keys move between photos, Space selects, S finds similar ones; Enter follows the link.
main.addEventListener("keydown", (event) => {
  const tile = document.activeElement?.closest?.(".tile");
  if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
  const card = tile.closest(".card");
  const checkbox = $("[data-select]", card);
  if (event.key === " " && checkbox) {
    event.preventDefault();
    checkbox.click();
  } else if (event.key.toLowerCase() === "s" && checkbox) {
    navigate(tile.href);
  } else {
    const next = neighbor(card, event.key);
    if (next) { event.preventDefault(); $(".tile", next).focus(); }
  }
});

// Return the card next to one, in the direction of an arrow key, by their positions.
function neighbor(card, key) {
  const cards = $$(".card", main);
  const position = cards.indexOf(card);
  if (key === "ArrowRight") return cards[position + 1];
  if (key === "ArrowLeft") return cards[position - 1];
  if (key !== "ArrowDown" && key !== "ArrowUp") return null;
  const from = card.getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  let best = null, bestDistance = Infinity;
  for (const other of cards) {
    const to = other.getBoundingClientRect();
    const down = sign * (to.top - from.top);
    if (down < from.height / 2) continue;
    const distance = 4 * down + Math.abs(to.left - from.left);
    if (distance < bestDistance) [best, bestDistance] = [other, distance];
  }
  return best;
}

initExport(announce, () => virtualGrid);
watchIndexing();
restore();
