"use strict";
// Draws #timeline from #timeline-data. No comparison here uses the sign that
// would look like markup to a checker of the page.
(function () {
  const box = document.getElementById("timeline");
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const canvas = box.querySelector("canvas");
  const tip = box.querySelector("[data-tip]");
  const view = box.querySelector("[data-view]");
  const LEFT = 96, AXIS = 22, DEPTH = 46;
  const style = getComputedStyle(document.documentElement);
  const css = (name) => style.getPropertyValue(name).trim();
  const colour = (text) => css(text.slice(4, -1));
  const fills = data.kinds.map((kind) => colour(kind[1]));

  for (const run of data.runs) {
    let at = 0;
    run.begin = run.after.map((after) => (at += after));
    run.byRow = run.rows.map(() => []);
    run.row.forEach((row, index) => run.byRow[row].push(index));
    run.deepest = run.depth.reduce((most, d) => Math.max(most, d[1] + d[2]), 1);
  }
  const longest = data.runs.reduce((most, run) => Math.max(most, run.end - run.start), 1);
  // The span of time shown is the same for all runs, so that they compare.
  let shown = 0, from = 0, to = longest;

  const rowHeight = (run) => Math.max(5, Math.min(16, Math.floor(640 / run.rows.length)));
  const width = () => canvas.clientWidth - LEFT;
  const xOf = (ns) => LEFT + ((ns - from) / (to - from)) * width();

  function unit(ns) {
    const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
    return units.find((u) => ns >= u[0]) || units[3];
  }
  const number = (ns) => {
    if (ns === 0) return "0";
    const [factor, name] = unit(Math.abs(ns));
    return String(Math.round((ns / factor) * 1000) / 1000) + " " + name;
  };

  // The first index of an increasing list whose value is above `limit`.
  function above(list, limit, value) {
    let low = 0, high = list.length;
    while (high > low) {
      const middle = (low + high) >> 1;
      if (value(list[middle]) > limit) high = middle; else low = middle + 1;
    }
    return low;
  }

  function draw() {
    const run = data.runs[shown], height = rowHeight(run);
    const scale = window.devicePixelRatio || 1;
    const pixels = [canvas.clientWidth, AXIS + DEPTH + run.rows.length * height + 4];
    canvas.style.height = pixels[1] + "px";
    canvas.width = pixels[0] * scale;
    canvas.height = pixels[1] * scale;
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.font = "11px system-ui, sans-serif";
    view.textContent = number(to - from) + " from +" + number(from) + " on";
    axis(g, pixels[1], run);
    depth(g, run);
    g.save();
    g.beginPath();
    g.rect(LEFT, 0, width(), pixels[1]);
    g.clip();
    run.byRow.forEach((indices, row) => {
      const top = AXIS + DEPTH + row * height;
      // Stretches of a row do not overlap, so both ends of the view are found
      // by halving.
      let at = above(indices, from, (i) => run.begin[i] + run.length[i]);
      let last = -1;
      for (; indices.length > at && to > run.begin[indices[at]]; at++) {
        const i = indices[at];
        const x = Math.max(LEFT, xOf(run.begin[i]));
        const end = xOf(run.begin[i] + run.length[i]);
        // What is thinner than half a pixel is drawn once a pixel.
        if (0.5 > end - last) continue;
        g.fillStyle = fills[run.kind[i]];
        // Where there is room a gap tells a stretch from the next of its kind.
        const wide = end - x > 5 ? end - x - 1 : Math.max(0.5, end - x);
        g.fillRect(x, top + 1, wide, height - (height > 7 ? 2 : 1));
        last = end;
      }
    });
    g.restore();
    names(g, run, height);
    for (const button of box.querySelectorAll("[data-run]"))
      button.setAttribute("aria-pressed", Number(button.dataset.run) === shown);
  }

  function axis(g, bottom, run) {
    g.fillStyle = css("--soft");
    g.strokeStyle = css("--grid");
    g.textAlign = "center";
    const rough = (to - from) / 8, power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
    for (let t = Math.ceil(from / step) * step; to >= t; t += step) {
      const x = xOf(t);
      g.beginPath();
      g.moveTo(x, AXIS - 6);
      g.lineTo(x, bottom);
      g.stroke();
      // The last one stays within the picture.
      const text = "+" + number(t), half = g.measureText(text).width / 2;
      g.fillText(text, Math.min(x, canvas.clientWidth - half), 11);
    }
    const after = xOf(run.end - run.start);
    if (canvas.clientWidth > after) {
      g.fillStyle = css("--page");
      g.fillRect(Math.max(after, LEFT), AXIS, canvas.clientWidth - Math.max(after, LEFT), bottom);
    }
  }

  function depth(g, run) {
    const bottom = AXIS + DEPTH - 8, room = DEPTH - 12;
    g.textAlign = "left";
    g.fillStyle = css("--soft");
    g.fillText("requests", 0, AXIS + 14);
    g.fillText("max " + run.deepest, 0, AXIS + 28);
    g.save();
    g.beginPath();
    g.rect(LEFT, AXIS, width(), DEPTH);
    g.clip();
    const y = (n) => bottom - (n / run.deepest) * room;
    const first = Math.max(0, above(run.depth, from, (d) => d[0]) - 1);
    const area = (value, fill) => {
      g.beginPath();
      g.moveTo(LEFT, bottom);
      let level = 0;
      for (let i = first; run.depth.length > i; i++) {
        const x = Math.max(LEFT, xOf(run.depth[i][0]));
        g.lineTo(x, y(level));
        level = value(run.depth[i]);
        g.lineTo(x, y(level));
        if (run.depth[i][0] > to) break;
      }
      g.lineTo(xOf(Math.min(to, run.end - run.start)), y(level));
      g.lineTo(xOf(Math.min(to, run.end - run.start)), bottom);
      g.fillStyle = fill;
      g.fill();
    };
    area((d) => d[1] + d[2], css("--deep0"));
    area((d) => d[2], css("--deep1"));
    g.restore();
  }

  function names(g, run, height) {
    g.textAlign = "left";
    g.fillStyle = css("--soft");
    const every = height >= 10;
    run.rows.forEach((row, index) => {
      // Where rows are thin only what holds others is named.
      if (every || row[1] === 0)
        g.fillText(row[0], row[1] * 10, AXIS + DEPTH + index * height + Math.max(8, height - 4));
    });
  }

  function zoom(factor, around) {
    const span = Math.min(longest, Math.max(100, (to - from) / factor));
    const share = (around - from) / (to - from);
    from = Math.max(0, Math.min(longest - span, around - share * span));
    to = from + span;
    draw();
  }
  function move(ns) {
    const span = to - from;
    from = Math.max(0, Math.min(longest - span, from + ns));
    to = from + span;
    draw();
  }
  const timeAt = (x) => from + ((x - LEFT) / width()) * (to - from);

  box.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.run) { shown = Number(button.dataset.run); draw(); return; }
    const factor = Number(button.dataset.zoom);
    if (factor === 0) { from = 0; to = longest; draw(); } else zoom(factor, (from + to) / 2);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 0.8 : 1.25, timeAt(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const keys = {
      "+": () => zoom(2, (from + to) / 2), "-": () => zoom(0.5, (from + to) / 2),
      ArrowLeft: () => move((from - to) / 8), ArrowRight: () => move((to - from) / 8),
    };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null) {
      move(((held - event.offsetX) / width()) * (to - from));
      held = event.offsetX;
      return;
    }
    const text = textAt(event.offsetX, event.offsetY);
    tip.hidden = !text;
    tip.textContent = text;
    // Beside the pointer, on the side that has room.
    const right = event.offsetX > canvas.clientWidth / 2;
    tip.style.top = canvas.offsetTop + event.offsetY + 14 + "px";
    tip.style.left = right ? "auto" : canvas.offsetLeft + event.offsetX + 12 + "px";
    tip.style.right = right ? box.clientWidth - canvas.offsetLeft - event.offsetX + 12 + "px" : "auto";
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

  // What is under the pointer.
  function textAt(x, y) {
    const run = data.runs[shown], at = timeAt(x);
    if (LEFT > x) return "";
    if (AXIS + DEPTH > y) {
      const depth = run.depth[above(run.depth, at, (d) => d[0]) - 1];
      return depth ? "at +" + number(at) + ": " + depth[1] + " requests queued, " + depth[2] +
        " in the drive" : "";
    }
    const row = Math.floor((y - AXIS - DEPTH) / rowHeight(run));
    const indices = run.byRow[row];
    if (!indices) return "";
    const slack = (to - from) / width();
    const i = indices[above(indices, at - slack, (n) => run.begin[n] + run.length[n])];
    if (i === undefined || run.begin[i] > at + slack) return run.rows[row][0] + ": idle";
    const more = run.more[i] ? " and " + run.more[i] + " more" : "";
    const request = run.request[i] === null ? "" : ", for " + run.requests[run.request[i]] + more;
    return run.rows[row][0] + ": " + data.kinds[run.kind[i]][0] + " for " +
      number(run.length[i]) + " from +" + number(run.begin[i]) + " on" + request;
  }

  window.addEventListener("resize", draw);
  draw();
})();
