// The sections beside the graph; each fills its element when it is first opened.

const toNode = (number) => {
  if (number === undefined || number === null) return;
  openTab("graph");
  view.reveal(Number(number));
};
const nodeCell = (number, otherwise = "") => (number === undefined || number < 0 ? otherwise :
  make("button", { class: "link", type: "button", onclick: () => toNode(number) }, titleOf(number)));
const widthOf = (element) => Math.max(element.getBoundingClientRect().width - 2, 320);

function fillPlacement(section) {
  const { backend, ops, plan } = data.placement;
  const total = Object.values(ops).reduce((sum, count) => sum + count, 0);
  section.append(make("h2", {}, "Where each node runs"));
  if (!plan) {
    section.append(make("p", {}, `All ${counted(total, "node")} of the graph run on ${backend}, which supports each of them.`),
      make("h2", {}, "The ops of the graph, as it was imported"), table("Ops", [["op", ([name]) => name],
        ["nodes", ([, count]) => [String(count), bar(count / Math.max(...Object.values(ops)))], "number"]],
      Object.entries(ops).sort((a, b) => b[1] - a[1])));
    return;
  }
  const alone = plan.devices.map((name, i) => `all on ${name}: ${plan.alone_seconds[i] === null ? "impossible" :
    secondsText(plan.alone_seconds[i])}`).join("; ");
  section.append(make("p", {}, `Predicted: ${secondsText(plan.predicted_seconds)} a call; ${alone}.`));
  const colour = (device) => `var(--c${plan.devices.indexOf(device) % 8})`;
  section.append(make("div", { class: "stack", role: "img", "aria-label": "nodes by device" }, plan.devices.map((device) =>
    make("i", { style: `background:${colour(device)};flex:${plan.nodes.filter((node) => node.device === device).length}` }))),
  make("ul", { class: "legend" }, legendOf(plan.devices.map((device) => [colour(device),
    `${device}: ${counted(plan.nodes.filter((node) => node.device === device).length, "node")}`]))));
  section.append(make("h2", {}, "Regions"), table("Regions", [["device", (r) => r.device],
    ["nodes", (r) => String(r.nodes.length), "number"], ["from", (r) => secondsText(r.begin), "number"],
    ["to", (r) => secondsText(r.end), "number"],
    ["ops", (r) => Object.entries(r.ops).map(([op, n]) => `${op} \u00d7${n}`).join(", "), "wrap"]], plan.regions));
  section.append(make("h2", {}, "Nodes"), firstOf(plan.nodes, 60, (rows) => table("Nodes", [["node", (n) => n.name, "wrap"],
    ["op", (n) => n.op], ["device", (n) => n.device],
    ...plan.devices.map((device, i) => [device, (n) => (n.seconds[i] === null ? "\u2013" : secondsText(n.seconds[i])), "number"]),
    ["why", (n) => n.why, "wrap"]], rows)));
}

const SIGNS = { "+": "added", "-": "removed", "@": "gap", " ": "" };

/** A block that makes its lines when it is opened; lines: [sign, text]. */
function foldedLines(summary, lines, leftOut = 0) {
  const box = make("details", { class: "change" }, make("summary", {}, ...summary));
  box.addEventListener("toggle", () => {
    if (!box.open || box.children.length > 1) return;
    box.append(make("div", { class: "diff", tabindex: "0", role: "group", "aria-label": "IR" }, lines.map(([sign, text]) =>
      make("div", { class: SIGNS[sign] }, sign === "@" ? "\u22ee" : `${sign} ${text}`)),
    leftOut ? make("div", { class: "gap" }, `${leftOut} more lines are left out`) : null));
  });
  return box;
}

function fillPasses(section) {
  const { changes, unchanged, start, end } = data.passes;
  section.append(make("h2", {}, "What the passes changed"), make("p", { class: "quiet" },
    `${counted(changes.length, "run")} of passes changed the graph, ${unchanged} more changed nothing. A value keeps its ` +
    "number throughout, so that a difference shows only what the pass did."));
  const whole = (lines) => lines.map((text) => [" ", text]);
  section.append(foldedLines([make("b", {}, "imported"), make("span"), make("span", { class: "quiet" }, counted(start.length, "line"))], whole(start)));
  changes.forEach((change, number) => {
    const moved = change.ops.map(([op, by]) => `${op} ${by > 0 ? "+" : "\u2212"}${Math.abs(by)}`).join(", ");
    section.append(foldedLines([make("b", {}, `${number + 1}. ${change.name}`), make("span", {}, moved || "rewired"),
      make("span", { class: "quiet" }, `${counted(change.nodes, "node")} then, ${millisecondsText(change.ms)}`)],
    change.lines, change.left_out));
  });
  section.append(foldedLines([make("b", {}, "optimised"), make("span"), make("span", { class: "quiet" }, counted(end.length, "line"))], whole(end)));
  if (changes.length && changes.length < 4) section.querySelectorAll("details")[1].open = true;
}

function fillKernels(section) {
  const found = data.kernels;
  section.append(make("h2", {}, "Where the time goes"));
  if (typeof found === "string") return void section.append(make("p", {}, found));
  const inKernels = found.rows.reduce((sum, row) => sum + row.ms, 0), total = inKernels + found.waiting_ms + found.outside_ms;
  const work = found.rows.reduce((sum, row) => sum + row.gflop, 0), rate = (work / found.wall_ms) * 1e3;
  section.append(make("p", {}, `A call takes ${millisecondsText(found.wall_ms)} on ${counted(found.threads, "thread")} ` +
    `(${found.isa}; the median of ${found.rounds}), at ${rate.toFixed(1)} GFLOP/s: ${percentText(rate / found.peak.gflops)} of ` +
    `the ${found.peak.gflops.toFixed(1)} GFLOP/s that multiply-adds in registers reach here. Copying memory reaches ` +
    `${found.peak.gigabytes.toFixed(1)} GB/s; tensors in a cache move faster than that.`));
  const parts = [["in kernels", inKernels, 0], ["threads waiting", found.waiting_ms, 1], ["outside: Python", found.outside_ms, 7]];
  section.append(make("div", { class: "stack", role: "img", "aria-label": "shares of a call" }, parts.map(([, ms, colour]) =>
    make("i", { style: `flex:${Math.max(ms, 0)};background:var(--c${colour})` }))),
  make("ul", { class: "legend" }, legendOf(parts.map(([text, ms, colour]) => [`var(--c${colour})`,
    `${text}: ${millisecondsText(ms)}, ${percentText(ms / total)}`]))));
  const most = Math.max(...found.kinds.map((row) => row.share), 1e-9);
  const rates = [["time", (row) => millisecondsText(row.ms), "number"],
    ["share", (row) => [percentText(row.share), bar(row.share / most)], "number"],
    ["GFLOP/s", (row) => (row.gflop ? row.gflops.toFixed(1) : ""), "number"],
    ["of peak", (row) => (row.gflop ? [percentText(row.of_peak), bar(row.of_peak, "var(--c2)")] : ""), "number"],
    ["GB/s", (row) => row.gigabytes.toFixed(1), "number"]];
  section.append(make("h2", {}, "By kernel"), firstOf(found.kinds, 12, (rows) => table("By kernel",
    [["kernel", (row) => row.kernel, "mono"], ["calls", (row) => String(row.calls), "number"], ...rates], rows)));
  section.append(make("h2", {}, "By node"), firstOf(found.rows, 40, (rows) => table("By node",
    [["node", (row) => nodeCell(nodesByKey.get(row.origin)?.[0], row.origin), "wrap"], ["kernel", (row) => row.kernel, "mono"],
      ...rates], rows)));
}

function fillMemory(section) {
  const found = data.memory;
  section.append(make("h2", {}, "Memory over a call"));
  if (typeof found === "string") return void section.append(make("p", {}, found));
  const use = isMeasured ? data.kernels.memory[0] : null;
  section.append(make("p", {}, `The arena of a call takes ${bytesText(found.arena)} for ${counted(found.buffers.length, "buffer")} ` +
    "that are in use at different levels. Each is drawn from the level that writes it first to the last that reads it."));
  if (use) {
    section.append(facts([["each in memory of its own", bytesText(use.separate)], ["the least possible", bytesText(use.least)],
      ["planned", bytesText(use.planned)], ["prepared weights", bytesText(use.prepared)]]));
  }
  if (!found.buffers.length) return;
  const box = make("div", { class: "chart" });
  section.append(make("ul", { class: "legend" }, legendOf(["contraction", "computing", "moving"].map((kind) =>
    [borderOf(kind), KINDS[kind][0]]))), box);
  box.append(memoryChart(found, widthOf(box), toNode));
  const largest = [...found.buffers].sort((a, b) => b[1] - a[1]);
  section.append(make("h2", {}, "Buffers"), firstOf(largest, 15, (rows) => table("Buffers", [
    ["first written for", ([, , , , node]) => nodeCell(node, "no node"), "wrap"], ["size", (b) => bytesText(b[1]), "number"],
    ["at", (b) => bytesText(b[0]), "number"], ["levels", (b) => `${b[2]} to ${b[3]}`, "number"]], rows)));
}

function fillTimeline(section) {
  const found = data.timeline;
  section.append(make("h2", {}, "One call"));
  if (typeof found === "string") return void section.append(make("p", {}, found));
  const times = new Map();
  for (const [, , duration, name, , category] of found.rows) {
    if (category !== "call") times.set(name, (times.get(name) ?? 0) + duration);
  }
  const order = [...times].sort((a, b) => b[1] - a[1]);
  const colourOf = (name) => Math.min(order.findIndex(([each]) => each === name), 7);
  section.append(make("p", { class: "quiet" }, (found.simulated ? "Simulated time. " : "Recorded once, with the cost of recording. ") +
    "A click on a span shows its node." + (found.left_out ? ` The ${found.left_out} shortest spans are left out.` : "")));
  const box = make("div", { class: "chart", tabindex: "0", role: "group", "aria-label": "timeline" });
  const zoom = make("input", { type: "range", min: "0", max: "6", step: "0.5", value: "0" });
  const redraw = () => box.replaceChildren(timelineChart(found, (widthOf(section) - 2) * 2 ** Number(zoom.value), colourOf, toNode));
  zoom.addEventListener("input", redraw);
  section.append(make("p", { class: "tools" }, make("label", {}, "Zoom ", zoom)), make("ul", { class: "legend" },
    legendOf([...order.slice(0, 7).map(([name, time], place) => [`var(--c${place})`, `${found.texts[name]}: ${secondsText(time / 1e6)}`]),
      ...(order.length > 7 ? [["var(--c7)", `${order.length - 7} others`]] : [])])), box);
  redraw();
  if (!found.engines.length) return;
  const percent = (name) => (row) => `${(100 * row[name]).toFixed(1)} %`;
  section.append(make("h2", {}, "Where the time of each engine went"), table("Engines", [["engine", (row) => row.engine],
    ...[["busy", "busy"], ["dependence", "dependence"], ["transfer", "transfer"], ["start-up", "startup"],
      ["no work", "no_work"]].map(([title, name]) => [title, percent(name), "number"])], found.engines));
}

function fillAccuracy(section) {
  const found = data.accuracy;
  const shown = (value) => typeof value === "number" ? value.toPrecision(4) : value ?? "";
  section.append(make("h2", {}, "Accuracy"));
  if (typeof found === "string") return void section.append(make("p", {}, found));
  section.append(make("p", {}, `Against the backend ${found.reference}, which is the definition of the ops, on the same inputs. What differs by no more agrees: ${found.tolerance}.`),
    table("Accuracy", [["output", (row) => row.name, "wrap"],
      ["verdict", (row) => row.agrees ? "agrees" : `differs in ${row.beyond} elements`],
      ["largest difference, of the largest magnitude", (row) => shown(row.share), "number"],
      ["at", (row) => row.index ? `[${row.index.join(", ")}]` : "", "number"],
      ["here", (row) => shown(row.element), "number"],
      [found.reference, (row) => shown(row.expected), "number"]], found.rows));
}
