// The charts of the console: bars over time, drawn in SVG. Positions across are in percent, so
// that a chart is as wide as its place and its labels keep their shape.

import { h, svg } from './dom.js';
import { count } from './format.js';

const LEAST = 1.5; // px: a bar that is not empty can be seen
const LINE = 16; // px for a line of labels

/**
 * @typedef {'linear' | 'log'} Scale
 * @typedef {{class: string, values: (number | null)[]}} Series the bars of a class; what is null is not known
 */

// totals returns the sum of all series for each bar, or null where none is known.
export const totals = (/** @type {Series[]} */ series) => series[0].values.map((_, i) => series.reduce(
  (/** @type {number | null} */ sum, { values }) => (values[i] === null ? sum : (sum ?? 0) + values[i]), null));

// share returns how high a value is in a chart that goes up to peak, from 0 to 1. The scale
// log begins at 0, too, and a value of 100 remains visible beside one of 1,000,000.
/** @type {(value: number, peak: number, scale?: Scale) => number} */
export function share(value, peak, scale) {
  const part = scale === 'log' ? Math.log1p(value) / Math.log1p(peak) : value / peak;
  return value > 0 && peak > 0 ? part : 0;
}

// ticks returns the values that a chart has lines for: for the scale log up to three powers of
// ten below the peak, and none for a linear one, which is read by its peak.
/** @type {(peak: number, scale?: Scale) => number[]} */
export function ticks(peak, scale) {
  const powers = Math.ceil(Math.log10(peak)) - 1; // 10 to this power is below the peak
  if (scale !== 'log' || !(powers >= 1)) {
    return [];
  }
  const step = Math.ceil(powers / 3);
  return Array.from({ length: Math.floor(powers / step) }, (_, i) => 10 ** ((i + 1) * step));
}

/**
 * chart returns bars over time, the series of each bar on top of each other. A bar that is not
 * known is a gap, and one that is partial is marked. With an axis the chart has labels: the
 * peak, the lines of its scale, and where it begins and ends.
 * @param {object} what
 * @param {string} what.label what a screen reader says
 * @param {Series[]} what.series
 * @param {(bar: number) => string} [what.titles] what a bar shows under the pointer
 * @param {boolean[]} [what.partial]
 * @param {Scale} [what.scale] linear without it
 * @param {number} what.height in pixels, labels included
 * @param {[string, string]} [what.axis]
 */
export function chart({ label, series, titles, partial = [], scale, height, axis }) {
  const all = totals(series);
  const peak = Math.max(0, ...all.filter((total) => total !== null));
  const top = axis ? LINE : 0;
  const bottom = axis ? height - LINE : height;
  const above = (/** @type {number} */ value) => share(value, peak, scale) * (bottom - top);
  const step = 100 / all.length;
  const root = svg('svg', { class: 'chart', height, role: 'img', 'aria-label': label });
  const lines = axis ? ticks(peak, scale) : [];
  root.append(...[0, ...lines].map((value) => line(bottom - above(value))));
  for (const [i, total] of all.entries()) {
    const bar = svg('g', partial[i] ? { class: 'partial' } : {});
    if (titles) {
      const ground = svg('rect', { class: 'ground', x: `${i * step}%`, y: top, width: `${step}%`, height: bottom - top });
      bar.append(svg('title', {}, titles(i)), ground);
    }
    let y = bottom;
    for (const { class: name, values } of total ? series : []) {
      const part = Math.max(LEAST, above(total ?? 0)) * ((values[i] ?? 0) / (total ?? 1));
      if (part > 0) {
        y -= part;
        bar.append(svg('rect', { class: name, x: `${(i + 0.15) * step}%`, y, width: `${0.7 * step}%`, height: part }));
      }
    }
    root.append(bar);
  }
  if (axis) {
    const text = (/** @type {string} */ words, /** @type {number} */ y, end = false) => {
      root.append(svg('text', { x: end ? '100%' : 0, y, 'text-anchor': end ? 'end' : 'start' }, words));
    };
    for (const value of lines) {
      const y = bottom - above(value);
      if (y - LINE > top) {
        text(count(value), y - 3);
      }
    }
    text(`max ${count(peak)}${scale === 'log' ? ', logarithmic scale' : ''}`, top - 4);
    text(axis[0], height - 3);
    text(axis[1], height - 3, true);
  }
  return root;
}

/** line returns a line across the chart. @param {number} y */
const line = (y) => svg('line', { x1: 0, x2: '100%', y1: y, y2: y });

// brush lets the user choose bars of a chart in a slider: by a click, by dragging, or with the arrow
// keys, Shift and Enter. It returns a function that shows a chart, unless the user is choosing.
export function brush(/** @type {HTMLElement} */ place, /** @type {(first: number, last: number) => void} */ choose) {
  const mark = h('div', { class: 'brush' });
  let [bars, from, to] = [1, -1, -1]; // how many, and those that are marked, or -1
  let say = (/** @type {number} */ bar) => `${bar}`;
  const within = (/** @type {number} */ bar) => Math.max(0, Math.min(bars - 1, bar));
  const set = (start = -1, end = -1) => {
    [from, to] = [start, end];
    mark.hidden = from < 0;
    mark.style.left = `${(100 * Math.min(from, to)) / bars}%`;
    mark.style.width = `${(100 * (Math.abs(to - from) + 1)) / bars}%`;
    const bar = to < 0 ? bars - 1 : to;
    Object.assign(place, { ariaValueMax: `${bars}`, ariaValueNow: `${bar + 1}`, ariaValueText: say(bar) });
  };
  const done = () => {
    const marked = [from, to].sort((a, b) => a - b);
    set();
    if (marked[0] >= 0) {
      choose(marked[0], marked[1]);
    }
  };
  const point = (/** @type {PointerEvent} */ { type, button, pointerId, clientX }) => {
    const { left, width } = place.getBoundingClientRect();
    const bar = within(Math.floor(((clientX - left) / width) * bars));
    if (type === 'pointerdown' && button === 0) {
      place.setPointerCapture(pointerId);
      set(bar, bar);
    } else if (place.hasPointerCapture(pointerId)) {
      set(from, bar);
    }
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      const bar = within(to < 0 ? bars - 1 : to + step);
      set(event.shiftKey && from >= 0 ? from : bar, bar);
      event.preventDefault();
    } else if (event.key === 'Enter') {
      done();
    }
  };
  const forget = () => set();
  const handlers = { pointerdown: point, pointermove: point, pointerup: done, pointercancel: forget, blur: forget, keydown: press };
  for (const [name, f] of Object.entries(handlers)) {
    place.addEventListener(name, /** @type {EventListener} */ (f));
  }
  return (/** @type {Element} */ element, /** @type {number} */ count, /** @type {typeof say} */ titles) => {
    if (from < 0) {
      [bars, say] = [count, titles];
      place.replaceChildren(element, mark);
      set();
    }
  };
}
