// Colours of the graph: by kind, time, device or layout, and their legends.

const KINDS = {
  contraction: ["convolutions, matrix products", "contraction"], computing: ["other computing", "computing"],
  moving: ["moving data only", "moving"], input: ["inputs and results", "port"], block: ["a closed block", "block"],
};
/** Opacity of the hottest colour: quiet text stays readable on it. */
const HOTTEST = 0.28;
const portKinds = ["input", "weight", "result"];
const lookOf = (kind) => `var(--${portKinds.includes(kind) ? "port" : KINDS[kind][1]})`;
const borderOf = (kind) => `var(--${portKinds.includes(kind) ? "port" : KINDS[kind][1]}-edge)`;

/** Fill and border of one of the items that are drawn; an item has nodes, its members, and is a block or one node. */
function coloursOf(item, items, by) {
  const node = nodes[item.members[0]], isBlock = item.scope >= 0;
  if (by === "time" && isMeasured) {
    const time = totalTime(item.members);
    const most = Math.max(...items.map((each) => totalTime(each.members)), 1e-9);
    return [`hsl(var(--hot) / ${(HOTTEST * time / most).toFixed(3)})`, "var(--moving-edge)"];
  }
  if (by === "device" || by === "layout") {
    const place = placeOfMost(item, by);
    return [`color-mix(in srgb, var(--c${place}) 30%, var(--surface))`, `var(--c${place})`];
  }
  return isBlock ? [lookOf("block"), borderOf("block")] : [lookOf(node.kind), borderOf(node.kind)];
}

/** The colour of the device or layout that most members have. */
function placeOfMost(item, by) {
  const values = valuesOf(by), counts = new Map();
  for (const number of item.members) {
    const value = nodes[number][by];
    if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  const [most] = [...counts].sort((a, b) => b[1] - a[1]);
  return most ? Math.min(values.indexOf(most[0]), 6) : 7;
}

const valuesOf = (by) => [...new Set(nodes.map((node) => node[by]).filter(Boolean))].sort();

function legendBy(by) {
  if (by === "time") {
    return legendOf([["hsl(var(--hot) / .28)", "the most time in this drawing"], ["hsl(var(--hot) / .12)", "some"],
      ["transparent", "next to none", "var(--moving-edge)"]]);
  }
  if (by === "kind") {
    return legendOf(Object.entries(KINDS).filter(([kind]) => kind !== "block" || scopesOfGraph.length)
      .map(([kind, [text]]) => [lookOf(kind), text, borderOf(kind)]));
  }
  const values = valuesOf(by);
  const entries = values.slice(0, 6).map((value, place) => [`var(--c${place})`, value]);
  if (values.length > 6) entries.push(["var(--c6)", `${values.length - 6} others`]);
  return legendOf([...entries, ["var(--c7)", "none"]]);
}
