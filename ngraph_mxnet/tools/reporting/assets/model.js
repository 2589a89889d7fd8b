// What the page tells of nodes: of each its time, kernel calls, neighbours and blocks.

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
const totalTime = (members) => members.reduce((sum, number) => sum + (timeOf[number] ?? 0), 0);
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
