// The loss curve: a line a shard, or their mean, over a ground that says how far each stretch of steps is checked.

/* global uPlot */

const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
const BORDERS = ["solid", "dashed", "dotted", "double"];
const HATCH = { attested: null, unchecked: 14, disputed: 7, convicted: 4 };
let shown = null; // { place, plot, text }

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function draw(place, curve) {
  const text = JSON.stringify([curve, place.clientWidth, matchMedia("(prefers-color-scheme: dark)").matches]);
  if (shown?.place === place && shown.text === text) return;
  shown?.plot.destroy();
  const lines = series(curve);
  place.dataset.points = lines.reduce((sum, line) => sum + line.points.length, 0);
  shown = { place, text, plot: new uPlot(options(place, curve, lines), data(lines), place) };
}

// The lines of a job: its shards', of more than four their mean where all have it, and the held-out loss.
export function series({ shards, heldOut }) {
  const lines = shards.map((points, i) => ({ label: `shard ${i}`, points, style: i }));
  if (shards.length > DASHES.length) {
    const maps = shards.filter((points) => points.length).map((points) => new Map(points));
    const common = (maps.length ? [...maps[0].keys()] : []).filter((step) => maps.every((map) => map.has(step)));
    const mean = (step) => maps.reduce((sum, map) => sum + Number(map.get(step)), 0) / maps.length;
    lines.splice(0, lines.length, { label: `mean of ${maps.length} shards`, points: common.map((step) => [step, mean(step)]), style: 0 });
  }
  return heldOut.length ? [...lines, { label: "held-out", points: heldOut, style: null }] : lines;
}

function data(lines) {
  const finite = lines.map(({ points }) => new Map(points.filter(([, loss]) => Number.isFinite(loss))));
  const steps = [...new Set(finite.flatMap((map) => [...map.keys()]))].sort((a, b) => a - b);
  return [steps, ...finite.map((map) => steps.map((step) => map.get(step) ?? null))];
}

function options(place, curve, lines) {
  const ink = getComputedStyle(place).color;
  const axis = { stroke: ink, grid: { stroke: `${colour("--grey")}44`, width: 1 } };
  const border = (_, i) => BORDERS[lines[i - 1]?.style ?? 0];
  return {
    width: place.clientWidth, height: 280,
    scales: { x: { time: false, range: [0, curve.steps] } },
    axes: [{ ...axis, label: "steps of a shard", labelSize: 22 }, { ...axis, label: "loss", size: 55, labelSize: 22 }],
    legend: { markers: { width: 3, dash: border, fill: () => "transparent" } },
    series: [{ label: "step" }, ...lines.map(({ label, style }) => ({
      label, stroke: style === null ? colour("--held-out") : ink, width: style === null ? 3 : 2, dash: DASHES[style ?? 0], spanGaps: true, points: { show: true, size: 6 },
      value: (_, value) => (value === null ? "–" : value.toFixed(4)),
    }))],
    hooks: { drawClear: [(plot) => ground(plot, curve.stretches)] },
  };
}

function ground(plot, stretches) {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const stretch of stretches) {
    const from = plot.valToPos(stretch.from, "x", true), to = plot.valToPos(stretch.to, "x", true);
    ctx.fillStyle = colour(`--${stretch.state}-ground`);
    ctx.fillRect(from, bbox.top, to - from, bbox.height);
    hatch(ctx, from, to, bbox, stretch.state);
  }
  ctx.restore();
}

function hatch(ctx, from, to, bbox, state) {
  const gap = HATCH[state];
  if (!gap) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(from, bbox.top, to - from, bbox.height);
  ctx.clip();
  ctx.strokeStyle = `${colour(`--${state}`)}66`;
  ctx.beginPath();
  for (let x = from - bbox.height; x < to; x += gap * devicePixelRatio) { ctx.moveTo(x, bbox.top + bbox.height); ctx.lineTo(x + bbox.height, bbox.top); }
  ctx.stroke();
  ctx.restore();
}

addEventListener("resize", () => { if (shown) shown.plot.setSize({ width: shown.place.clientWidth, height: 280 }); });
