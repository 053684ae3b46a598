// The page works by links and forms alone; this adds dropping, pasting, cropping, the large view and keys.
// Names of files never become markup here: the server renders them, and this reads and writes text only.

const main = document.getElementById("main");
const status = document.getElementById("status");
const progress = document.getElementById("progress");
const picker = document.getElementById("photo");
const veil = document.getElementById("veil");
const large = document.getElementById("large");
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// What is searched by: {id, box} or {photo, url, box}. Photos of this visit are kept, so that Back finds them.
let query = null;
const photos = new Map();
let running = null;

const text = (box) => (box ? box.map((part) => part.toFixed(4)).join(",") : "");
const parsed = (string) => (string ? string.split(",").map(Number) : null);

async function show(next, { push = true, k = null, focus = true } = {}) {
  running?.abort();
  const mine = (running = new AbortController());
  busy(true);
  if (next?.photo && query?.photo !== next.photo) waiting(next);
  try {
    const answer = await fetch(...request(next, k, mine.signal));
    const html = await answer.text();
    if (mine.signal.aborted) return;
    query = next;
    if (push && !(history.state && address(next) === location.pathname + location.search && !next?.photo)) {
      history.pushState(remembered(next), "", address(next));
    }
    replace(html, focus);
  } catch (error) {
    if (error.name !== "AbortError") fail("The service does not answer", "Is logt serve still running? Try again in a moment.");
  } finally {
    if (running === mine) busy(false);
  }
}

function request(next, k, signal) {
  if (next?.photo) {
    const form = new FormData();
    form.append("photo", next.photo, next.photo.name || "pasted picture");
    form.append("box", text(next.box));
    if (k) form.append("k", k);
    return ["/?part=1", { method: "POST", body: form, signal }];
  }
  const where = new URL(address(next), location.href);
  where.searchParams.set("part", "1");
  if (k) where.searchParams.set("k", k);
  return [where, { signal }];
}

function address(next) {
  if (next?.id === undefined) return "/";
  const given = new URLSearchParams({ id: next.id });
  if (next.box) given.set("box", text(next.box));
  return `/?${given}`;
}

function remembered(next) {
  if (!next?.photo) return next;
  const key = next.key ?? crypto.randomUUID?.() ?? String(Math.random());
  next.key = key;
  photos.set(key, next);
  return { key, box: next.box };
}

function replace(html, focus) {
  main.innerHTML = html; // rendered and escaped by the server
  if (query?.photo) $("#query")?.setAttribute("src", query.url);
  begin();
  const found = $(".found");
  const count = found?.dataset.count;
  if (found) document.title = `${found.dataset.name} · logt`;
  say(found ? `${count} results for ${found.dataset.name}` : $("h1", main)?.textContent ?? "");
  if (focus) { window.scrollTo({ top: 0 }); main.focus({ preventScroll: true }); }
}

function waiting(next) {
  const found = document.createElement("div");
  found.className = "found";
  found.innerHTML = '<section class="query"><div class="stage"><img alt=""></div></section><section class="results"><h1>Searching…</h1><ol class="grid"></ol></section>';
  $("img", found).src = next.url;
  for (let i = 0; i < 12; i++) $("ol", found).append(Object.assign(document.createElement("li"), { className: "skeleton" }));
  main.replaceChildren(found);
}

function fail(heading, message) {
  const note = document.createElement("section");
  note.className = "note failed";
  note.setAttribute("role", "alert");
  const retry = Object.assign(document.createElement("button"), { className: "button strong", textContent: "Start again" });
  retry.addEventListener("click", () => show(null));
  note.append(
    Object.assign(document.createElement("h1"), { textContent: heading }),
    Object.assign(document.createElement("p"), { textContent: message }),
    retry,
  );
  main.replaceChildren(note);
  query = null;
  say(heading);
}

function busy(on) {
  progress.hidden = !on;
  main.setAttribute("aria-busy", String(on));
  if (on) say("Searching");
}

function say(message) { status.textContent = message; }

// Photos come in by picking, dropping and pasting.

function take(photo) {
  if (!photo || !picker) return;
  const most = Number(document.body.dataset.uploadBytes);
  if (photo.size > most) {
    fail("That file is too large", `It has ${Math.ceil(photo.size / 1e6)} MB; at most ${Math.floor(most / 1e6)} MB can be sent.`);
    return;
  }
  show({ photo, url: URL.createObjectURL(photo), box: null });
}

const pictureIn = (data) => [...(data?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? data?.files?.[0];

picker?.addEventListener("change", () => { take(picker.files[0]); picker.value = ""; });
document.addEventListener("paste", (event) => {
  const photo = pictureIn(event.clipboardData);
  if (photo) { event.preventDefault(); take(photo); }
});
let depth = 0;
const carries = (event) => picker && [...(event.dataTransfer?.types ?? [])].includes("Files");
document.addEventListener("dragenter", (event) => { if (carries(event)) { depth++; veil.hidden = false; } });
document.addEventListener("dragleave", (event) => { if (carries(event) && --depth <= 0) { depth = 0; veil.hidden = true; } });
document.addEventListener("dragover", (event) => { if (carries(event)) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  depth = 0;
  if (veil) veil.hidden = true;
  if (!carries(event)) return;
  event.preventDefault();
  take(pictureIn(event.dataTransfer));
});

// Links of the page search without loading it anew.

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const target = event.target;
  if (target.closest("[data-pick]") || (target.closest("#drop") && picker)) return void picker.click();
  const enlarge = target.closest("[data-large]");
  if (enlarge) return void open(enlarge.closest(".card"));
  const more = target.closest("[data-more]");
  if (more) {
    event.preventDefault();
    return void show(query, { k: more.dataset.more, push: false, focus: false });
  }
  const link = target.closest("a[data-id], #large-search");
  if (link) {
    event.preventDefault();
    large.close();
    show({ id: link.dataset.id, box: null });
  } else if (target.closest("[data-home]") && location.pathname === "/") {
    event.preventDefault();
    show(null);
  }
});

addEventListener("popstate", (event) => {
  const state = event.state;
  if (location.pathname !== "/") return void location.reload();
  if (state?.key && !photos.has(state.key)) return void show(null, { push: false });
  show(state?.key ? { ...photos.get(state.key), box: state.box } : state, { push: false, focus: false });
});

// Keys: arrows move over the results, Space enlarges.

const cards = () => $$(".tile", main);

main.addEventListener("keydown", (event) => {
  const all = cards();
  const here = all.indexOf(document.activeElement);
  if (here < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && $("[data-large]", all[here].parentElement)) {
    event.preventDefault();
    return open(all[here].parentElement);
  }
  const wide = all.filter((tile) => tile.offsetTop === all[0].offsetTop && tile.parentElement.offsetTop === all[0].parentElement.offsetTop).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
  if (step && all[here + step]) { event.preventDefault(); all[here + step].focus(); }
});

// The large view.

let shown = null;

function open(card) {
  shown = card;
  const image = $("#large-image");
  const tile = $(".tile", card);
  image.src = $("[data-large]", card).dataset.large;
  image.alt = tile.dataset.id;
  $("#large-name").textContent = tile.dataset.id;
  $("#large-score").textContent = $(".score", card)?.textContent ?? "";
  const search = $("#large-search");
  search.href = tile.href;
  search.dataset.id = tile.dataset.id;
  $("[data-step='-1']").disabled = !card.previousElementSibling;
  $("[data-step='1']").disabled = !card.nextElementSibling;
  if (!large.open) large.showModal();
}

function step(by) {
  const next = by < 0 ? shown?.previousElementSibling : shown?.nextElementSibling;
  if (next) open(next);
}

large?.addEventListener("click", (event) => {
  const by = event.target.closest("[data-step]");
  if (by) step(Number(by.dataset.step));
  else if (event.target.closest("[data-close]") || event.target.matches("dialog, figure, img")) large.close();
});
large?.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) { event.preventDefault(); step(by); }
});
large?.addEventListener("close", () => $(".tile", shown ?? main)?.focus());

// A region of the query: by dragging, by its corners, or by keys.

const LEAST = 0.03;
const clamp = (value, low = 0, high = 1) => Math.min(Math.max(value, low), high);

function begin() {
  for (const image of $$(".tile img", main)) {
    const missing = () => image.parentElement.classList.add("missing");
    if (image.complete && image.currentSrc && !image.naturalWidth) missing();
    else image.addEventListener("error", missing, { once: true });
  }
  const stage = $("#stage");
  if (!stage) return;
  const image = $("#query");
  const still = (act) => () => { if (stage.isConnected) act(); }; // the answer may be another by then
  const unseen = still(() => { stage.hidden = true; $("#unseen").hidden = false; $("#region-help").hidden = true; });
  const ready = still(() => { $("#tools").hidden = false; cropping(stage); });
  image.addEventListener("error", unseen, { once: true });
  if (image.complete && image.naturalWidth) ready();
  else image.addEventListener("load", ready, { once: true });
}

function cropping(stage) {
  const region = $("#region");
  let box = parsed(stage.dataset.box);
  let asked = text(box);

  const draw = () => {
    region.hidden = !box;
    $("#whole").hidden = !box;
    $("#crop").hidden = Boolean(box);
    $("#apply").hidden = !box || text(box) === asked;
    for (const hint of $$(".keys")) hint.hidden = !box;
    stage.classList.toggle("cropping", Boolean(box));
    if (!box) return;
    const [left, top, right, bottom] = box;
    Object.assign(region.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
    const percent = (part) => `${Math.round(100 * part)} %`;
    region.setAttribute("aria-label", `Region from ${percent(left)} to ${percent(right)} across and ${percent(top)} to ${percent(bottom)} down`);
  };
  const search = () => {
    if (text(box) === asked) return;
    asked = text(box);
    show({ ...query, box }, { focus: false });
  };
  const clear = () => { box = null; draw(); search(); };

  $("#whole").addEventListener("click", clear);
  $("#apply").addEventListener("click", search);
  $("#crop").addEventListener("click", () => { box = [0.25, 0.25, 0.75, 0.75]; draw(); region.focus(); });

  region.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (by) {
      event.preventDefault();
      const [dx, dy] = by.map((part) => part * 0.02);
      box = event.shiftKey ? resized(box, dx, dy) : moved(box, dx, dy);
      draw();
    } else if (event.key === "Enter") search();
    else if (event.key === "Escape") clear();
  });

  stage.addEventListener("pointerdown", (event) => {
    if (event.button || (event.pointerType === "touch" && !box)) return;
    event.preventDefault();
    const at = place(event, stage);
    const corner = event.target.dataset?.corner;
    const start = box;
    const hold = corner ? opposite(box, corner) : at;
    const inside = event.target === region;
    stage.setPointerCapture(event.pointerId);
    const move = (next) => {
      const to = place(next, stage);
      if (inside) box = moved(start, to[0] - at[0], to[1] - at[1]);
      else if (corner || Math.hypot(to[0] - at[0], to[1] - at[1]) > 0.02) box = between(hold, to);
      draw();
    };
    const end = (last) => {
      stage.removeEventListener("pointermove", move);
      stage.removeEventListener("pointerup", end);
      stage.removeEventListener("pointercancel", end);
      if (last.type === "pointerup") search();
    };
    stage.addEventListener("pointermove", move);
    stage.addEventListener("pointerup", end);
    stage.addEventListener("pointercancel", end);
  });
  draw();
}

function place(event, stage) {
  const frame = stage.getBoundingClientRect();
  return [clamp((event.clientX - frame.left) / frame.width), clamp((event.clientY - frame.top) / frame.height)];
}

function between([x0, y0], [x1, y1]) {
  const left = Math.min(x0, x1, 1 - LEAST), top = Math.min(y0, y1, 1 - LEAST);
  return [left, top, Math.max(x0, x1, left + LEAST), Math.max(y0, y1, top + LEAST)];
}

function moved([left, top, right, bottom], dx, dy) {
  dx = clamp(dx, -left, 1 - right);
  dy = clamp(dy, -top, 1 - bottom);
  return [left + dx, top + dy, right + dx, bottom + dy];
}

function resized([left, top, right, bottom], dx, dy) {
  return [left, top, clamp(right + dx, left + LEAST, 1), clamp(bottom + dy, top + LEAST, 1)];
}

function opposite([left, top, right, bottom], corner) {
  return [corner.endsWith("w") ? right : left, corner.startsWith("n") ? bottom : top];
}

// The page as it was loaded.

const given = new URLSearchParams(location.search);
query = given.has("id") ? { id: given.get("id"), box: parsed(given.get("box")) } : null;
history.replaceState(query, "");
begin();
