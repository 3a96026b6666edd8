/* The page itself: what is chosen, and every control that changes it. */

const data = JSON.parse(document.getElementById("data").textContent);
const kindNames = ["encoder", "decoder", "cross"];
const MEAN = -1;
const element = (id) => document.getElementById(id);
const night = window.matchMedia("(prefers-color-scheme: dark)");
const state = { kind: "", layer: 0, head: MEAN, view: "matrix", row: 0, column: 0, pinned: null, hovered: null };
let theme, ramp, map, picture, layout;
let decoded = new Map();

/* Who looks, and at whom. */
const captions = {
  encoder: ["a source token", "the source tokens it looks at"],
  decoder: ["a token just read", "itself and the tokens before it"],
  cross: ["the token about to be written", "the source tokens it looks at"],
};

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/* Weights arrive as base64 of round(levels * sqrt(weight)), one byte each for 255 levels, else two, low byte first. */
function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const wide = data.levels > 255;
  const weights = new Float32Array(wide ? bytes.length / 2 : bytes.length);
  for (let index = 0; index < weights.length; index++) {
    const code = wide ? bytes[2 * index] | (bytes[2 * index + 1] << 8) : bytes[index];
    weights[index] = (code / data.levels) ** 2;
  }
  return weights;
}

function weightsOf(layer, head) {
  const name = `${layer} ${head}`;
  if (!decoded.has(name)) {
    const heads = data.kinds[state.kind].weights[layer];
    if (head === MEAN) {
      const mean = new Float32Array(weightsOf(layer, 0).length);
      heads.forEach((_, index) => weightsOf(layer, index).forEach((weight, cell) => { mean[cell] += weight / heads.length; }));
      decoded.set(name, mean);
    } else {
      decoded.set(name, decode(heads[head]));
    }
  }
  return decoded.get(name);
}

function mapOf(layer, head) {
  const { queries, keys } = data.kinds[state.kind];
  return { queries, keys, rows: queries.length, columns: keys.length, weights: weightsOf(layer, head) };
}

function readTheme() {
  const style = getComputedStyle(document.body);
  const colour = (name) => style.getPropertyValue(name).trim();
  theme = { family: style.fontFamily, paper: colour("--paper"), ink: colour("--ink"), accent: colour("--accent") };
  ramp = makeRamp(night.matches);
  const legend = element("ramp").getContext("2d");
  ramp.forEach((rgb, index) => { legend.fillStyle = `rgb(${rgb})`; legend.fillRect(index, 0, 1, 1); });
}

const headName = (head) => (head === MEAN ? "mean of heads" : `head ${head + 1}`);
const shape = () => ({ layers: data.kinds[state.kind].weights.length, heads: data.kinds[state.kind].weights[0].length });

/* The overview: one small map for every layer and head. */

function drawOverview() {
  const { layers, heads } = shape();
  const overview = element("overview");
  overview.replaceChildren(make("span"));
  overview.style.gridTemplateColumns = `max-content repeat(${heads + 1}, minmax(14px, 56px))`;
  for (let head = MEAN; head < heads; head++) {
    overview.append(make("span", { className: "name", textContent: head === MEAN ? "all" : head + 1 }));
  }
  for (let layer = 0; layer < layers; layer++) {
    overview.append(make("span", { className: "name", textContent: layer + 1 }));
    for (let head = MEAN; head < heads; head++) {
      const title = `layer ${layer + 1}, ${headName(head)}`;
      const cell = make("button", { type: "button", title }, bitmap(mapOf(layer, head), ramp, 64));
      cell.setAttribute("role", "radio");
      cell.setAttribute("aria-label", title);
      Object.assign(cell.dataset, { layer, head });
      cell.addEventListener("click", () => choose({ layer, head }));
      overview.append(cell);
    }
  }
}

function markOverview(focus) {
  for (const cell of element("overview").querySelectorAll("button")) {
    const chosen = Number(cell.dataset.layer) === state.layer && Number(cell.dataset.head) === state.head;
    cell.setAttribute("aria-checked", chosen);
    cell.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) cell.focus();
  }
}

/* The two views. */

function redrawMatrix() {
  drawMatrix(element("matrix"), map, picture, layout, state, theme);
}

function arrangeMatrix() {
  const context = element("matrix").getContext("2d");
  layout = matrixLayout(context, map, theme.family, element("panel").clientWidth, window.innerHeight - 400);
  redrawMatrix();
}

function arrangeLines() {
  const most = Math.max(map.rows, map.columns);
  const height = most > 80 ? 18 : most > 30 ? 22 : 30;
  for (const side of ["queries", "keys"]) {
    element(side).style.fontSize = most > 80 ? "12px" : "15px";
    element(side).replaceChildren(...map[side].map((token, index) => {
      const button = make("button", { type: "button", tabIndex: index ? -1 : 0 }, make("bdi", { textContent: visible(token) }));
      button.style.height = `${height}px`;
      button.addEventListener("click", () => pin(side, index));
      button.addEventListener("pointerenter", () => hover({ side, index }));
      button.addEventListener("pointerleave", () => hover(null));
      return button;
    }));
  }
  element("lines-view").style.height = `${most * height}px`;
  redrawLines();
}

function redrawLines() {
  const chosen = state.pinned ?? state.hovered;
  const height = element("lines-view").clientHeight;
  const canvas = element("lines");
  canvas.style.width = "100%";
  drawLines(canvas, map, canvas.clientWidth, height, chosen, theme);
  canvas.style.width = "100%";
  for (const side of ["queries", "keys"]) {
    Array.from(element(side).children).forEach((button, index) => {
      const cell = side === "keys" ? [chosen?.index, index] : [index, chosen?.index];
      const weight = chosen && chosen.side !== side ? map.weights[cell[0] * map.columns + cell[1]] : 0;
      button.style.setProperty("--weight", weight);
      if (weight >= 0.005) button.dataset.shown = weight.toFixed(2);
      else delete button.dataset.shown;
      button.setAttribute("aria-pressed", chosen === state.pinned && chosen?.side === side && chosen.index === index);
    });
  }
}

function hover(token) {
  state.hovered = token;
  if (!state.pinned) redrawLines();
}

function pin(side, index) {
  state.pinned = state.pinned?.side === side && state.pinned.index === index ? null : { side, index };
  if (state.pinned) {
    if (side === "queries") Object.assign(state, { row: index, column: strongestColumn(index) });
    else Object.assign(state, { row: strongestRow(index), column: index });
    read();
  }
  redrawLines();
}

/* What the chosen cell says. */

const quoted = (token) => make("q", { textContent: visible(token) });

function read() {
  const weight = map.weights[state.row * map.columns + state.column];
  let detail = `layer ${state.layer + 1}, ${headName(state.head)}`;
  if (state.kind === "cross") detail += `, after reading ‘${visible(data.read[state.row])}’`;
  element("reading").replaceChildren(
    quoted(map.queries[state.row]), " → ", quoted(map.keys[state.column]),
    `: ${weight.toFixed(3)}`, make("small", { textContent: detail }),
  );
}

function strongest(count, weightAt) {
  let best = 0;
  for (let index = 1; index < count; index++) if (weightAt(index) > weightAt(best)) best = index;
  return best;
}
const strongestColumn = (row) => strongest(map.columns, (column) => map.weights[row * map.columns + column]);
const strongestRow = (column) => strongest(map.rows, (row) => map.weights[row * map.columns + column]);

function moveTo(row, column) {
  state.row = Math.min(map.rows - 1, Math.max(0, row));
  state.column = Math.min(map.columns - 1, Math.max(0, column));
  redrawMatrix();
  read();
}

/* Choosing: every change of what is shown goes through here. */

function show() {
  map = mapOf(state.layer, state.head);
  picture = bitmap(map, ramp);
  element("matrix-view").hidden = state.view !== "matrix";
  element("lines-view").hidden = state.view !== "lines";
  if (state.view === "matrix") arrangeMatrix();
  else arrangeLines();
  const place = `${state.kind} attention, layer ${state.layer + 1}, ${headName(state.head)}`;
  element("matrix").setAttribute("aria-label", `${place}; arrow keys move from cell to cell`);
  const [looking, seen] = captions[state.kind];
  const [first, second] = state.view === "matrix" ? ["Rows", "Columns"] : ["Left", "Right"];
  element("caption").textContent = `${first}: ${looking}. ${second}: ${seen}.`;
  element("layer").value = state.layer;
  element("head").value = state.head;
  for (const input of document.querySelectorAll("#controls input")) input.checked = state[input.name] === input.value;
  read();
}

function choose(change, focus = false) {
  const kindChanged = change.kind !== undefined && change.kind !== state.kind;
  Object.assign(state, change);
  if (kindChanged) {
    decoded = new Map();
    const { layers, heads } = shape();
    state.pinned = state.hovered = null;
    state.layer = Math.min(state.layer, layers - 1);
    state.head = Math.min(state.head, heads - 1);
    const option = (value, textContent) => make("option", { value, textContent });
    element("layer").replaceChildren(...Array.from({ length: layers }, (_, layer) => option(layer, layer + 1)));
    element("head").replaceChildren(option(MEAN, "mean"), ...Array.from({ length: heads }, (_, head) => option(head, head + 1)));
    drawOverview();
    map = mapOf(state.layer, state.head);
    state.row = 0;
    state.column = strongestColumn(0);
  }
  show();
  markOverview(focus);
}

function step(name, by) {
  const { layers, heads } = shape();
  const [first, count] = name === "layer" ? [0, layers] : [MEAN, heads + 1];
  choose({ [name]: ((state[name] - first + by + count) % count) + first }, document.activeElement?.closest("#overview") != null);
}

/* Controls. */

function segments(id, name, values, enabled) {
  const row = make("div");
  for (const value of values) {
    const input = make("input", { type: "radio", name, value, disabled: !enabled(value) });
    input.addEventListener("change", () => choose({ [name]: value }));
    row.append(make("label", {}, input, make("span", { textContent: value[0].toUpperCase() + value.slice(1) })));
  }
  element(id).append(row);
}

const arrows = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function moveFocus(column, [down, across]) {
  const buttons = Array.from(column.children);
  const here = buttons.indexOf(document.activeElement);
  const other = across ? Array.from(element(across < 0 ? "queries" : "keys").children) : buttons;
  const next = other[Math.min(other.length - 1, Math.max(0, here + down))];
  other.forEach((button) => { button.tabIndex = button === next ? 0 : -1; });
  next.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const arrow = arrows[event.key];
  const focused = event.target;
  if (arrow && focused === element("matrix")) moveTo(state.row + arrow[0], state.column + arrow[1]);
  else if (arrow && focused.closest?.("#overview")) { if (arrow[0]) step("layer", arrow[0]); else step("head", arrow[1]); }
  else if (arrow && focused.closest?.(".column")) moveFocus(focused.closest(".column"), arrow);
  else if (focused.tagName === "SELECT") return;
  else if (event.key === "[" || event.key === "]") step("layer", event.key === "[" ? -1 : 1);
  else if (event.key === "," || event.key === ".") step("head", event.key === "," ? -1 : 1);
  else if (event.key === "v") choose({ view: state.view === "matrix" ? "lines" : "matrix" });
  else if (event.key === "Escape" && state.pinned) pin(state.pinned.side, state.pinned.index);
  else if (data.kinds[kindNames[Number(event.key) - 1]]) choose({ kind: kindNames[Number(event.key) - 1] });
  else return;
  event.preventDefault();
}

function pointAt(event) {
  const row = Math.floor((event.offsetY - layout.top) / layout.cell);
  const column = Math.floor((event.offsetX - layout.left) / layout.cell);
  if (row >= 0 && column >= 0 && row < map.rows && column < map.columns) moveTo(row, column);
}

function start() {
  element("sentence").textContent = data.sentence;
  element("translation").textContent = data.translation;
  document.querySelector(".pair").classList.toggle("long", data.sentence.length > 200);
  document.title = `${data.sentence} → ${data.translation}`;
  segments("kinds", "kind", kindNames, (kind) => kind in data.kinds);
  segments("views", "view", ["matrix", "lines"], () => true);
  for (const weight of [0, 0.05, 0.25, 0.5, 1]) {
    const tick = make("span", { textContent: weight });
    tick.style.left = `${100 * Math.sqrt(weight)}%`;
    element("ticks").append(tick);
  }
  for (const name of ["layer", "head"]) {
    element(name).addEventListener("change", () => choose({ [name]: Number(element(name).value) }));
  }
  element("matrix").addEventListener("pointermove", pointAt);
  element("matrix").addEventListener("pointerdown", pointAt);
  document.addEventListener("keydown", onKey);
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("resize", () => { if (state.view === "matrix") arrangeMatrix(); else redrawLines(); });
  night.addEventListener("change", () => { readTheme(); drawOverview(); show(); markOverview(); });
  readTheme();
  const kind = kindNames.findLast((name) => name in data.kinds);
  choose({ kind, layer: data.kinds[kind].weights.length - 1 });
  document.body.dataset.ready = "yes";
}

start();
