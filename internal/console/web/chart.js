// The charts of the console: bars over time, drawn in SVG. Positions across are in percent, so
// that a chart is as wide as its place and its labels keep their shape.

import { svg } from './dom.js';
import { count } from './format.js';

const LEAST = 1.5; // px: a bar that is not empty can be seen
const LINE = 16; // px for a line of labels

/** @typedef {'linear' | 'log'} Scale */

/**
 * @typedef {object} Series
 * @property {string} class of its bars
 * @property {(number | null)[]} values one for each bar; null is not known
 */

/**
 * totals returns the sum of all series for each bar, or null where none is known.
 * @param {Series[]} series
 * @returns {(number | null)[]}
 */
export const totals = (series) => series[0].values.map((_, i) => series.reduce(
  (/** @type {number | null} */ sum, { values }) => (values[i] === null ? sum : (sum ?? 0) + values[i]),
  null,
));

/**
 * share returns how high a value is in a chart that goes up to peak, from 0 to 1. The scale
 * log begins at 0, too, and a value of 100 remains visible beside one of 1,000,000.
 * @param {number} value
 * @param {number} peak
 * @param {Scale} [scale]
 */
export function share(value, peak, scale) {
  if (value <= 0 || peak <= 0) {
    return 0;
  }
  return scale === 'log' ? Math.log1p(value) / Math.log1p(peak) : value / peak;
}

/**
 * ticks returns the values that a chart has lines for: for the scale log up to three powers of
 * ten below the peak, and none for a linear one, which is read by its peak.
 * @param {number} peak
 * @param {Scale} [scale]
 */
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
