// What there is to say of the graph: of all, a block, a node.

function overview(view) {
  const slow = nodes.map((_, number) => number).filter((number) => timeOf[number] > 0)
    .sort((a, b) => timeOf[b] - timeOf[a]).slice(0, 10);
  return [make("h3", {}, "Choose a node"),
    make("p", { class: "quiet" }, "A click shows what it computes, where it came from, its kernels and its time. " +
      "A double click on a block opens it. The wheel zooms, dragging moves."),
    ...(slow.length ? [make("h4", {}, "The slowest nodes"), make("ul", { class: "slow" }, slow.map((number) =>
      make("li", {}, linkTo(number, view), make("span", {}, millisecondsText(timeOf[number])))))] : [])];
}

function linkTo(number, view) {
  return make("button", { class: "link", type: "button", onclick: () => view.reveal(number) }, titleOf(number));
}

function describe(item, view) {
  return item.scope >= 0 ? describeBlock(item, view) : describeNode(item.members[0], view);
}

function describeBlock(item, view) {
  const time = totalTime(item.members), counts = new Map();
  for (const number of item.members) counts.set(nodes[number].op, (counts.get(nodes[number].op) ?? 0) + 1);
  return [make("h3", {}, scopeTitle(item.scope)), facts([["nodes", item.members.length],
    ["time", time > 0 ? millisecondsText(time) : ""],
    ["ops", [...counts].map(([op, count]) => (count > 1 ? `${op} \u00d7${count}` : op)).join(", ")]]),
  make("p", {}, make("button", { type: "button", onclick: () => view.toggle(item.scope, true) }, "Open the block"))];
}

function describeNode(number, view) {
  const node = nodes[number], types = data.graph.types;
  const edgesTo = (edges) => make("ul", {}, edges.map(([other, type]) =>
    make("li", {}, linkTo(other, view), " ", make("span", { class: "mono quiet" }, types[type]))));
  const parts = [make("h3", {}, node.op), make("p", { class: "mono" }, node.name), facts([
    ["type", node.types.join(", ")], ["operands", (node.operands ?? []).join("\n")], ["origin", node.origin],
    ["layout", node.layout], ["runs on", node.device], ["because", node.why],
    ["time", timeOf[number] > 0 ? millisecondsText(timeOf[number]) : ""], ...Object.entries(node.attributes ?? {})])];
  if (callsOf[number].length) {
    parts.push(make("h4", {}, "Kernel calls"), make("ul", {}, callsOf[number].slice(0, 30).map(
      ([, kernel, level, tasks, operations, bytes]) => make("li", {}, make("span", { class: "mono" }, kernel),
        make("span", { class: "quiet" }, ` level ${level}, ${counted(tasks, "task")}, ${bytesText(bytes)}` +
          (operations ? `, ${withUnit(operations, [[1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"], [1, "FLOP"]])}` : ""))))));
    if (callsOf[number].length > 30) parts.push(make("p", { class: "quiet" }, `and ${callsOf[number].length - 30} more`));
  }
  if (sourcesOf[number].length) parts.push(make("h4", {}, "Reads"), edgesTo(sourcesOf[number]));
  if (readersOf[number].length) parts.push(make("h4", {}, "Read by"), edgesTo(readersOf[number]));
  if (chains[number].length) {
    parts.push(make("h4", {}, "In the blocks"), make("ul", {}, chains[number].map((scope) => make("li", {},
      make("button", { class: "link", type: "button", onclick: () => view.toggle(scope, false) },
        `close ${scopesOfGraph[scope][0]}`)))));
  }
  return parts;
}
