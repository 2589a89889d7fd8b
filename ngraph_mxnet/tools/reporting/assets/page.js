// Puts the page together: heading, tabs, tools.

const TABS = { graph: "Graph", placement: "Placement", passes: "Passes", kernels: "Kernels", memory: "Memory",
  timeline: "Timeline", accuracy: "Accuracy" };
const FILL = { placement: fillPlacement, passes: fillPasses, kernels: fillKernels, memory: fillMemory,
  timeline: fillTimeline, accuracy: fillAccuracy };
const filledTabs = new Set();

function openTab(name, takesFocus = false) {
  for (const each of Object.keys(TABS)) {
    byId(each).hidden = each !== name;
    const tab = byId(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.setAttribute("tabindex", each === name ? "0" : "-1");
    if (each === name && takesFocus) tab.focus();
    if (each === name) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${name}`);
  if (FILL[name] && !filledTabs.has(name)) {
    filledTabs.add(name);
    FILL[name](byId(name));
  }
  history.replaceState(null, "", `#tab=${name}`);  // no section's id, to which the browser would scroll
}

byId("title").textContent = data.title;
byId("headline").textContent = [
  ...data.facts.filter(([name]) => ["backend", "nodes", "work"].includes(name)).map(([name, text]) => (name === "nodes" ? `nodes: ${text}` : text)),
  ...(isMeasured ? [`${millisecondsText(data.kernels.wall_ms)} a call on ${counted(data.kernels.threads, "thread")}`] : []),
].join(" \u00b7 ");
byId("facts").replaceWith(filled(facts([...data.facts, ["made by", `ngraph_mxnet ${data.version}`]]), { id: "facts" }, []));
byId("notes").hidden = data.notes.length === 0;
byId("notes").append(...data.notes.map((note) => make("li", {}, note)));

const names = Object.keys(TABS);
byId("tabs").append(...names.map((name) => make("button", { id: `tab-${name}`, role: "tab", type: "button",
  "aria-controls": "panel", onclick: () => openTab(name) }, TABS[name])));
byId("tabs").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const here = names.findIndex((name) => byId(`tab-${name}`) === document.activeElement);
  if (by && here >= 0) openTab(names[(here + by + names.length) % names.length], true);
});

for (const [value, text] of [["kind", "by kind"], ["time", "by time"], ["device", "by device"], ["layout", "by layout"]]) {
  const isKnown = value === "kind" || (value === "time" ? isMeasured : nodes.some((node) => node[value]));
  if (isKnown) byId("colour").append(make("option", { value }, text));
}

const view = new GraphView(byId("drawing"));
const recolour = () => {
  view.colour = byId("colour").value;
  view.render();
  byId("legend").replaceChildren(...legendBy(view.colour));
};
recolour();
view.choose(null, false);
byId("colour").addEventListener("change", recolour);
byId("collapse").addEventListener("click", () => view.setAll(false));
byId("expand").addEventListener("click", () => view.setAll(true));
byId("collapse").hidden = byId("expand").hidden = scopesOfGraph.length === 0;
byId("in").addEventListener("click", () => view.viewport.zoom(1.25));
byId("out").addEventListener("click", () => view.viewport.zoom(0.8));
byId("fit").addEventListener("click", () => view.viewport.fit(true));

const search = byId("search");
const tellMatches = () => {
  const total = view.matches.length;
  byId("matches").textContent = !search.value.trim() ? "" : !total ? "nothing found" :
    view.match < 0 ? `${total} found: Enter goes to each` : `${view.match + 1} of ${total}`;
};
search.addEventListener("input", () => {
  view.search(search.value);
  tellMatches();
});
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  view.nextMatch(event.shiftKey ? -1 : 1);
  tellMatches();
});
document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName) && document.activeElement.type !== "range";
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    openTab("graph");
    search.focus();
    search.select();
  } else if (event.key === "Escape" && !byId("graph").hidden) {
    if (search.value) {
      search.value = "";
      view.search("");
      tellMatches();
    } else view.choose(null, false);
  }
});

const wanted = location.hash.replace("#tab=", "");
openTab(names.includes(wanted) ? wanted : "graph");
document.documentElement.dataset.ready = String(Math.round(performance.now()));
