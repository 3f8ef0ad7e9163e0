// A crew's pipeline, as one member's node tells it: the stages in order, where the time of a step goes, for whom each
// waits, and what crosses between them.

import { bytes, h, tag } from "./dom.js";

function s(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

export function pipeline(crew) {
  const flows = crew.stages.flatMap((stage, from) => stage.sent.map((size, to) => ({ from, to, size })).filter(({ size }) => size));
  const most = Math.max(1, ...flows.map(({ size }) => size));
  const far = flows.filter(({ from, to }) => Math.abs(from - to) > 1);
  return h("section", { class: "pipeline", "aria-label": "Pipeline" },
    h("h3", {}, `Pipeline: step ${crew.step}, segment ${crew.segment}`),
    crew.waiting ? h("p", {}, `This node waits ${crew.waiting}.`) : null,
    h("ol", {}, crew.stages.map((stage, i) => h("li", {},
      h("strong", {}, stage.name), " ", stage.own ? tag("measured here") : tag("its word"),
      stage.parts.length ? spent(stage) : null,
      h("p", {}, stage.words),
      i + 1 < crew.stages.length ? h("div", { class: "crossing" },
        ["↓", "↑"].map((arrow, up) => crosses(arrow, up ? crew.stages[i + 1].sent[i] : stage.sent[i + 1], most))) : null))),
    far.length ? h("p", {}, "Also in a step: ", far.map(({ from, to, size }) => `${bytes(size)} from member ${from} to member ${to}`).join(", "), ".") : null);
}

// A step's time as a bar: computing, then each wait.
function spent(stage) {
  let x = 0;
  const parts = stage.parts.map(({ what, part, words }) => {
    const rect = s("rect", { class: what, x: 100 * x, y: 0, width: 100 * part, height: 8 }, s("title", {}, words));
    x += part;
    return rect;
  });
  return s("svg", { class: "spent", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": stage.words }, ...parts);
}

function crosses(arrow, size, most) {
  if (!size) return null;
  const line = s("svg", { class: "flow", viewBox: "0 0 8 24", "aria-hidden": "true" }, s("rect", { x: 4 - 4 * (size / most), y: 0, width: 8 * (size / most), height: 24 }));
  return h("span", {}, line, ` ${arrow} ${bytes(size)} a step`);
}
