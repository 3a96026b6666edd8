/* What a picture is made of: a bitmap of weights, labels that fit, and a canvas at the screen's true resolution. */

function visible(token) {
  const shown = token.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/[\u0000-\u001f\u007f]/g, "\ufffd");
  return shown.trim() === "" ? "␣".repeat(Math.max(1, shown.length)) : shown;
}

/* A long map is shrunk to at most `limit` pixels a side by keeping the strongest weight of each block. */
function bitmap(map, ramp, limit = Infinity) {
  const step = Math.max(1, Math.ceil(Math.max(map.rows, map.columns) / limit));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(map.columns / step);
  canvas.height = Math.ceil(map.rows / step);
  const strongest = new Float32Array(canvas.width * canvas.height);
  for (let row = 0, index = 0; row < map.rows; row++) {
    const start = Math.floor(row / step) * canvas.width;
    for (let column = 0; column < map.columns; column++, index++) {
      const block = start + Math.floor(column / step);
      if (map.weights[index] > strongest[block]) strongest[block] = map.weights[index];
    }
  }
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  strongest.forEach((weight, index) => image.data.set([...colourOf(ramp, weight), 255], 4 * index));
  context.putImageData(image, 0, 0);
  return canvas;
}

function sharpContext(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / Math.max(width, height));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

function fitted(context, token, width) {
  let text = visible(token);
  if (context.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && context.measureText(text).width > width) {
    letters.pop();
    text = `${letters.join("")}…`;
  }
  return text;
}

/* Where everything stands in the large matrix, for the room there is. Wide cells have slanted labels, narrow ones upright. */
function matrixLayout(context, map, family, room, height) {
  context.font = `600 14px ${family}`;
  const widest = (tokens) => {
    const limit = room < 500 ? 92 : 132;
    return tokens.reduce((most, token) => Math.max(most, context.measureText(fitted(context, token, limit)).width), 0);
  };
  const rowLabel = widest(map.queries);
  const columnLabel = widest(map.keys);
  const most = Math.max(map.rows, map.columns);
  const smallest = most <= 128 ? 11 : Math.max(2, Math.floor(1280 / most));
  const slantedRoom = room - rowLabel - 10 - columnLabel * Math.SQRT1_2;
  const wanted = Math.min(Math.floor(slantedRoom / map.columns), Math.max(20, Math.floor(height / map.rows)), 48);
  const slanted = wanted >= 18;
  const cell = slanted ? wanted : Math.max(smallest, Math.min(17, Math.floor((room - rowLabel - 14) / map.columns)));
  const size = slanted ? 14 : Math.min(12, Math.max(10, cell - 1));
  const left = Math.ceil((rowLabel * size) / 14) + 12;
  const label = Math.ceil((columnLabel * size) / 14) + 2;
  const reach = slanted ? label * Math.SQRT1_2 : 0;
  return {
    left, cell, size, label,
    angle: slanted ? -Math.PI / 4 : -Math.PI / 2,
    top: Math.ceil(slanted ? reach + 16 : label + 10),
    every: Math.ceil(10 / cell),
    width: left + cell * map.columns + Math.ceil(Math.max(4, reach - cell / 2 + 12)),
    height: Math.ceil(slanted ? reach + 16 : label + 10) + cell * map.rows + 4,
  };
}

function drawLabel(context, token, place, theme, strong) {
  context.save();
  context.translate(place.x, place.y);
  context.rotate(place.angle);
  context.textAlign = place.align;
  context.textBaseline = "middle";
  context.font = `${strong ? "600 " : ""}${place.size}px ${theme.family}`;
  const text = fitted(context, token, place.limit);
  if (strong && place.crowded) {
    const width = context.measureText(text).width;
    context.fillStyle = theme.paper;
    context.fillRect(place.align === "right" ? -width - 2 : -2, -8, width + 4, 16);
  }
  context.fillStyle = strong ? theme.accent : theme.ink;
  context.fillText(text, 0, 0);
  context.restore();
}

function drawMatrix(canvas, map, picture, layout, cell, theme) {
  const context = sharpContext(canvas, layout.width, layout.height);
  const { left, top, cell: size } = layout;
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, left, top, size * map.columns, size * map.rows);
  if (size >= 14) {
    context.fillStyle = theme.paper;
    for (let column = 1; column < map.columns; column++) context.fillRect(left + column * size - 0.5, top, 1, size * map.rows);
    for (let row = 1; row < map.rows; row++) context.fillRect(left, top + row * size - 0.5, size * map.columns, 1);
  }
  const common = { size: layout.size, crowded: layout.every > 1 };
  const row = (index, strong) => {
    const place = { ...common, x: left - 8, y: top + (index + 0.5) * size, angle: 0, align: "right", limit: left - 10 };
    drawLabel(context, map.queries[index], place, theme, strong);
  };
  const column = (index, strong) => {
    const x = left + (index + 0.5) * size;
    const place = { ...common, x, y: top - 7, angle: layout.angle, align: "left", limit: layout.label };
    drawLabel(context, map.keys[index], place, theme, strong);
  };
  for (let index = 0; index < map.rows; index += layout.every) if (index !== cell.row) row(index, false);
  for (let index = 0; index < map.columns; index += layout.every) if (index !== cell.column) column(index, false);
  row(cell.row, true);
  column(cell.column, true);
  const x = left + cell.column * size, y = top + cell.row * size;
  context.lineWidth = 2;
  context.strokeStyle = theme.paper;
  context.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
  context.strokeStyle = theme.accent;
  context.strokeRect(x - 2, y - 2, size + 4, size + 4);
}

/* Lines between two columns of tokens: the heavier the weight, the more opaque; `chosen` keeps one token's lines alone. */
function drawLines(canvas, map, width, height, chosen, theme) {
  const context = sharpContext(canvas, width, height);
  context.strokeStyle = theme.accent;
  context.lineCap = "round";
  for (let row = 0; row < map.rows; row++) {
    if (chosen?.side === "queries" && chosen.index !== row) continue;
    const from = ((row + 0.5) * height) / map.rows;
    for (let column = 0; column < map.columns; column++) {
      if (chosen?.side === "keys" && chosen.index !== column) continue;
      const weight = map.weights[row * map.columns + column];
      if (weight < 0.01) continue;
      const to = ((column + 0.5) * height) / map.columns;
      context.globalAlpha = weight;
      context.lineWidth = 1 + 2.5 * weight;
      context.beginPath();
      context.moveTo(3, from);
      context.bezierCurveTo(width * 0.4, from, width * 0.6, to, width - 3, to);
      context.stroke();
    }
  }
}
