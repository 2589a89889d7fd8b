// Small helpers: elements of the page, and numbers as text.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** Three significant digits, and a unit from a list of [factor, text], the largest first. */
function withUnit(number, units) {
  const [factor, text] = units.find(([least]) => Math.abs(number) >= least) ?? units[units.length - 1];
  return `${Number((number / factor).toPrecision(3))} ${text}`;
}
const bytesText = (n) => withUnit(n, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]]);
const secondsText = (n) => withUnit(n, [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"], [1e-9, "ns"]]);
const millisecondsText = (ms) => secondsText(ms / 1e3);
const percentText = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** What fits, of a name whose end tells most. */
const cutFront = (text, most) => (text.length <= most ? text : "\u2026" + text.slice(text.length - most + 1));
const cutEnd = (text, most) => (text.length <= most ? text : text.slice(0, most - 1) + "\u2026");

const bar = (share, colour = "var(--c0)") => make("span", { class: "bar", "aria-hidden": "true" },
  make("i", { style: `width:${(100 * Math.min(1, share)).toFixed(1)}%;background:${colour}` }));

/** Columns: [title, a cell's text or element of a row, class]. */
function table(caption, columns, rows) {
  const cell = (row) => ([, content, kind]) => make("td", { class: kind }, content(row));
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, make("table", {},
    make("thead", {}, make("tr", {}, columns.map(([title, , kind]) => make("th", { class: kind === "number" ? kind : null, scope: "col" }, title)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, columns.map(cell(row)))))));
}

/** Entries: [colour, text, colour of the border]. */
const legendOf = (entries) => entries.map(([fill, text, edge]) =>
  make("li", {}, make("i", { style: `background:${fill};border-color:${edge ?? fill}` }), text));

/** The rows that come first, and all on demand. */
function firstOf(rows, most, shown) {
  const box = make("div", {}, shown(rows.slice(0, most)));
  if (rows.length <= most) return box;
  const more = make("button", { type: "button", onclick: () => box.replaceChildren(shown(rows)) },
    `Show all ${rows.length}`);
  box.append(make("p", {}, more));
  return box;
}

/** Names with values; those without one are left out. */
const facts = (rows) => make("dl", {}, rows.filter(([, value]) => value !== undefined && value !== "").flatMap(
  ([name, value]) => [make("dt", {}, name), make("dd", { style: "white-space:pre-line" }, String(value))]));
