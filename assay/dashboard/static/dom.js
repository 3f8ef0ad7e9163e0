// Elements from plain data, and bringing a page to its next version without losing focus or scroll.
// Every text becomes a text node: nothing that comes from the chain is ever read as markup.

export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") element.on = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// Makes `old` like `fresh`, keeping what is the same. An element with data-kept is left as it is.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); wire(fresh); return; }
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  if (old.dataset.kept !== undefined && old.dataset.kept === fresh.dataset.kept) return;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (fresh.on) { old.on = fresh.on; listen(old); }
  const were = [...old.childNodes], are = [...fresh.childNodes];
  were.slice(are.length).forEach((node) => node.remove());
  are.forEach((node, i) => { if (i < were.length) morph(were[i], node); else { old.append(node); wire(node); } });
}

function wire(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  for (const element of [node, ...node.querySelectorAll("*")]) if (element.on) listen(element);
}

function listen(element) { element.onclick = (event) => element.on(event); }

// As amounts are rounded on the command line: two decimals, or `digits`.
export function tok(amount, digits = 2) {
  if (amount === null || amount === undefined) return "–";
  const text = String(amount), negative = text.startsWith("-"), unit = 10n ** BigInt(18 - digits);
  const whole = String((BigInt(text.replace("-", "")) + unit / 2n) / unit).padStart(digits + 1, "0");
  const rest = whole.slice(-digits).replace(/0+$/, "");
  const head = whole.slice(0, -digits).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return `${negative ? "−" : ""}${head}${rest ? "." + rest : ""}\u00a0tok`;
}

export function span(seconds) {
  const s = Math.max(Math.floor(seconds), 0);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// The chain's time now, by this machine's clock since the last message.
const chain = { time: 0, at: 0 };
export function setTime(time) { if (time) Object.assign(chain, { time, at: Date.now() }); }
const leftOf = (until) => {
  const seconds = until - chain.time - (Date.now() - chain.at) / 1000;
  return seconds > 0 ? `${span(seconds)} left` : "time is up";
};
export const left = (until) => (until === null ? null : h("span", { class: "left", "data-until": until }, leftOf(until)));
setInterval(() => { for (const one of document.querySelectorAll("[data-until]")) one.textContent = leftOf(Number(one.dataset.until)); }, 1000);

export const CLOCK = { hourCycle: "h23" };

export function moment(time, block) {
  if (time === null) return `block ${block}`;
  const date = new Date(time * 1000), near = Math.abs(time - chain.time) < 43200;
  return h("time", { datetime: date.toISOString(), title: `block ${block}` }, near ? date.toLocaleTimeString([], CLOCK) : date.toLocaleString([], CLOCK));
}

// What goes on, and what comes next, each with the time that is left.
export function doing(list) {
  return h("ul", { class: "doing" }, list.map((one) => h("li", {}, h("strong", {}, one.now), one.until === null ? null : [" ", left(one.until)], one.next ? h("span", { class: "next" }, `then: ${one.next}`) : null)));
}

export function bytes(count) {
  const step = count < 1000 ? 0 : Math.min(Math.floor(Math.log10(count) / 3), 4);
  return `${Number((count / 1000 ** step).toPrecision(3))} ${["bytes", "kB", "MB", "GB", "TB"][step]}`;
}

export const short = (hex) => h("code", { title: hex }, hex.slice(0, 16));

export function party(who) {
  if (!who) return "nobody";
  const words = who.name || `${who.address.slice(0, 8)}…${who.address.slice(-4)}`;
  return h("a", { href: `#/account/${who.address}`, title: who.address }, words);
}

export const job = (line) => h("a", { href: `#/job/${line.id}`, title: line.id }, line.name || h("code", {}, line.id.slice(0, 16)));

export const bar = (label, value, max) => h("progress", { value, max: Math.max(max, 1), "aria-label": label });

export const tag = (word) => h("span", { class: `tag ${word}` }, word);

export function cards(entries) {
  return h("dl", { class: "cards" }, entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Columns whose name starts with # are numbers. The region can be scrolled with the keyboard; on a phone each row is a
// list, and its cells have their columns' names.
export function table(label, columns, rows) {
  if (!rows.length) return h("p", {}, `${label}: none`);
  const kinds = columns.map((name) => (name.startsWith("#") ? "number" : null));
  const head = columns.map((name, i) => h("th", { scope: "col", class: kinds[i] }, name.replace("#", "")));
  const labels = columns.map((name) => name.replace("#", ""));
  const body = rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: kinds[i], "data-label": labels[i] }, h("div", {}, cell)))));
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}
