// All photos of the index as one long list: only what is near the visible part is in the document. Photos are in groups,
// a month or a folder each, with a heading; all rows have one height, so that every position is known in advance.

import { $, $$, createElement } from "./dom.js";

const MIN_TILE = 170, CAPTION = 34, HEADING = 56, MAX_PAGES = 40;
const MONTHS = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });

export class VirtualGrid {
  // element: the list with the first page of photos; onCards(root) is called for each new page of cards.
  constructor(element, onCards) {
    this.element = element;
    this.onCards = onCards;
    this.list = $("ol", element);
    this.total = Number(element.dataset.total);
    this.pageSize = Number(element.dataset.pageSize);
    this.groups = JSON.parse(element.dataset.groups);
    this.url = element.dataset.url;
    this.pages = new Map(); // page number -> its cards, or a promise of them
    this.shown = new Map(); // number -> element
    this.headings = element.insertBefore(createElement("div", { className: "headings" }), this.list);
    this.pages.set(Number(element.dataset.firstPage), $$(".card", this.list));
    this.list.replaceChildren();
    element.classList.add("active");
    for (const link of $$(".no-script")) link.hidden = true;
    addEventListener("scroll", () => this.schedule(), { passive: true });
    addEventListener("resize", () => { this.layout(); this.draw(); }, { passive: true });
    this.layout();
    this.draw();
  }

  // Compute the size of tiles and the position of each group.
  layout() {
    const gap = parseFloat(getComputedStyle(this.list).columnGap) || 12;
    const width = this.element.clientWidth;
    this.columns = Math.max(2, Math.floor((width + gap) / (MIN_TILE + gap)));
    this.tile = (width - gap * (this.columns - 1)) / this.columns;
    this.step = this.tile + gap;
    this.row = this.tile + CAPTION;
    let top = 0, first = 0;
    this.blocks = joinMonths(this.groups, this.columns).map(([label, count]) => {
      const block = { label, count, first, top };
      first += count;
      top += HEADING + Math.ceil(count / this.columns) * this.row;
      return block;
    });
    this.element.style.height = `${top}px`;
    for (const [number, card] of this.shown) this.place(card, number);
    this.headings.replaceChildren();
    this.shownHeadings = new Set();
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  // Show the photos that are visible, one screen above and one below; remove the others.
  draw() {
    const offset = -this.element.getBoundingClientRect().top;
    const from = offset - innerHeight, to = offset + 2 * innerHeight;
    const wanted = new Set();
    for (let i = Math.max(0, this.blocks.findLastIndex(({ top }) => top <= from)); i < this.blocks.length && this.blocks[i].top < to; i++) {
      const block = this.blocks[i];
      this.showHeading(block);
      const firstRow = Math.max(0, Math.floor((from - block.top - HEADING) / this.row));
      const lastRow = Math.ceil((to - block.top - HEADING) / this.row);
      const end = Math.min(block.count, lastRow * this.columns);
      for (let number = firstRow * this.columns; number < end; number++) wanted.add(block.first + number);
    }
    for (const [number, card] of this.shown) {
      if (wanted.has(number) || card.contains(document.activeElement)) continue;
      card.remove();
      this.shown.delete(number);
    }
    for (const number of wanted) this.show(number);
    document.dispatchEvent(new Event("cardschange"));
  }

  show(number) {
    const page = Math.floor(number / this.pageSize);
    const cards = this.pages.get(page);
    if (!cards) this.fetch(page).catch(() => {}); // the next scroll tries again
    if (!Array.isArray(cards)) return;
    const card = cards[number - page * this.pageSize];
    if (!card || this.shown.get(number) === card) return;
    this.place(card, number);
    card.setAttribute("aria-setsize", this.total);
    card.setAttribute("aria-posinset", number + 1);
    card.dataset.number = number;
    const after = [...this.list.children].find((other) => Number(other.dataset.number) > number);
    this.list.insertBefore(card, after ?? null);
    this.shown.set(number, card);
  }

  // Load a page of cards, keep it, and return it.
  fetch(page) {
    const loading = this.load(page);
    this.pages.set(page, loading);
    loading.then((cards) => this.keep(page, cards), () => this.pages.delete(page));
    return loading;
  }

  async load(page) {
    const url = new URL(this.url, location.href);
    url.searchParams.set("page", page);
    const response = await fetch(url);
    if (!response.ok) throw new Error(`status ${response.status}`);
    const template = createElement("template", { innerHTML: await response.text() }); // rendered and escaped by the server
    return $$(".card", template.content);
  }

  keep(page, cards) {
    this.pages.delete(page);
    this.pages.set(page, cards);
    for (const old of this.pages.keys()) {
      if (this.pages.size <= MAX_PAGES) break;
      if (old !== page && !this.pages.get(old)[0]?.isConnected) this.pages.delete(old);
    }
    this.onCards({ querySelectorAll: (selector) => cards.flatMap((card) => [...card.querySelectorAll(selector)]) });
    this.schedule();
  }

  // Return the ids of the photos from one number to another, also of those that are not in the document.
  async idsBetween(first, last) {
    const ids = [];
    for (let page = Math.floor(first / this.pageSize); page * this.pageSize <= last; page++) {
      const cards = await (this.pages.get(page) ?? this.fetch(page));
      const offset = page * this.pageSize;
      ids.push(...cards.slice(Math.max(0, first - offset), last + 1 - offset).map((card) => card.dataset.id));
    }
    return ids;
  }

  place(card, number) {
    const block = this.blocks.findLast(({ first }) => first <= number);
    const position = number - block.first;
    const top = block.top + HEADING + Math.floor(position / this.columns) * this.row;
    card.style.transform = `translate(${(position % this.columns) * this.step}px, ${top}px)`;
    card.style.width = `${this.tile}px`;
    card.style.height = `${this.row}px`;
  }

  showHeading(block) {
    if (this.shownHeadings.has(block)) return;
    this.shownHeadings.add(block);
    const heading = createElement("h2", { textContent: headingText(block.label) });
    heading.append(createElement("small", { textContent: block.count.toLocaleString("en") }));
    heading.style.transform = `translateY(${block.top}px)`;
    this.headings.append(heading);
  }
}

const isMonth = (label) => /^\d{4}-\d\d$/.test(label);

// Return the groups; consecutive months whose photos fit into one row are one group, labelled by the first and the last.
export function joinMonths(groups, columns) {
  const joined = [];
  for (const [label, count] of groups) {
    const before = joined.at(-1);
    if (before && isMonth(label) && before[1] + count <= columns) joined[joined.length - 1] = [`${label} ${before[0].split(" ").at(-1)}`, before[1] + count];
    else joined.push([label, count]);
  }
  return joined;
}

function headingText(label) {
  const months = label.split(" ");
  if (!months.every(isMonth)) return label || "Top folder";
  return months.map((month) => MONTHS.format(new Date(`${month}-15T00:00:00Z`))).join(" – ");
}
