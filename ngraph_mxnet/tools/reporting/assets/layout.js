// A layered drawing: each item below what it reads, rows ordered so that few edges cross.

const BOX = { width: 226, height: 42, gapX: 28, gapY: 40, passing: 14 };
const ROUNDS = 6;

/** Items are numbered in an order in which most edges go forward; edges: [from, to]. Gives x and y of the middle of each
 *  item, the points of each edge, and the size. */
function arrange(count, edges) {
  const depth = new Array(count).fill(0);
  const forward = edges.map(([from, to]) => (from < to ? [from, to] : [to, from]));
  for (const [from, to] of [...forward].sort((a, b) => a[0] - b[0])) depth[to] = Math.max(depth[to], depth[from] + 1);
  const rows = Array.from({ length: 1 + Math.max(-1, ...depth) }, () => []);
  for (let item = 0; item < count; item++) rows[depth[item]].push(item);
  const above = Array.from({ length: count }, () => []), below = Array.from({ length: count }, () => []);
  const passing = new Map();
  let places = count;
  const paths = forward.map(([from, to]) => {
    const path = [from];
    for (let row = depth[from] + 1; row < depth[to]; row++) {
      const key = `${from} ${row}`;
      if (!passing.has(key)) {
        passing.set(key, places);
        rows[row].push(places++);
        above.push([]);
        below.push([]);
      }
      path.push(passing.get(key));
    }
    return [...path, to];
  });
  for (const path of paths) {
    for (let i = 1; i < path.length; i++) {
      if (above[path[i]].includes(path[i - 1])) continue;
      above[path[i]].push(path[i - 1]);
      below[path[i - 1]].push(path[i]);
    }
  }
  const widthOf = (place) => (place < count ? BOX.width : BOX.passing);
  const x = placed(rows, above, below, widthOf);
  const low = Math.min(0, ...rows.flat().map((place) => x[place] - widthOf(place) / 2));
  const high = Math.max(0, ...rows.flat().map((place) => x[place] + widthOf(place) / 2));
  const y = new Array(places);
  rows.forEach((row, number) => row.forEach((place) => (y[place] = number * (BOX.height + BOX.gapY) + BOX.height / 2)));
  for (let place = 0; place < places; place++) x[place] -= low;
  return {
    x, y, rows, width: high - low, height: Math.max(0, rows.length * (BOX.height + BOX.gapY) - BOX.gapY),
    points: paths.map((path) => path.map((place) => [x[place], y[place]])),
  };
}

/** The order within rows by the mean of neighbours, then places as near to that mean as the widths let them be. */
function placed(rows, above, below, widthOf) {
  const x = [];
  for (const row of rows) row.forEach((place, i) => (x[place] = (i - (row.length - 1) / 2) * BOX.width));
  const mean = (places, otherwise) => (places.length ? places.reduce((sum, p) => sum + x[p], 0) / places.length : otherwise);
  for (let round = 0; round < 2 * ROUNDS; round++) {
    const down = round % 2 === 0, near = down ? above : below, ordering = round < ROUNDS;
    for (const row of down ? rows : [...rows].reverse()) {
      const wanted = new Map(row.map((place) => [place, mean(near[place], x[place])]));
      if (ordering) row.sort((a, b) => wanted.get(a) - wanted.get(b));
      spread(row, wanted, widthOf).forEach((at, i) => (x[row[i]] = at));
    }
  }
  return x;
}

/** Places in order, apart by their widths, with the least sum of squared distances from what is wanted: neighbours that
 *  are too near are pooled, and share the mean of what they want. */
function spread(row, wanted, widthOf) {
  const offsets = [0];
  for (let i = 1; i < row.length; i++) {
    offsets.push(offsets[i - 1] + (widthOf(row[i - 1]) + widthOf(row[i])) / 2 + BOX.gapX);
  }
  const pools = [];
  row.forEach((place, i) => {
    pools.push({ sum: wanted.get(place) - offsets[i], size: 1 });
    while (pools.length > 1) {
      const last = pools[pools.length - 1], before = pools[pools.length - 2];
      if (before.sum / before.size <= last.sum / last.size) break;
      pools.pop();
      before.sum += last.sum;
      before.size += last.size;
    }
  });
  return pools.flatMap((pool) => new Array(pool.size).fill(pool.sum / pool.size)).map((at, i) => at + offsets[i]);
}
