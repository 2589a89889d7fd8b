// The graph: blocks that open and close, keys, search.

class GraphView {
  constructor(box) {
    this.box = box;
    this.viewport = new Viewport(box);
    this.open = new Set();
    this.matches = [];
    this.match = -1;
    this.chosen = null;
    this.colour = "kind";
    this.openSome(40);
    this.listen();
    this.render();
    this.viewport.fit();
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
    this.viewport.fit();
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
    this.viewport.take(layer, this.layout);
    this.mark();
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
    const [fill, edge] = coloursOf(item, this.items, this.colour);
    const time = totalTime(item.members);
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

  // ---- pointer and keys ----

  listen() {
    const itemAt = (event) => this.items[event.target.closest("[data-place]")?.dataset.place];
    this.box.addEventListener("click", (event) => {
      const item = itemAt(event);
      if (item && !this.viewport.isDragged) this.choose(item.key, true);
    });
    this.box.addEventListener("dblclick", (event) => {
      const item = itemAt(event);
      if (item && item.scope >= 0) this.toggle(item.scope, true);
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

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
    else if (event.key === "+" || event.key === "=") this.viewport.zoom(1.25);
    else if (event.key === "-") this.viewport.zoom(0.8);
    else if (event.key === "0") this.viewport.fit(true);
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
    byId("details").replaceChildren(...(place === undefined ? overview(this) : describe(this.items[place], this)));
    if (place === undefined) return;
    this.viewport.show(place);
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
}
