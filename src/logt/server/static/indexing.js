// Progress of `logt images index` while it runs, and the number of photos when it changes.

import { $ } from "./dom.js";
import { filtersInUse } from "./filters.js";

const IDLE_MS = 5000, RUNNING_MS = 1000;
const notice = $("#indexing");

export function watchIndexing() {
  if (notice) look(Number(document.body.dataset.photos));
}

// shown: the number of photos when the page was loaded.
async function look(shown) {
  let running = false;
  try {
    if (document.hidden) return;
    const response = await fetch("/api/v1/info");
    if (!response.ok) return;
    const { indexing, vectors } = await response.json();
    running = indexing !== null;
    show(indexing);
    $(".count").textContent = `${vectors.toLocaleString("en")} photo${vectors === 1 ? "" : "s"}`;
    if (vectors !== shown && $(".browse-page") && isIdle()) location.reload();
  } catch { // the server is not there; the next action of the user reports it
  } finally {
    setTimeout(look, running ? RUNNING_MS : IDLE_MS, shown);
  }
}

// Return whether the user would not mind that the page is loaded again.
function isIdle() {
  return window.scrollY < 100 && !$("dialog[open]") && $("#notice").hidden && !filtersInUse();
}

function show(indexing) {
  notice.hidden = indexing === null;
  if (indexing === null) return;
  const { what, done, total } = indexing;
  $("p", notice).textContent = `${what[0].toUpperCase()}${what.slice(1)}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")} photos`;
  $("progress", notice).max = total || 1;
  $("progress", notice).value = done;
}
