// SPDX-License-Identifier: Apache-2.0
//
// The library's arithmetic of a row, bit for bit: a page that carries query, key, row_max and row_sum in float32 builds
// the same scores and weights from them as attention_weights of the library does.
//
//     score  = (((q0·k0 + 0) + q1·k1) + …) · scale     each product and sum rounded once to float32 (fused)
//     weight = exp(score − row_max) / row_sum          exp as src/kernels/simd_math.h defines it
//
// A float32 fits a double with room: the product of two is exact, and a sum rounded to odd before it is rounded to
// float32 is rounded as if once (Boldo and Melquiond 2008).
// Read next: src/kernels/simd_math.h, src/kernels/attention_tile.cpp.

const fround = Math.fround;
const parts = new Uint32Array(2);
const whole = new Float64Array(parts.buffer);
// Bit 0 of a double's fraction lies in its first half where the processor is little-endian: as all browsers' are.

/**
 * float32 of a·b + c, rounded once.
 * @param {number} a a float32, likewise b and c
 * @param {number} b
 * @param {number} c
 */
export function fused(a, b, c) {
  const product = a * b;
  const sum = product + c;
  const shadow = sum - product;
  const error = product - (sum - shadow) + (c - shadow);
  if (error === 0 || !Number.isFinite(sum)) return fround(sum);
  whole[0] = sum;
  if ((parts[0] & 1) === 0) {
    // One step of the last place towards the exact sum makes an inexact even fraction odd.
    const outwards = error > 0 === sum > 0;
    if (outwards) {
      parts[0] |= 1;
    } else {
      if (parts[0] === 0) parts[1] -= 1;
      parts[0] -= 1;
    }
  }
  return fround(whole[0]);
}

/**
 * One step of a chain of products, fused or, where the instruction set has no fused multiply-add, rounded twice.
 * @param {boolean} is_fused
 * @returns {(a: number, b: number, c: number) => number}
 */
export function multiply_add(is_fused) {
  return is_fused ? fused : (a, b, c) => fround(fround(a * b) + c);
}

// A chain is cut after so many products, and the cuts added: src/kernels/tile.h.
const depth_segment = 256;

/**
 * scale · query·key as the library computes it.
 * @param {Float32Array} query
 * @param {number} query_at where the vector begins
 * @param {Float32Array} key
 * @param {number} key_at
 * @param {number} depth
 * @param {number} scale a float32
 * @param {boolean} is_fused
 */
export function score(query, query_at, key, key_at, depth, scale, is_fused) {
  const step = multiply_add(is_fused);
  let sum = 0;
  for (let begin = 0; begin < depth; begin += depth_segment) {
    let segment = 0;
    const end = Math.min(depth, begin + depth_segment);
    for (let d = begin; d < end; ++d) segment = step(query[query_at + d], key[key_at + d], segment);
    sum = begin === 0 ? segment : fround(sum + segment);
  }
  return fround(sum * scale);
}

// The constants of simd_math.h: hexadecimal digits over a power of two.
const log2_e = 0x1715476 / 2 ** 24;
const round = 0x18 * 2 ** 19;
const ln2_high = 0x163 / 2 ** 9;
const ln2_low = -0x1bd0106 / 2 ** 37;
const polynomial = [0x1fffffc / 2 ** 26, 0x1555492 / 2 ** 27, 0x15558f2 / 2 ** 29, 0x1123a20 / 2 ** 31, 0x16a23d0 / 2 ** 34]; // of r² on

/**
 * e^x for x ≤ 0, in float32.
 * @param {number} x
 * @param {boolean} is_fused
 */
export function exponential(x, is_fused) {
  if (Number.isNaN(x)) return x;
  const step = multiply_add(is_fused);
  const low_enough = Math.max(-105, x);
  const n = fround(step(low_enough, log2_e, round) - round);
  let r = step(n, -ln2_high, low_enough);
  r = step(n, -ln2_low, r);
  let q = polynomial[4];
  for (let i = 3; i >= 0; --i) q = step(q, r, polynomial[i]);
  const high = fround(1 + r);
  const low = fround(r - fround(high - 1));
  return fround(fround(high + step(fround(r * r), q, low)) * 2 ** n);
}

/**
 * The weight of a score in a row with this maximum and sum.
 * @param {number} score_
 * @param {number} row_max
 * @param {number} row_sum
 * @param {boolean} is_fused
 */
export function weight(score_, row_max, row_sum, is_fused) {
  if (score_ === -Infinity) return 0;
  const shifted = score_ === row_max ? 0 : fround(score_ - row_max);
  return fround(exponential(shifted, is_fused) / row_sum);
}
