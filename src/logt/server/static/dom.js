// Short names for DOM queries, and a message for screen readers.

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

export function createElement(tag, properties = {}) {
  return Object.assign(document.createElement(tag), properties);
}

export function announce(message) {
  $("#status").textContent = message;
}
