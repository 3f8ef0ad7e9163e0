// The loss curve: one line a shard, over a ground that says what is known of each stretch of steps.

/* global uPlot */

const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
const HATCH = { replayed: null, committed: 14, disputed: 7, convicted: 4 };
const RANK = { committed: 0, replayed: 1, disputed: 2, convicted: 3 };
let shown = null; // { place, plot, text }

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function draw(place, view) {
  const text = JSON.stringify([view.points, place.clientWidth, matchMedia("(prefers-color-scheme: dark)").matches]);
  if (shown?.place === place && shown.text === text) return;
  shown?.plot.destroy();
  place.dataset.points = view.points.filter((point) => point.loss !== null).length;
  shown = { place, text, plot: new uPlot(options(place, view), data(view), place) };
}

// Of several claims of one place, the one that came last stands.
function standing(view) {
  const last = new Map();
  for (const point of view.points) last.set(`${point.shard}/${point.step}`, point);
  return [...last.values()];
}

function data(view) {
  const points = standing(view).filter((point) => point.loss !== null && Number.isFinite(point.loss));
  const steps = [...new Set(points.map((point) => point.step))].sort((a, b) => a - b);
  const lines = [...Array(view.shards).keys()].map((shard) => {
    const losses = new Map(points.filter((point) => point.shard === shard).map((point) => [point.step, point.loss]));
    return steps.map((step) => losses.get(step) ?? null);
  });
  return [steps, ...lines];
}

function options(place, view) {
  const ink = getComputedStyle(place).color;
  const axis = { stroke: ink, grid: { stroke: `${colour("--committed")}44`, width: 1 } };
  return {
    width: place.clientWidth, height: 280,
    scales: { x: { time: false, range: [0, view.rounds * view.stepsPerRound] } },
    axes: [{ ...axis, label: "steps of a shard", labelSize: 22 }, { ...axis, label: "loss", size: 55, labelSize: 22 }],
    series: [{ label: "step" }, ...[...Array(view.shards).keys()].map((shard) => ({
      label: `shard ${shard}`, stroke: ink, width: 2, dash: DASHES[shard % DASHES.length], spanGaps: true, points: { show: true, size: 6 },
      value: (_, value) => (value === null ? "–" : value.toFixed(4)),
    }))],
    hooks: { drawClear: [(plot) => ground(plot, view)] },
  };
}

// A stretch has the gravest state of any shard's claims there.
function ground(plot, view) {
  const worst = new Map();
  for (const point of view.points) {
    const before = worst.get(point.step);
    if (before === undefined || RANK[point.state] > RANK[before]) worst.set(point.step, point.state);
  }
  const { ctx, bbox } = plot;
  ctx.save();
  for (const [step, state] of worst) {
    const from = plot.valToPos(step - view.segmentSteps, "x", true), to = plot.valToPos(step, "x", true);
    ctx.fillStyle = colour(`--${state}-ground`);
    ctx.fillRect(from, bbox.top, to - from, bbox.height);
    hatch(ctx, from, to, bbox, state);
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
