// The graph: blocks that open and close, zoom, search, and what there is to say of a node.

const nodes = data.graph.nodes, scopesOfGraph = data.graph.scopes;
const keyOf = (node) => (node.origin ? `${node.op} (${node.origin})` : node.op);
const nodesByKey = new Map();
nodes.forEach((node, number) => nodesByKey.set(keyOf(node), [...(nodesByKey.get(keyOf(node)) ?? []), number]));
const titleOf = (number) => nodes[number].name || nodes[number].op;
const isMeasured = typeof data.kernels === "object";

/** Milliseconds of each node; nodes that profiles can't tell apart share their time. */
const timeOf = new Array(nodes.length).fill(isMeasured ? 0 : null);
for (const row of isMeasured ? data.kernels.rows : []) {
  const known = nodesByKey.get(row.origin) ?? [];
  for (const number of known) timeOf[number] += row.ms / known.length;
}
const callsOf = nodes.map(() => []);
for (const call of data.calls) if (call[0] >= 0) callsOf[call[0]].push(call);
const readersOf = nodes.map(() => []), sourcesOf = nodes.map(() => []);
for (const [from, to, type] of data.graph.edges) {
  readersOf[from].push([to, type]);
  sourcesOf[to].push([from, type]);
}

/** The blocks around a node, the outermost first. */
function scopeChain(number) {
  const chain = [];
  for (let scope = nodes[number].scope ?? -1; scope >= 0; scope = scopesOfGraph[scope][1]) chain.unshift(scope);
  return chain;
}
const chains = nodes.map((_, number) => scopeChain(number));
const scopeTitle = (scope) => {
  const labels = [];
  for (let each = scope; each >= 0; each = scopesOfGraph[each][1]) labels.unshift(scopesOfGraph[each][0]);
  return labels.join(" / ");
};

const KINDS = {
  contraction: ["convolutions, matrix products", "contraction"], computing: ["other computing", "computing"],
  moving: ["moving data only", "moving"], input: ["inputs and results", "port"], block: ["a closed block", "block"],
};
const portKinds = ["input", "weight", "result"];
const lookOf = (kind) => `var(--${portKinds.includes(kind) ? "port" : KINDS[kind][1]})`;
const borderOf = (kind) => `var(--${portKinds.includes(kind) ? "port" : KINDS[kind][1]}-edge)`;

class GraphView {
  constructor(box) {
    this.box = box;
    this.open = new Set();
    this.matches = [];
    this.match = -1;
    this.chosen = null;
    this.colour = "kind";
    this.openSome(40);
    this.listen();
    this.render();
    this.fit();
  }

  // ---- blocks ----

  /** Open blocks, a level of them at once, while the drawing stays small. */
  openSome(most) {
    const depthOf = (scope) => (scope < 0 ? 0 : 1 + depthOf(scopesOfGraph[scope][1]));
    for (let depth = 1; ; depth++) {
      const level = [...scopesOfGraph.keys()].filter((scope) => depthOf(scope) === depth);
      level.forEach((scope) => this.open.add(scope));
      const items = new Set(nodes.map((_, number) => this.itemOf(number)));
      if (items.size > most) level.forEach((scope) => this.open.delete(scope));
      if (!level.length || items.size > most) return;
    }
  }

  itemOf(number) {
    const closed = chains[number].find((scope) => !this.open.has(scope));
    return closed === undefined ? `n${number}` : `s${closed}`;
  }

  toggle(scope, isOpen) {
    if (isOpen) this.open.add(scope);
    else {
      scopesOfGraph.forEach((_, each) => {
        for (let up = each; up >= 0; up = scopesOfGraph[up][1]) if (up === scope) this.open.delete(each);
      });
    }
    const first = nodes.findIndex((_, number) => chains[number].includes(scope));
    this.render();
    this.choose(this.itemOf(first), true);
  }

  setAll(isOpen) {
    this.open = new Set(isOpen ? scopesOfGraph.keys() : []);
    this.render();
    this.fit();
  }

  // ---- drawing ----

  render() {
    this.items = [];
    const places = new Map();
    this.placeOf = nodes.map((_, number) => {
      const key = this.itemOf(number);
      if (!places.has(key)) {
        places.set(key, this.items.length);
        this.items.push({ key, members: [], scope: key[0] === "s" ? Number(key.slice(1)) : -1 });
      }
      this.items[places.get(key)].members.push(number);
      return places.get(key);
    });
    const joined = new Map();
    for (const [from, to, type] of data.graph.edges) {
      const [a, b] = [this.placeOf[from], this.placeOf[to]];
      if (a !== b && !joined.has(`${a} ${b}`)) joined.set(`${a} ${b}`, [a, b, type]);
    }
    this.edges = [...joined.values()];
    this.layout = arrange(this.items.length, this.edges);
    const layer = draw("g");
    this.paths = this.edges.map((edge, number) => this.drawEdge(edge, this.layout.points[number]));
    const labelled = new Set();
    const labels = this.edges.filter(([a, , type]) => !labelled.has(`${a} ${type}`) && labelled.add(`${a} ${type}`))
      .map(([a, , type]) => [a, data.graph.types[type]]);
    const bySource = new Map();
    for (const [a, text] of labels) bySource.set(a, [...(bySource.get(a) ?? []), text]);
    const texts = [...bySource].map(([a, all]) => draw("text", {
      class: "edge-label", x: this.layout.x[a] + 6, y: this.layout.y[a] + BOX.height / 2 + 17,
    }, cutEnd(all.join("  "), 34)));
    this.boxes = this.items.map((item, place) => this.drawItem(item, place));
    layer.append(...this.paths, ...texts, ...this.boxes);
    this.layer = layer;
    this.box.replaceChildren(draw("svg", { "aria-hidden": "false" }, layer));
    this.mark();
    if (this.view) this.move();
  }

  drawEdge([from, to], points) {
    const half = BOX.height / 2, bend = BOX.gapY * 0.6;
    let path = `M${points[0][0].toFixed(1)},${(points[0][1] + half).toFixed(1)}`;
    for (let i = 1; i < points.length; i++) {
      const [x, y] = points[i - 1], [tx, ty] = points[i];
      const down = y + half, up = ty - half;
      path += `L${x.toFixed(1)},${down}C${x.toFixed(1)},${down + bend} ${tx.toFixed(1)},${up - bend} ${tx.toFixed(1)},${up}`;
    }
    return draw("path", { class: "edge", d: path });
  }

  drawItem(item, place) {
    const isBlock = item.scope >= 0, node = nodes[item.members[0]];
    const title = isBlock ? scopesOfGraph[item.scope][0] : node.op;
    const below = isBlock ? counted(item.members.length, "node") : node.name || "";
    const [fill, edge] = this.look(item);
    const time = item.members.reduce((sum, number) => sum + (timeOf[number] ?? 0), 0);
    const timeText = time > 0 ? millisecondsText(time) : "";
    const spoken = `${isBlock ? "block " : ""}${title}, ${below}${timeText && `, ${timeText}`}`;
    const x = this.layout.x[place] - BOX.width / 2, y = this.layout.y[place] - BOX.height / 2;
    const room = timeText ? 20 : 26;
    return draw("g", {
      class: "item", transform: `translate(${x.toFixed(1)},${y})`, tabindex: "-1", role: "button", "aria-label": spoken,
      "data-place": place,
    }, draw("title", {}, isBlock ? scopeTitle(item.scope) : node.origin || node.name || node.op),
    isBlock ? draw("rect", { x: 4, y: 4, width: BOX.width, height: BOX.height, rx: 6, fill, stroke: edge }) : null,
    draw("rect", { class: "box", width: BOX.width, height: BOX.height, rx: portKinds.includes(node.kind) && !isBlock ? 21 : 6,
      fill, stroke: edge }),
    draw("text", { class: "op", x: 11, y: 18 }, isBlock ? cutFront(title, room) : cutEnd(title, room)),
    draw("text", { class: "name", x: 11, y: 33 }, cutFront(below, 31)),
    timeText ? draw("text", { class: "time", x: BOX.width - 10, y: 17, "text-anchor": "end" }, timeText) : null);
  }

  /** Fill and border. */
  look(item) {
    const node = nodes[item.members[0]], isBlock = item.scope >= 0;
    if (this.colour === "time" && isMeasured) {
      const time = item.members.reduce((sum, number) => sum + timeOf[number], 0);
      const most = Math.max(...this.items.map((each) => each.members.reduce((sum, n) => sum + timeOf[n], 0)), 1e-9);
      return [`hsl(var(--hot) / ${(time / most).toFixed(3)})`, "var(--moving-edge)"];
    }
    const part = this.colour === "device" || this.colour === "layout" ? this.partOf(item) : null;
    if (part !== null) {
      return [`color-mix(in srgb, var(--c${part.place}) 30%, var(--surface))`, `var(--c${part.place})`];
    }
    return isBlock ? [lookOf("block"), borderOf("block")] : [lookOf(node.kind), borderOf(node.kind)];
  }

  /** By device or layout: that of most members. */
  partOf(item) {
    const values = this.values(), counts = new Map();
    for (const number of item.members) {
      const value = nodes[number][this.colour];
      if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const [most] = [...counts].sort((a, b) => b[1] - a[1]);
    return { place: most ? Math.min(values.indexOf(most[0]), 6) : 7 };
  }

  values() {
    return [...new Set(nodes.map((node) => node[this.colour]).filter(Boolean))].sort();
  }

  legend() {
    if (this.colour === "time") {
      return legendOf([["hsl(var(--hot) / 1)", "the most time in this drawing"], ["hsl(var(--hot) / .4)", "some"],
        ["transparent", "next to none", "var(--moving-edge)"]]);
    }
    if (this.colour === "kind") {
      return legendOf(Object.entries(KINDS).filter(([kind]) => kind !== "block" || scopesOfGraph.length)
        .map(([kind, [text]]) => [lookOf(kind), text, borderOf(kind)]));
    }
    const values = this.values();
    const entries = values.slice(0, 6).map((value, place) => [`var(--c${place})`, value]);
    if (values.length > 6) entries.push(["var(--c6)", `${values.length - 6} others`]);
    return legendOf([...entries, ["var(--c7)", "none"]]);
  }

  // ---- zoom ----

  move() {
    this.layer.style.transform = `translate(${this.view.x}px,${this.view.y}px) scale(${this.view.scale})`;
    this.box.classList.toggle("far", this.view.scale < 0.55);
  }

  glide() {
    this.box.classList.add("gliding");
    clearTimeout(this.gliding);
    this.gliding = setTimeout(() => this.box.classList.remove("gliding"), 260);
    this.move();
  }

  size() {
    const size = this.box.getBoundingClientRect();
    return [size.width || 900, size.height || 500];
  }

  /** All of it if that can be read, else its beginning. */
  fit(all = false) {
    const [width, height] = this.size(), margin = 24;
    const whole = Math.min((width - 2 * margin) / this.layout.width, (height - 2 * margin) / this.layout.height, 1.1);
    const scale = all ? whole : Math.max(whole, Math.min(0.8, Math.max((width - 2 * margin) / this.layout.width, 0.5)));
    const wide = this.layout.width * scale + 2 * margin > width;
    const left = wide ? width / 2 - this.layout.x[0] * scale : (width - this.layout.width * scale) / 2;
    const top = this.layout.height * scale + 2 * margin > height ? margin : (height - this.layout.height * scale) / 2;
    this.view = { x: left, y: top, scale };
    this.glide();
  }

  zoom(factor, x, y) {
    const [width, height] = this.size();
    const [cx, cy] = [x ?? width / 2, y ?? height / 2];
    const scale = Math.min(4, Math.max(0.03, this.view.scale * factor));
    const ratio = scale / this.view.scale;
    this.view = { scale, x: cx - (cx - this.view.x) * ratio, y: cy - (cy - this.view.y) * ratio };
    this.move();
  }

  /** Move so that an item is well inside. */
  show(place) {
    const [width, height] = this.size(), { x, y, scale } = this.view;
    const [px, py] = [this.layout.x[place] * scale + x, this.layout.y[place] * scale + y];
    const [mx, my] = [Math.min(110, width / 3), Math.min(70, height / 3)];
    if (px > mx && px < width - mx && py > my && py < height - my) return;
    this.view = { scale, x: width / 2 - this.layout.x[place] * scale, y: height / 2 - this.layout.y[place] * scale };
    this.glide();
  }

  listen() {
    const pointers = new Map();
    let moved = 0, apart = 0;
    this.box.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      moved = 0;
      apart = 0;
    });
    window.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      if (pointers.size === 2) {
        const [[ax, ay], [bx, by]] = [...pointers.values()], edge = this.box.getBoundingClientRect();
        const distance = Math.hypot(ax - bx, ay - by);
        if (apart) this.zoom(distance / apart, (ax + bx) / 2 - edge.left, (ay + by) / 2 - edge.top);
        apart = distance;
        moved = 9;
        return;
      }
      moved += Math.abs(event.clientX - before[0]) + Math.abs(event.clientY - before[1]);
      if (moved < 4) return;
      this.box.classList.add("moving");
      this.view.x += event.clientX - before[0];
      this.view.y += event.clientY - before[1];
      this.move();
    });
    const end = (event) => {
      pointers.delete(event.pointerId);
      this.box.classList.remove("moving");
    };
    window.addEventListener("pointerup", end);
    window.addEventListener("pointercancel", end);
    this.box.addEventListener("wheel", (event) => {
      event.preventDefault();
      const edge = this.box.getBoundingClientRect();
      if (event.shiftKey) {
        this.view.x -= event.deltaX + event.deltaY;
        this.move();
      } else this.zoom(Math.exp(-event.deltaY / 450), event.clientX - edge.left, event.clientY - edge.top);
    }, { passive: false });
    this.box.addEventListener("click", (event) => {
      const found = event.target.closest("[data-place]");
      if (moved >= 4 || !found) return;
      this.choose(this.items[found.dataset.place].key, true);
    });
    this.box.addEventListener("dblclick", (event) => {
      const found = event.target.closest("[data-place]");
      const item = found && this.items[found.dataset.place];
      if (item && item.scope >= 0) this.toggle(item.scope, true);
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

  // ---- keys ----

  key(event) {
    const here = this.placeOfKey(this.chosen) ?? 0, [row, column] = this.rowOf(here);
    const step = (by) => this.layout.rows[row].filter((place) => place < this.items.length)[column + by];
    const next = {
      ArrowDown: () => this.edges.find(([from]) => from === here)?.[1], ArrowUp: () => this.edges.find(([, to]) => to === here)?.[0],
      ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => 0, End: () => this.items.length - 1,
    }[event.key];
    if (next) {
      const place = next();
      if (place !== undefined) this.choose(this.items[place].key, true);
    } else if ((event.key === "Enter" || event.key === " ") && this.items[here].scope >= 0) this.toggle(this.items[here].scope, true);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit(true);
    else return;
    event.preventDefault();
  }

  rowOf(place) {
    const row = this.layout.rows.findIndex((each) => each.includes(place));
    return [row, this.layout.rows[row].filter((each) => each < this.items.length).indexOf(place)];
  }

  placeOfKey(key) {
    const place = this.items.findIndex((item) => item.key === key);
    return place < 0 ? undefined : place;
  }

  // ---- choosing and searching ----

  choose(key, takesFocus) {
    this.chosen = key;
    const place = key === null ? undefined : this.placeOfKey(key);
    this.mark();
    byId("details").replaceChildren(...(place === undefined ? this.overview() : this.describe(this.items[place])));
    if (place === undefined) return;
    this.show(place);
    if (takesFocus) this.boxes[place].focus({ preventScroll: true });
  }

  /** Show a node, whatever blocks it is in. */
  reveal(number, takesFocus = true) {
    if (this.itemOf(number) !== `n${number}`) {
      chains[number].forEach((scope) => this.open.add(scope));
      this.render();
    }
    this.choose(`n${number}`, takesFocus);
  }

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.matches = words.length ? nodes.flatMap((node, number) => {
      const all = [node.op, node.name, node.origin ?? "", ...node.types, node.layout ?? "", node.device ?? ""].join(" ").toLowerCase();
      return words.every((word) => all.includes(word)) ? [number] : [];
    }) : [];
    this.match = -1;
    this.mark();
    return this.matches.length;
  }

  /** Go to the next match, or with -1 to the one before. */
  nextMatch(by = 1) {
    if (!this.matches.length) return;
    this.match = (this.match + by + this.matches.length) % this.matches.length;
    this.reveal(this.matches[this.match], false);
  }

  mark() {
    const found = new Set(this.matches.map((number) => this.placeOf[number]));
    const chosen = this.placeOfKey(this.chosen);
    this.box.classList.toggle("dim", this.matches.length > 0);
    this.boxes.forEach((box, place) => {
      box.classList.toggle("match", found.has(place));
      box.classList.toggle("chosen", place === chosen);
      box.setAttribute("tabindex", place === (chosen ?? 0) ? "0" : "-1");
    });
    this.paths.forEach((path, number) => path.classList.toggle("near", this.edges[number].slice(0, 2).includes(chosen)));
  }

  // ---- words ----

  overview() {
    const slow = nodes.map((_, number) => number).filter((number) => timeOf[number] > 0)
      .sort((a, b) => timeOf[b] - timeOf[a]).slice(0, 10);
    return [make("h3", {}, "Choose a node"),
      make("p", { class: "quiet" }, "A click shows what it computes, where it came from, its kernels and its time. " +
        "A double click on a block opens it. The wheel zooms, dragging moves."),
      ...(slow.length ? [make("h4", {}, "The slowest nodes"), make("ul", { class: "slow" }, slow.map((number) =>
        make("li", {}, this.linkTo(number), make("span", {}, millisecondsText(timeOf[number])))))] : [])];
  }

  linkTo(number) {
    return make("button", { class: "link", type: "button", onclick: () => this.reveal(number) }, titleOf(number));
  }

  describe(item) {
    return item.scope >= 0 ? this.describeBlock(item) : this.describeNode(item.members[0]);
  }

  describeBlock(item) {
    const time = item.members.reduce((sum, number) => sum + (timeOf[number] ?? 0), 0), counts = new Map();
    for (const number of item.members) counts.set(nodes[number].op, (counts.get(nodes[number].op) ?? 0) + 1);
    return [make("h3", {}, scopeTitle(item.scope)), facts([["nodes", item.members.length],
      ["time", time > 0 ? millisecondsText(time) : ""],
      ["ops", [...counts].map(([op, count]) => (count > 1 ? `${op} \u00d7${count}` : op)).join(", ")]]),
    make("p", {}, make("button", { type: "button", onclick: () => this.toggle(item.scope, true) }, "Open the block"))];
  }

  describeNode(number) {
    const node = nodes[number], types = data.graph.types;
    const edgesTo = (edges) => make("ul", {}, edges.map(([other, type]) =>
      make("li", {}, this.linkTo(other), " ", make("span", { class: "mono quiet" }, types[type]))));
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
        make("button", { class: "link", type: "button", onclick: () => this.toggle(scope, false) },
          `close ${scopesOfGraph[scope][0]}`)))));
    }
    return parts;
  }
}

const facts = (rows) => make("dl", {}, rows.filter(([, value]) => value !== undefined && value !== "").flatMap(
  ([name, value]) => [make("dt", {}, name), make("dd", { style: "white-space:pre-line" }, String(value))]));
