// Progress of `logt images index` while it runs, the number of photos when it changes, and files that are not indexed yet.

import { $, count, send, showNotice } from "./dom.js";
import { filtersInUse } from "./filters.js";

const IDLE_MS = 5000, RUNNING_MS = 1000, NEWS_MS = 30_000;
const notice = $("#indexing"), news = $("#news");

export function watchIndexing() {
  if (notice) look(Number(document.body.dataset.photos));
  if (news) lookForNews();
}

// Say how many photos an update would add or remove.
async function lookForNews() {
  try {
    const response = document.hidden || !notice.hidden ? null : await fetch("/api/v1/folder");
    if (response?.ok) showNews(await response.json());
  } catch { // as below
  } finally {
    setTimeout(lookForNews, NEWS_MS);
  }
}

function showNews({ new: added, gone }) {
  const parts = [added && count(added, "new or changed photo"), gone && `${count(gone, "photo")} no longer in the folder`];
  $("p", news).textContent = parts.filter(Boolean).join(", ");
  news.hidden = !added && !gone;
}

if (news) $("button", news).addEventListener("click", async () => {
  news.hidden = true;
  const answer = await send("update");
  if (answer?.failed) showNotice(`${count(answer.failed, "photo")} could not be read; logt images index lists them`);
  else if (answer && !answer.state && isIdle()) location.reload(); // a state: it goes on
});

$("#text-model")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  form.hidden = true;
  let answer = await send("text-model", { name: new FormData(form).get("name") });
  while (["waiting", "running"].includes(answer?.state)) {
    await new Promise((done) => setTimeout(done, RUNNING_MS));
    answer = await (await fetch(`/api/v1/changes/${answer.id}`)).json();
  }
  if (answer?.error) showNotice(answer.error.message);
  else if (answer) location.reload();
  form.hidden = false;
});

// shown: the number of photos when the page was loaded.
async function look(shown) {
  let running = false;
  try {
    if (document.hidden) return;
    const response = await fetch("/api/v1/info");
    if (!response.ok) return;
    const { indexing, vectors, text } = await response.json();
    running = indexing !== null;
    show(indexing);
    $(".count").textContent = count(vectors, "photo");
    if ((vectors !== shown || (text && $("#text-model, .text-hint"))) && $(".browse-page") && isIdle()) location.reload();
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
  if ($("#text-model")) $("#text-model").hidden = true; // this may be what it asks for
  const { what, done, total } = indexing;
  $("p", notice).textContent = `${what[0].toUpperCase()}${what.slice(1)}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")}${what.startsWith("MB") ? "" : " photos"}`;
  $("progress", notice).max = total || 1;
  $("progress", notice).value = done;
}
