// Progress of `logt images index` while it runs, and the number of photos when it changes.

import { $ } from "./dom.js";
import { filtersInUse } from "./filters.js";
import { load } from "./navigation.js";

const IDLE_MS = 5000, RUNNING_MS = 1000;
const notice = $("#indexing");

export function watchIndexing() {
  if (!notice) return;
  let photos = Number(document.body.dataset.photos);
  let stale = false; // whether the list is that of an earlier state
  const look = async () => {
    let running = false;
    try {
      if (document.hidden) return;
      const response = await fetch("/api/v1/info");
      if (!response.ok) return;
      const info = await response.json();
      running = info.indexing !== null;
      show(info.indexing);
      if (info.vectors !== photos) {
        photos = info.vectors;
        $(".count").textContent = `${photos.toLocaleString("en")} photo${photos === 1 ? "" : "s"}`;
        stale = true;
      }
      if (stale && $(".browse-page") && window.scrollY < 100 && !$("dialog[open]") && !filtersInUse()) {
        stale = false;
        load(location.href, { keep: true });
      }
    } catch { // the server is not there; the next action of the user reports it
    } finally {
      setTimeout(look, running ? RUNNING_MS : IDLE_MS);
    }
  };
  look();
}

function show(indexing) {
  notice.hidden = indexing === null;
  if (indexing === null) return;
  const { what, done, total } = indexing;
  $("p", notice).textContent = `${what[0].toUpperCase()}${what.slice(1)}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")} photos`;
  $("progress", notice).max = total || 1;
  $("progress", notice).value = done;
}
