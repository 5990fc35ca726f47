'use strict';
// Puts the parts of the page that have changed in their places. What they look like is made by the server, as in a static report.
const main = document.querySelector('main'), live = document.getElementById('live');

/** What a reader has done to a part stays: boxes that are ticked, details that are open, how far a plot is scrolled. */
function replace(part, html) {
  const checked = new Set([...part.querySelectorAll('input:checked')].map(box => box.value));
  const open = [...part.querySelectorAll('details')].map(details => details.open);
  const scrolled = [...part.querySelectorAll('.scroll')].map(scroll => scroll.scrollLeft);
  const focused = part.contains(document.activeElement) ? [document.activeElement.tagName, document.activeElement.value, document.activeElement.href] : null;
  part.innerHTML = html;
  for (const box of part.querySelectorAll('input[type="checkbox"]')) box.checked = checked.has(box.value);
  part.querySelectorAll('details').forEach((details, n) => { details.open = Boolean(open[n]); });
  part.querySelectorAll('.scroll').forEach((scroll, n) => { scroll.scrollLeft = scrolled[n] || 0; });
  if (focused) [...part.querySelectorAll(focused[0])].find(one => one.value === focused[1] && one.href === focused[2])?.focus();
}

const waiting = new Map();

function update(id, html) {
  const part = document.getElementById(id);
  if (!part) return;
  // A sound that plays is not cut off; its part comes when it is over.
  const playing = [...part.querySelectorAll('audio')].find(audio => !audio.paused);
  if (playing) {
    if (!waiting.has(id)) playing.addEventListener('pause', () => { const last = waiting.get(id); waiting.delete(id); update(id, last); }, { once: true });
    waiting.set(id, html);
    return;
  }
  replace(part, html);
}

let source = null;

function listen() {
  if (source || document.hidden) return;
  const lang = document.documentElement.lang, query = main.dataset.query;
  source = new EventSource(`/events?${query}${query ? '&' : ''}lang=${lang}`);
  source.addEventListener('open', () => { live.textContent = '●'; live.classList.add('good'); });
  source.addEventListener('message', event => {
    for (const [id, html] of Object.entries(JSON.parse(event.data).parts)) update(id, html);
    document.body.dataset.events = Number(document.body.dataset.events || 0) + 1;
  });
  source.addEventListener('error', () => {
    live.textContent = main.dataset.lost;
    live.classList.remove('good');
    // The browser connects again by itself, but for an answer that is none of ours.
    if (source?.readyState === EventSource.CLOSED) { deafen(); setTimeout(listen, 3000); }
  });
}

function deafen() {
  source?.close();
  source = null;
}

if (!document.getElementById('enter')) {
  listen();
  // A browser has few connections to a server: pages that nobody sees leave theirs to others.
  document.addEventListener('visibilitychange', () => document.hidden ? deafen() : listen());
}
