// Pictures over levels and over time.

/** Round steps between 0 and a number. */
function ticks(most, about) {
  const raw = most / about || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** A chart's frame: the lines of a grid with their texts. */
function frame(width, height, margin, across, down) {
  const right = width - margin.right, bottom = height - margin.bottom;
  const lines = down.flatMap(([y, text]) => [
    draw("line", { class: "grid", x1: margin.left, x2: right, y1: y, y2: y }),
    draw("text", { x: margin.left - 8, y: y + 4, "text-anchor": "end" }, text)]);
  const marks = across.flatMap(([x, text]) => [
    draw("line", { class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 5 }),
    draw("text", { x, y: bottom + 18, "text-anchor": "middle" }, text)]);
  return [...lines, ...marks];
}

/** Buffers as rectangles: levels to the right, addresses upwards. */
function memoryChart(memory, width, isOver) {
  const height = 400, margin = { left: 72, right: 16, top: 14, bottom: 44 };
  const x = (level) => margin.left + (level / memory.levels) * (width - margin.left - margin.right);
  const y = (address) => height - margin.bottom - (address / memory.arena) * (height - margin.top - margin.bottom);
  const pieces = memory.buffers.map(([offset, bytes, first, last, node]) => {
    const kind = node >= 0 ? nodes[node].kind : "moving";
    const text = `${node >= 0 ? `${nodes[node].op} ${nodes[node].name}` : "no node"}: ${bytesText(bytes)} at ` +
      `${bytesText(offset)}, levels ${first} to ${last}`;
    return draw("rect", { class: "piece", x: x(first), width: Math.max(x(last + 1) - x(first), 1), y: y(offset + bytes),
      height: Math.max(y(offset) - y(offset + bytes), 0.7), fill: borderOf(kind), "data-node": node >= 0 ? node : null,
    }, draw("title", {}, text));
  });
  const chart = draw("svg", { width, height, role: "img", "aria-label":
    `${counted(memory.buffers.length, "buffer")} in ${bytesText(memory.arena)} over ${counted(memory.levels, "level")}` },
  ...frame(width, height, margin, ticks(memory.levels, width / 110).map((level) => [x(level), String(level)]),
    ticks(memory.arena, 6).map((address) => [y(address), bytesText(address)])), ...pieces,
  draw("text", { x: (margin.left + width) / 2, y: height - 6, "text-anchor": "middle" }, "level"));
  chart.addEventListener("click", (event) => isOver(event.target.closest("[data-node]")?.dataset.node));
  return chart;
}

/** Spans in lanes. `colourOf`: the place of a kernel's colour. */
function timelineChart(timeline, width, colourOf, isOver) {
  const margin = { left: 20 + 7 * Math.max(8, ...timeline.lanes.map((name) => name.length)), right: 16, top: 10, bottom: 40 }, lane = 34;
  const height = margin.top + timeline.lanes.length * lane + margin.bottom;
  const total = Math.max(...timeline.rows.map(([, begin, duration]) => begin + duration), 1e-3);
  const x = (time) => margin.left + (time / total) * (width - margin.left - margin.right);
  const pieces = timeline.rows.filter((row) => row[5] !== "call").map(([place, begin, duration, name, origin]) => {
    const node = nodesByKey.get(timeline.texts[origin])?.[0];
    return draw("rect", { class: "piece", x: x(begin).toFixed(2), width: Math.max(x(begin + duration) - x(begin), 0.4).toFixed(2),
      y: margin.top + place * lane + 3, height: lane - 6, fill: `var(--c${colourOf(name)})`, "data-node": node,
    }, draw("title", {}, `${timeline.texts[name]}: ${secondsText(duration / 1e6)}, from ${secondsText(begin / 1e6)} on\n` +
      timeline.texts[origin]));
  });
  const chart = draw("svg", { width, height, role: "img", "aria-label":
    `${counted(pieces.length, "span")} in ${counted(timeline.lanes.length, "lane")} over ${secondsText(total / 1e6)}` },
  ...frame(width, height, margin, ticks(total, width / 130).map((time) => [x(time), time ? secondsText(time / 1e6) : "0"]),
    timeline.lanes.map((name, place) => [margin.top + place * lane + lane / 2, name])), ...pieces);
  chart.addEventListener("click", (event) => isOver(event.target.closest("[data-node]")?.dataset.node));
  return chart;
}
