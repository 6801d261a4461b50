/* How well a query fits its best class, as csn.classifier.keyed and csn.core.repeated compute it from unit keys. */

/** What the passes over the examples wrote. It depends on the examples alone. `options` are the model's `similarity`. */
export function describe(keys, numbers, count, options) {
  const size = keys[0].length;
  const counts = new Float64Array(count);
  const sums = Array.from({ length: count }, () => new Float64Array(size));
  keys.forEach((key, i) => {
    counts[numbers[i]]++;
    key.forEach((value, k) => (sums[numbers[i]][k] += value));
  });
  const lengths = sums.map((sum) => Math.hypot(...sum) || 1e-12);
  const shifted = keys.length > count && count > 1;
  return { counts, lengths, values: shifted ? written(keys, numbers, sums, lengths, counts, options) : null };
}

/** The similarity of a query, from its cosines to all examples. */
export function similarity(cosines, numbers, { lengths, values }, options) {
  const count = lengths.length;
  const fits = new Float64Array(count);
  cosines.forEach((cosine, i) => (fits[numbers[i]] += cosine / lengths[numbers[i]]));
  if (values) {
    const share = (1 - count / cosines.length) / options.scale;
    cosines.forEach((cosine, i) => {
      const kernel = share * Math.exp(options.sharpness * (cosine - 1));
      for (let c = 0; c < count; c++) fits[c] += kernel * values[i * count + c];
    });
  }
  const best = Math.max(...fits);
  const others = fits.reduce((sum, fit) => sum + fit, 0) - best;
  return best - (options.others / (count - 1 + options.few_classes)) * others;
}

/** The threshold for the median number of examples of a class, or null. */
export function thresholdFor(thresholds, counts) {
  const sorted = Array.from(counts).sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 ? sorted[middle] : Math.floor((sorted[middle - 1] + sorted[middle]) / 2);
  const known = Object.keys(thresholds).map(Number).filter((shots) => shots <= Math.max(median || 1, 1));
  return known.length ? thresholds[Math.max(...known)] : null;
}

/** V after all passes, (examples * classes): Nesterov's descent on the cross-entropy of the examples. */
function written(keys, numbers, sums, lengths, counts, { scale, sharpness, decay, passes, work }) {
  const n = keys.length;
  const count = sums.length;
  const base = new Float64Array(n * count);
  const kernel = new Float64Array(n * n);
  let largest = 0;
  keys.forEach((key, i) => {
    sums.forEach((sum, c) => (base[i * count + c] = (scale * dot(key, sum)) / lengths[c]));
    if (counts[numbers[i]] > 1) {
      const others = sums[numbers[i]].map((value, k) => value - key[k]);
      base[i * count + numbers[i]] = (scale * dot(key, others)) / (Math.hypot(...others) || 1e-12);
    }
    let row = 0;
    keys.forEach((other, j) => (row += kernel[i * n + j] = Math.exp(sharpness * (dot(key, other) - 1))));
    largest = Math.max(largest, row);
  });
  const step = 1 / (largest / 2 + decay);
  let values = new Float64Array(n * count);
  let ahead = values;
  const most = Math.min(passes, Math.max(1, Math.floor(work / (n * n * count))));
  const odds = new Float64Array(count);
  for (let k = 0; k < most; k++) {
    const made = new Float64Array(n * count);
    for (let i = 0; i < n; i++) {
      const from = i * count;
      for (let c = 0; c < count; c++) odds[c] = base[from + c];
      for (let j = 0; j < n; j++) {
        const weight = kernel[i * n + j];
        for (let c = 0, at = j * count; c < count; c++, at++) odds[c] += weight * ahead[at];
      }
      let [top, sum] = [odds[0], 0];
      for (let c = 1; c < count; c++) top = odds[c] > top ? odds[c] : top;
      for (let c = 0; c < count; c++) sum += odds[c] = Math.exp(odds[c] - top);
      for (let c = 0, at = from; c < count; c++, at++) made[at] = ahead[at] - step * (odds[c] / sum + decay * ahead[at]);
      made[from + numbers[i]] += step;
    }
    ahead = new Float64Array(n * count);
    for (let at = 0; at < ahead.length; at++) ahead[at] = made[at] + (k / (k + 3)) * (made[at] - values[at]);
    values = made;
  }
  return values;
}

const dot = (one, other) => {
  let sum = 0;
  for (let k = 0; k < one.length; k++) sum += one[k] * other[k];
  return sum;
};
