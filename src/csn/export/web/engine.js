/* Runs programs: lists of operations on tensors {data: Float32Array, shape}. csn.export.program writes them. */

const numbers = (shape) => shape.reduce((product, side) => product * side, 1);
const tensor = (shape, data = new Float32Array(numbers(shape))) => ({ data, shape });

/** Decode weights from bytes: half precision, or 8 bits with a scale for every row. */
export function readWeights(bytes, described) {
  return described.map(({ shape, at, kind }) => {
    const count = numbers(shape);
    if (kind === "float16") return tensor(shape, Float32Array.from(new Uint16Array(bytes, at, count), half));
    const rows = shape[0];
    const scales = new Float32Array(bytes, at, rows);
    const whole = new Int8Array(bytes, at + 4 * rows, count);
    return tensor(shape, Float32Array.from(whole, (value, i) => value * scales[Math.floor((i * rows) / count)]));
  });
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** The outputs of a program for some inputs. All are tensors. */
export function run(program, weights, inputs) {
  const found = new Map(program.inputs.map((number, i) => [number, inputs[i]]));
  for (const step of program.operations) {
    const x = step.in.map((number) => found.get(number));
    found.set(step.out, OPERATIONS[step.op](step, x, weights));
  }
  return program.outputs.map((number) => found.get(number));
}

const each = (f) => (step, [x]) => tensor(step.shape, x.data.map(f));

const OPERATIONS = {
  conv,
  maxpool,
  avgpool,
  permute,
  relu: each((value) => (value > 0 ? value : 0)),
  tanh: each(Math.tanh),
  above: (step, [x]) => tensor(step.shape, x.data.map((value) => (value > step.value ? 1 : 0))),
  reshape: (step, [x]) => tensor(step.shape, x.data),
  add: broadcast((a, b) => a + b),
  sub: broadcast((a, b) => a - b),
  mul: broadcast((a, b) => a * b),
  affine(step, [x], weights) {
    const [scale, shift] = [weights[step.weight].data, weights[step.bias].data];
    const area = x.data.length / scale.length;
    return tensor(step.shape, x.data.map((value, i) => value * scale[Math.floor(i / area)] + shift[Math.floor(i / area)]));
  },
  linear(step, [x], weights) {
    const [rows, size] = weights[step.weight].shape;
    const [weight, bias] = [weights[step.weight].data, weights[step.bias].data];
    const out = tensor(step.shape);
    for (let e = 0; e < out.data.length / rows; e++) {
      for (let r = 0; r < rows; r++) {
        let sum = bias[r];
        for (let i = 0; i < size; i++) sum += weight[r * size + i] * x.data[e * size + i];
        out.data[e * rows + r] = sum;
      }
    }
    return out;
  },
  softmax(step, [x]) {
    const size = step.shape.at(-1);
    const out = tensor(step.shape);
    for (let at = 0; at < x.data.length; at += size) out.data.set(softmax(x.data.subarray(at, at + size)), at);
    return out;
  },
  mean(step, [x]) {
    const inner = numbers(x.shape.slice(step.last + 1));
    const count = numbers(x.shape.slice(step.first, step.last + 1));
    const out = tensor(step.shape);
    for (let i = 0; i < x.data.length; i++) {
      out.data[Math.floor(i / (inner * count)) * inner + (i % inner)] += x.data[i] / count;
    }
    return out;
  },
  take(step, [x]) {
    const size = x.shape.at(-1);
    const out = tensor(step.shape);
    const many = step.index.length;
    for (let row = 0; row < x.data.length / size; row++) {
      step.index.forEach((from, i) => (out.data[row * many + i] = x.data[row * size + from]));
    }
    return out;
  },
  pad(step, [x]) {
    const out = tensor(step.shape);
    const lead = step.shape.length - step.before.length;
    walk(x.shape, (place, i) => {
      out.data[place.reduce((at, p, axis) => at * step.shape[axis] + p + (axis < lead ? 0 : step.before[axis - lead]), 0)] = x.data[i];
    });
    return out;
  },
  slice(step, [x]) {
    const inner = numbers(x.shape.slice(step.dim + 1));
    const [all, some] = [x.shape[step.dim] * inner, step.length * inner];
    const out = tensor(step.shape);
    for (let row = 0; row < x.data.length / all; row++) {
      const from = row * all + step.start * inner;
      out.data.set(x.data.subarray(from, from + some), row * some);
    }
    return out;
  },
};

export function softmax(values) {
  const most = Math.max(...values);
  const powers = Float32Array.from(values, (value) => Math.exp(value - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

/** The convolution of one image as a matrix product: filters (outputs, taps) times the pixels under them (places, taps). */
function conv(step, [x], weights) {
  const { shape, data: weight } = weights[step.weight];
  const bias = weights[step.bias].data;
  const outputs = shape[0];
  const taps = weight.length / outputs;
  const out = tensor(step.shape);
  const places = out.data.length / outputs;
  const seen = under(x, shape, step);
  const put = (at, p, sums) => sums.forEach((sum, n) => (out.data[(at + n) * places + p] = sum));
  let o = 0;
  for (; o + 4 <= outputs; o += 4) {
    // Four filters at two places: eight sums stay in registers. No destructuring here, it takes as long as the products.
    const w = o * taps, v = w + taps, u = v + taps, t = u + taps;
    for (let p = 0; p < places; p += 2) {
      const last = p + 1 === places;
      const here = p * taps, next = last ? here : here + taps;
      let a = bias[o], b = bias[o + 1], c = bias[o + 2], d = bias[o + 3];
      let e = a, f = b, g = c, h = d;
      for (let tap = 0; tap < taps; tap++) {
        const one = seen[here + tap], other = seen[next + tap];
        const k = weight[w + tap], l = weight[v + tap], m = weight[u + tap], n = weight[t + tap];
        a += k * one; b += l * one; c += m * one; d += n * one;
        e += k * other; f += l * other; g += m * other; h += n * other;
      }
      put(o, p, [a, b, c, d]);
      if (!last) put(o, p + 1, [e, f, g, h]);
    }
  }
  for (; o < outputs; o++) {
    for (let p = 0; p < places; p++) {
      let sum = bias[o];
      for (let tap = 0; tap < taps; tap++) sum += weight[o * taps + tap] * seen[p * taps + tap];
      put(o, p, [sum]);
    }
  }
  return out;
}

/** The pixel under every tap at every output place: (rows * columns, inputs * tall * wide), 0 outside the image. */
function under(x, [, inputs, tall, wide], step) {
  const [, , height, width] = x.shape;
  const [, , rows, columns] = step.shape;
  const taps = inputs * tall * wide;
  const seen = new Float32Array(taps * rows * columns);
  for (let i = 0, tap = 0; i < inputs; i++) {
    for (let ky = 0; ky < tall; ky++) {
      for (let kx = 0; kx < wide; kx++, tap++) {
        const [dy, dx] = [ky - step.padding, kx - step.padding];
        const [left, right] = [Math.max(0, -dx), Math.min(columns, width - dx)];
        for (let y = Math.max(0, -dy), last = Math.min(rows, height - dy); y < last; y++) {
          const from = (i * height + y + dy) * width + dx;
          for (let z = left, at = (y * columns + left) * taps + tap; z < right; z++, at += taps) seen[at] = x.data[from + z];
        }
      }
    }
  }
  return seen;
}

function pool(step, x, window, begin, end, add) {
  const [, channels, height, width] = x.shape;
  const [, , rows, columns] = step.shape;
  const out = tensor(step.shape);
  for (let c = 0, at = 0; c < channels; c++) {
    for (let r = 0; r < rows; r++) {
      for (let s = 0; s < columns; s++, at++) {
        let [value, count] = [begin, 0];
        for (let y = window(r, rows, height, 0)[0]; y < window(r, rows, height, 0)[1]; y++) {
          for (let z = window(s, columns, width, 1)[0]; z < window(s, columns, width, 1)[1]; z++, count++) {
            value = add(value, x.data[(c * height + y) * width + z]);
          }
        }
        out.data[at] = end(value, count);
      }
    }
  }
  return out;
}

function maxpool(step, [x]) {
  const window = (i, count, side, axis) => [i * step.size[axis], Math.min((i + 1) * step.size[axis], side)];
  return pool(step, x, window, -Infinity, (value) => value, Math.max);
}

function avgpool(step, [x]) {
  const window = (i, count, side) => [Math.floor((i * side) / count), Math.ceil(((i + 1) * side) / count)];
  return pool(step, x, window, 0, (sum, count) => sum / count, (a, b) => a + b);
}

function permute(step, [x]) {
  const out = tensor(step.shape);
  const strides = x.shape.map((_, axis) => numbers(x.shape.slice(axis + 1)));
  walk(step.shape, (place, i) => {
    out.data[i] = x.data[place.reduce((at, p, axis) => at + p * strides[step.order[axis]], 0)];
  });
  return out;
}

function broadcast(f) {
  return (step, x, weights) => {
    const left = step.left === undefined ? x.shift() : weights[step.left];
    const right = step.right === undefined ? x.shift() : weights[step.right];
    const out = tensor(step.shape);
    if (left.data.length === out.data.length && right.data.length === out.data.length) {
      for (let i = 0; i < out.data.length; i++) out.data[i] = f(left.data[i], right.data[i]);
      return out;
    }
    const [ours, theirs] = [left, right].map((part) => stridesIn(part.shape, step.shape));
    walk(step.shape, (place, i) => {
      let [a, b] = [0, 0];
      for (let axis = 0; axis < place.length; axis++) {
        a += place[axis] * ours[axis];
        b += place[axis] * theirs[axis];
      }
      out.data[i] = f(left.data[a], right.data[b]);
    });
    return out;
  };
}

/** Strides for broadcasting a shape to a larger one: 0 along broadcast axes. */
function stridesIn(shape, whole) {
  const full = [...Array(whole.length - shape.length).fill(1), ...shape];
  return full.map((side, axis) => (side === 1 ? 0 : numbers(full.slice(axis + 1))));
}

/** Call visit(place, i) for every place of a shape in order. */
function walk(shape, visit) {
  const place = new Array(shape.length).fill(0);
  for (let i = 0, last = numbers(shape); i < last; i++) {
    visit(place, i);
    for (let axis = shape.length - 1; axis >= 0 && ++place[axis] === shape[axis]; axis--) place[axis] = 0;
  }
}
