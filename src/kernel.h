// SPDX-License-Identifier: MIT
//
// The contract of every kernel kind, and the row that a kernel is.
//
// Kernel files include this, vec_<isa>.h, the algebra headers, <stddef.h>, <stdint.h> and intrinsics,
// nothing else, and keep everything but their table in an anonymous namespace: an object compiled for
// AVX-512 must not leave a symbol that the linker could hand to an older CPU.
#pragma once

#include <quern/quern.h>
#include <stddef.h>
#include <stdint.h>

// QUERN_INLINE: always inlined, and a GPU's too where nvcc compiles.  A test that runs a GPU's source on the CPU
// has its own of these.
#if defined(QUERN_INLINE)
#elif defined(__CUDACC__)
#define QUERN_INLINE __host__ __device__ __forceinline__
#else
#define QUERN_INLINE [[gnu::always_inline]] inline
#endif

#if defined(QUERN_UNROLL)
#define QUERN_ROLL
#elif defined(__CUDACC__)
#define QUERN_UNROLL _Pragma("unroll")
#define QUERN_ROLL _Pragma("unroll 1")
#elif defined(__clang__)
#define QUERN_UNROLL _Pragma("clang loop unroll(full)")
#define QUERN_ROLL _Pragma("clang loop unroll(disable)")
#else
#define QUERN_UNROLL _Pragma("GCC unroll 32")
#define QUERN_ROLL _Pragma("GCC unroll 1")
#endif

namespace quern {

// Of its sum with a whole number n the bits, 23 places to the left, are those of 2^n.
inline constexpr float exponent_bias = 0x1.8p23f + 127;

// What happens to a finished sum on its way to memory; quern_epilogue with its zeros resolved.  Vectors
// hold one value an output channel, NULL where there is none.  Built once a run, constant in it.
struct epilogue_f32 {
  const float* scale;
  const float* bias;
  const float* slope;
  float alpha, beta;
  int32_t residual;  // QUERN_RESIDUAL_*
  quern_activation activation;
  float activation_alpha, activation_beta;
  // True when y = min(max(acc + bias, lower), upper) says it all: kernels do that on their accumulators
  // and leave the rest to finish_f32.h.
  bool clamp_only;
  bool plain;  // and when y = acc does
  float lower, upper;
};

// Where a tile of m x n sums goes: C[i][j] = c[i * ldc + j], written once, exactly m x n.  With blocks, column j
// is at j / block * next + j % block instead; a block is a multiple of a vector, and column 0 begins one.
struct output_f32 {
  float* c;
  size_t ldc;
  size_t block, next;            // block 0: columns side by side
  bool stream;                   // past the caches, where rows are aligned; the caller fences
  const epilogue_f32* epilogue;  // NULL: the sum is not finished, store it as it is
  bool channels_are_rows;        // output channels run along m (NCHW), else along n (NHWC)
  size_t channel;                // the first of them, index into the vectors of the epilogue
  const float* residual;         // as c, with its own strides
  size_t ldr, residual_block, residual_next;
};

// Cache lines that are wanted next, so many of them to ask for beside a vector of outputs.  They follow each other in
// rows, of which the first has `left`, the others `row`; from the end of one to the next there are `skip` floats.
struct lines_ahead {
  const float* at;
  size_t count, pace, left, row;
  ptrdiff_t skip;

  // Leaves behind so many of the first row.
  void pass(size_t lines) {
    at += lines * 16, left -= lines;
    if (left == 0) at += skip, left = row;
  }
};

// ---- gemm_f32 ---------------------------------------------------------------------------------
//
//   C[m x n] = epilogue(C_in[m x n] + sum over taps t of A_t[m x k] * B_t[k x n])     m <= mr, n <= nr
//
//   A_t[i][p] = a[tap[t].a + i * lda + p]      read by broadcast, any alignment
//   B_t[p][j] = b[tap[t].b + p * ldb + j]      read in vectors, exactly n floats of each row
//
// Rows of A are contiguous along k, rows of B along n; nothing outside is read or written.  One
// tap is a plain GEMM; r * s taps are a sliding window without im2col; padding is a tap left out.  Every
// element of C is one chain of fused multiply-adds in the order of (t, p), starting from zero or from C:
// the same bits whatever the tile, the blocking of k, and the ISA.
struct gemm_tap {
  ptrdiff_t a, b;  // elements
};

struct gemm_f32 {
  size_t m, n, k, taps;
  const gemm_tap* tap;
  const float* a;
  size_t lda;
  const float* b;
  size_t ldb;
  bool accumulate;     // start from C instead of from zero
  const float* ahead;  // a hint: what to fetch meanwhile, so many elements on a step of k; NULL: B itself
  size_t pace;
  bool near;   // a hint: B is in L1, nothing of it is to be fetched, and what is ahead goes there
  bool apart;  // a hint: what the next tap reads of A, and the next tile, does not follow what this one does
  output_f32 out;
  // So many tiles follow the first, each these elements, and output channels, further on; what is ahead goes on, too.
  size_t more;
  struct {
    ptrdiff_t a, b, c, residual, channel;
  } step;
};

// dst[i * dst_row + j] = src[i * src_row + (j + skip) / times * src_col]: what packing moves, straight or transposed,
// each column `times` times.  skip < times: what is left out of the first one.
struct copy_f32 {
  size_t rows, cols;
  const float* src;
  size_t src_row, src_col;
  float* dst;
  size_t dst_row;
  size_t times = 1, skip = 0;
};

// ---- depthwise_f32 ----------------------------------------------------------------------------
//
//   C[y][x][c] = epilogue(sum over planes t, rows r < y.taps, s < x.taps of
//                           src[origin + plane[t].a + (y * y.step + r) * y.src + (x * x.step + s) * x.src + c] *
//                           weights[(plane[t].b + r * x.taps + s) * vector + c])
//
// for y < y.count, x < x.count and channels c < n, in vectors of row.vector: the next ones are src_vector,
// weights_vector and dst_vector further on.  Inputs outside of [begin, end) of an axis are padding: not read,
// not multiplied.  Sums run over t, r, s from zero.  Output channel k = out.channel + c reads input channel
// k / multiplier; src is where channel `input` lies, which begins a vector.
struct depthwise_axis {
  size_t count, taps;
  ptrdiff_t step, begin, end;
  ptrdiff_t src;         // elements from input to input
  size_t dst, residual;  // from output to output; of x: out.ldc and out.ldr
};

struct depthwise_f32 {
  depthwise_axis x, y;
  size_t n, planes;
  const gemm_tap* plane;
  const float* src;
  ptrdiff_t origin;  // of input 0, which may itself be padding and lie before src
  size_t input, src_vector;
  const float* weights;
  size_t weights_vector;
  size_t multiplier;
  output_f32 out;  // rows are pixels
  size_t dst_vector, residual_vector;
  bool bounded_below, bounded_above;  // the epilogue's lower and upper are finite
  lines_ahead ahead[2];               // hints: inputs and outputs of the next call, to be brought into L2 meanwhile
  bool fetches;                       // a hint: src lies beyond L2, what the next line of outputs reads is asked for
};

// ---- depthwise_planar_f32 ---------------------------------------------------------------------
//
// The same sum with pixels across the vector, for blocks of channels that lie side by side (one channel: NCHW) and
// whose pixels follow each other:
//
//   C[y][x][c] = epilogue(sum over planes t, rows r < y.taps, s < x.taps of
//                           src[origin + plane[t].a + (y * y.step + r) * y.src + (x * x.step + s * apart) * block + c]
//                           * weights[(plane[t].b + r * x.taps + s) * lanes + c])                          c < block
//
// for n channels: the next blocks are src_block, weights_block and dst_block further on.  The block divides
// row.vector and is smaller; `lanes` is 1 for a block of 1, and for others row.vector, the block's weights again and
// again.  Output channel k = out.channel + c reads input channel k / multiplier, and with a multiplier a block is 1;
// src is that of the first.  Padding along y is not multiplied, padding along x is by zero.
struct depthwise_planar_f32 {
  depthwise_axis x, y;
  ptrdiff_t apart;  // inputs from tap to tap along x; in units of inputs as x.begin and x.end
  size_t block, n, planes;
  const gemm_tap* plane;
  const float* src;
  ptrdiff_t origin;
  size_t src_block;
  const float* weights;
  size_t weights_block;
  size_t multiplier;
  output_f32 out;  // rows are pixels
  size_t dst_block, residual_block;
  bool fetches;  // a hint: src lies beyond L2, the lines of the next tile are asked for
};

// ---- grouped_f32 ------------------------------------------------------------------------------
//
//   C[i][o] = epilogue(sum over rows r, s < taps, channels p of the group of output o, of
//                        src[line * src_line + row[r].a + (i * step + s) * src_pixel + channel p] * weight)
//
// for m <= mr pixels along x, on `lines` lines that read the same rows of the filter, and n <= vector output
// channels: of whole groups, with row.group channels in and out or any few (row.several_groups), else of one group with
// any number of channels.  Bit i * step + s of *row[r].inside is clear where that input is padding, or of outputs from
// m on: it is not read, not multiplied.  Sums run over r, s, p from zero; weights of a row are [p][s][vector].
//
// `run` input channels at a time lie side by side, the next ones src_run further on; of groups of row.group, half a
// vector of them, as many as there are outputs; of any few, all `inputs`, at most a vector, and channel p of output o's
// group is number lanes[p * vector + o].  The second half of a vector's outputs may lie anywhere (blocked layouts).
struct grouped_row {
  ptrdiff_t a, b;
  const uint32_t* inside;
};

struct grouped_f32 {
  size_t m, n, lines, rows, channels, run;  // channels: of a group; a multiple of run, where there are several
  const grouped_row* row;
  const float* src;
  ptrdiff_t src_pixel, src_line, src_run;
  const float* weights;
  output_f32 out;  // of the first line; its rows are pixels
  ptrdiff_t dst_line, dst_half, residual_line, residual_half;
  size_t inputs;  // with lanes: of several groups
  const int32_t* lanes;
  lines_ahead ahead[2];  // hints, as depthwise_f32 has them
};

// ---- grouped_planes_f32 -----------------------------------------------------------------------
//
//   C[o][i] = epilogue(sum over taps t, channels p of
//                        src[tap[t].a + p * src_plane + i * step] * weights[tap[t].b + p * mr + o])
//
// for m <= mr output channels and n <= nr pixels of a plane, with the step of the row.  Bit i % vector of
// tap[t].inside[i / vector] is clear where the pixel that a tap meets is padding: it is not read, not multiplied.  Sums
// run over t, p from zero.
struct grouped_planes_f32 {
  size_t m, n, taps, channels;
  const grouped_row* tap;
  const float* src;
  ptrdiff_t src_plane;
  const float* weights;
  output_f32 out;        // its rows are channels
  lines_ahead ahead[2];  // hints, as depthwise_f32 has them
};

// ---- few_planes_f32 ---------------------------------------------------------------------------
//
//   C[o][y][i] = epilogue(C_in[o][y][i] + sum over channels p, rows r < taps_y, taps s < taps_x of
//                           src[p * src_plane + (y + r) * src_line + s * apart + i] *
//                           weights[((p * taps_x + s) * taps_y + r) * mr + o])
//
// for m <= mr output channels, `lines` lines, which are row.lines or one, and n <= nr pixels; taps_x is at most
// most_taps_x.  Lines y + r outside of [top, bottom), and s * apart + i outside of [left, right), are padding: not
// read; lines are not multiplied, pixels are as zeros.  C_in are sums[(y * mr + o) * sums_line + i], or zero where the
// call begins.  What it adds up goes there, for all mr channels and whole vectors of pixels; with no epilogue that is
// all.
struct few_planes_f32 {
  static constexpr size_t most_taps_x = 16;
  size_t m, n, lines, channels, taps_x, taps_y;
  const float* src;
  ptrdiff_t src_plane, src_line, apart;
  ptrdiff_t top, bottom, left, right;
  const float* weights;
  float* sums;
  size_t sums_line;
  bool begins;
  output_f32 out;  // its rows are channels
  size_t dst_line, residual_line;
  bool fetches;  // a hint: what the next tiles read of the last input lines, one for each line, is asked for
};

// ---- reorder_f32 ------------------------------------------------------------------------------
//
//   dst[to(c, x)] = src[from(c, x)]      side(c, x) = c / block * channel + c % block + x * pixel
//
// for c < channels and x < pixels, exactly those.  block is 1 (NCHW), 4, 8, 16, or larger than all channels
// (NHWC).
struct reorder_side {
  size_t block, channel, pixel;  // channels side by side; elements from block to block, from pixel to pixel
};

struct reorder_f32 {
  size_t channels, pixels;
  const float* src;
  float* dst;
  reorder_side from, to;
  bool stream;  // past the caches: dst, to.channel and to.pixel (but where block is 1) are whole cache lines
  bool halves;  // of 512 bits, to this core, are two: those of 256 are shuffled in fewer steps
  size_t ways;  // lines that each of the 64 sets of this core's L1 keeps, 8 or more
};

// ---- winograd_f32 -----------------------------------------------------------------------------
//
// The transforms of a tile for n channels, Winograd's F(m, r) along x, or along y and x (winograd.h), with
// a = m + r - 1 products an axis and ay = 1 where it is along x alone:
//
//   input    V[i * ax + j][c] = sum over y < ay, x < ax of BT[i][y] * BT[j][x] * src[y][x][c]
//   output   C[y][x][c] = epilogue(sum over i < ay, j < ax of AT[y][i] * AT[x][j] * M[i * ax + j][c])
//
// Vectors of V and M are `matrix` apart and padded to whole registers; of src exactly n channels of the pixels
// on the image are read, of C exactly n channels of rows x columns pixels are written.  A tile of fewer outputs may
// take fewer points (winograd_points.h): rows and columns from that number on, which are to be off the image, become
// what makes the other products vanish.
struct winograd_input_f32 {
  size_t n;
  uint32_t rows, columns;  // bit i: row or column i of the tile lies on the image, else it is zeros
  int points[2];           // along y, of which there is 1 where the transform is along x alone, and x
  const float* src;
  ptrdiff_t origin, row, column;  // where pixel (0, 0) is, which may be padding; to the next row and column
  float* v;
  size_t matrix;
  // So many tiles follow the first, as much of each on the image, each these elements further on.
  size_t more;
  struct {
    ptrdiff_t src, v;
  } step;
};

struct winograd_output_f32 {
  size_t n, rows, columns;  // at most m
  const float* m;
  size_t matrix;
  size_t dst_row, residual_row;
  output_f32 out;  // rows are pixels along x
  // So many tiles of as many outputs follow the first, each these elements further on.
  size_t more;
  struct {
    ptrdiff_t m, c, residual;
  } step;
};

// ---- winograd_line_f32 ------------------------------------------------------------------------
//
// Winograd's F(m, r) along x, with a = m + r - 1 points, and plain sums of lines and channels: for few channels.
//
//   line     V[j * matrix + x] = sum over k < a of BT[j][k] * src[x + k * apart]      x < n, and up to a whole vector
//            where pixels from `begin` on up to `end` are read, and others are zeros
//   strip    S[j][t][k] = sum over p < steps of
//                step[p][first + j * matrix + t * tile] *
//                weights[j * w.point + p * w.step + k / pair * w.pair + k % pair]          pair = 2 * row.vector
//   finish   C[t * m + i][k] = epilogue(sum over j < a of AT[i][j] * S[j][t][k])
//
// for t < tiles, of whose outputs the first `pixels` are written, and channels k < n, of which nr are whole vectors.  A
// step is a line of the filter, a channel and, at stride 2, one of two interleaved images.  S has nr channels a tile
// and line_sums vectors a point: of so many vectors of channels, up to row.nr, line_tiles() tiles at a time.  A strip
// finishes the one before meanwhile.
//
// Rows for one stride alone (step) hold all points of mr outputs in registers.  Such a strip is the line of a block,
// and writes its own outputs; there is no finish.  V is there for whole mr.
//
//   step 1   sums of few steps: w.point = pair, w.step = a * pair
//   step 2   three taps, of which 0 and 2 are F(2, 2), and 1 is beside them; a strip fetches ahead
//     line     V[matrix + x] = src[x] - src[x + apart] and, if it copies, V[x] = src[x]
//     strip    C as above, of tiles of four pixels and two outputs; a point has weights w0, w0 + w2, w2 and w1, a step
//              two pointers: of a tile, pixels 1, 2 and 3 come from the first, differences of 0 and 2 from the other
inline constexpr int line_sums = 24;
constexpr int line_tiles(int vectors) { return vectors == 1 ? 14 : line_sums / vectors; }

struct winograd_transform_f32 {
  ptrdiff_t n, begin, end;
  const float* src;
  ptrdiff_t apart;
  float* v;
  ptrdiff_t matrix;
  bool copies;  // step 2
};

struct winograd_sums_f32 {
  size_t tiles, pixels, n;
  float* sums;
  output_f32 out;  // rows are pixels
};

struct winograd_strip_f32 {
  size_t steps;
  const float* const* step;
  size_t first, matrix, tile;
  const float* weights;
  struct {
    size_t point, step, pair;
  } w;
  const winograd_sums_f32* to;
  const winograd_sums_f32* before;  // NULL: none
  const float* ahead;               // hint: pixels of so many lines below, `row` apart, that are transformed next
  size_t rows, row;
};

// ---- split_f32 --------------------------------------------------------------------------------
//
// f32 by products of bf16 in a matrix unit: every operand is a sum of 3 parts, or of 2, and of the products of parts
// all are taken but the smallest: 6, or 3.  Tiles of sums are mr x 16; a block is two of them down and two across.
//
//   image      parts of pixels: [pixel][part][32 channels], rows `pixel` bytes apart, 32 channels every `block` bytes.
//              Missing channels are zeros.
//   products   sums[i][j] = sum over steps s of parts(a + step[s] + i * a_row) * parts(b + s * the size of a step)
//              for i < tiles * rows; rows from `rows` on are those of a second tile, a_tile further on.  Meanwhile it
//              finishes the block before, and fetches `lines` cache lines from `ahead` on into L2.
//   finish     dst[i][to + j] = epilogue(sums[i][j], residual[i][from + j]) for rows i that have a dst
//   line       dst[i][j] = epilogue(sum over steps of parts(pixel i) * parts(b), residual[i][j]) for a line of pixels,
//              in `tiles` tiles of as many rows: while one is multiplied, the next one is split.  `parts` has room for
//              split_line_tiles(n) of them: where a tile is one block, the next one takes its place.
//
// A step of weights is [part][n / 16][16 pairs of channels][16][2]; channel p has channel p + 16 beside it.  Between
// begin(rows) and end() a thread has the unit's registers configured for tiles of that many rows.
inline constexpr size_t split_rows = 16, split_columns = 32, split_channels = 32;  // of a tile, a block, a step
constexpr size_t split_line_tiles(size_t n) { return n > 4 * 16 ? 2 : 1; }

struct split_image_f32 {
  size_t pixels, channels;
  const float* src;
  ptrdiff_t src_pixel;
  ptrdiff_t src_run;  // elements from 16 channels that lie side by side to the next 16
  char* parts;
  size_t pixel, block;  // bytes
};

struct split_output_f32 {
  size_t rows, n;
  float* sums;        // rows of split_columns, left in any state
  float* const* dst;  // of each row, NULL: its sums are thrown away
  const float* const* residual;
  ptrdiff_t to, from;                 // elements to column 0 of each
  ptrdiff_t dst_half, residual_half;  // and from there to column 16
  size_t channel;                     // of column 0, index into the vectors of the epilogue
  const epilogue_f32* epilogue;
};

struct split_products_f32 {
  size_t tiles, rows, n, steps;
  const ptrdiff_t* step;  // bytes
  const char* a;
  ptrdiff_t a_row, a_tile;  // bytes
  const char* b;
  float* sums;
  const split_output_f32* before;  // NULL: none
  const char* ahead;
  size_t lines;
};

struct split_line_f32 {
  split_image_f32 image;
  size_t tiles, rows, n;
  const char* b;
  size_t panel;  // bytes of b from 32 columns to the next
  bool passes;   // b, and L1 is not to keep it
  float* sums;   // of four blocks of a tile by 32 columns
  float* dst;    // of pixel 0, column 0
  const float* residual;
  ptrdiff_t dst_pixel, residual_pixel;
  ptrdiff_t dst_half, residual_half;  // from 16 columns to the next
  size_t channel;
  const epilogue_f32* epilogue;
};

struct split_functions {
  void (*begin)(size_t rows);
  void (*end)();
  void (*image[2])(const split_image_f32&);  // of 2 parts, of 3
  void (*products[2])(const split_products_f32&);
  void (*finish)(const split_output_f32&);
  void (*line[2])(const split_line_f32&);
};

// ---- dot_f32 ----------------------------------------------------------------------------------
//
//   C[i][j] = epilogue(sum over lanes l < 16 of S[i][j][l])                       i < m <= mr, j < n <= nr
//
//   S[i][j][l] = sum over taps t, p = l, l + 16 ... < k of
//                  a[tap[t].a + i * lda + p / 16 * next + p % 16] * b[tap[t].b + j * ldb + p]
//
// Channels across the vector: for few outputs, which would leave most of it empty.  Of A exactly k floats a tap are
// read; rows of B go on to whole sixteens with zeros.  Each S is one chain of fused multiply-adds in the order of
// (t, p) from zero, and l and l + 8 are added, then 4 apart, neighbours, pairs: the same bits on every ISA.  C[i][j] is
// at out.c[i * ldc + column[j]], the residual likewise; output channels are out.channel + j.
//
// Registers hold row.tile of the S: of so many outputs dot_rows() pixels at a time.
constexpr int dot_rows(int tile, int outputs) {
  const int rows = tile / outputs;
  return rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
}

struct dot_f32 {
  size_t m, n, k, taps;
  const gemm_tap* tap;
  const float* a;
  size_t lda, next;
  bool fetches;  // a hint: pixels come from beyond L2, those of a later tile are to be fetched by the last tap
  const float* b;
  size_t ldb;
  output_f32 out;
  const size_t *column, *residual_column;
};

// ---- pool_f32 ---------------------------------------------------------------------------------
//
//   C[x][c] = epilogue(the largest, or the mean, over lines l and taps s < taps of
//                        src[line[l] + (x * step + s * apart - pad) * pixel + c])
//
// for x < count outputs of a line and n floats of a pixel, which lie side by side: all channels or some, a block's, or
// one.  Inputs whose index along x is not in [0, width) are padding: not read, and nothing in a sum or a maximum.  A
// maximum with a NaN is NaN.  The mean divides by taps_counted, or where that is 0 by the number of inputs that are no
// padding; of none it is 0, and the largest is -infinity.  Sums run over the lines, for each tap, and those over the
// taps: the same bits in any way and on every ISA.
//
//   windows   each output by itself, vectors along n
//   columns   two or three taps side by side, steps of one or two: what lines add up to stays in registers for the
//             next output
//   pixels    lines fold into a buffer, pixel by pixel, and windows are taken from there
//   flat      lines, of which pixel is n, fold into a buffer, vectors across pixels; with a step above 1 into one for
//             each of its phases: then step is at most pool_phases, and n divides row.vector
//   shifted   as flat, without the buffer: n is at most half of row.vector, taps and steps are those of columns
enum class pool_way : uint8_t { windows, columns, pixels, flat, shifted };
inline constexpr ptrdiff_t pool_phases = 4;

struct pool_f32 {
  pool_way way;
  bool largest;
  size_t n, count, lines, taps;
  const ptrdiff_t* line;  // of input 0
  const float* src;
  ptrdiff_t pixel, step, apart, pad, width;
  float taps_counted;
  const float* inside;  // across(): for each float of a line of outputs the taps that are no padding, at least 1
  float* fold;          // pixels, flat: fold_floats() of workspace
  float* tile;          // outputs that do not go straight to dst: tile_floats()
  output_f32 out;       // rows are pixels; where channels are rows, n is 1, and the one row has pixels for columns
  // Across: the line may be a band of several, each with its padding.  Then outputs are so many rows, `tile_row` floats
  // apart in the line, of row_count pixels, dst_row apart in dst; `inside` counts the taps of all lines.
  size_t rows, row_count, tile_row, dst_row, residual_row;

  // Flat: windows double until they have all taps.
  bool doubles() const { return largest && step == 1 && taps >= 5; }
  bool across() const { return way == pool_way::flat || way == pool_way::shifted; }
  // Whether outputs lie in dst as in the call; such as are but bounded go straight there.
  bool lies_as_dst() const { return !across() || out.channels_are_rows || out.ldc == n; }
  // Inputs from the first tap to the last, and those that windows span along x, padding included.
  ptrdiff_t reach() const { return taps > 1 ? (ptrdiff_t(taps) - 1) * apart : 0; }
  size_t span() const { return size_t((ptrdiff_t(count) - 1) * step + reach() + 1); }
  size_t phase_floats() const { return whole(count * n) + whole(size_t(reach() / step) * n); }
  size_t fold_floats() const {
    if (way == pool_way::flat) return phase_floats() * size_t(step) + 16;
    return way == pool_way::pixels ? (span() < size_t(width) ? span() : size_t(width)) * whole(n) + 16 : 0;
  }
  size_t tile_floats() const { return whole(count * n) + 16; }
  static size_t whole(size_t floats) { return (floats + 15) / 16 * 16; }
};

// ---- slices_f32 -------------------------------------------------------------------------------
//
// Passes over pieces of slices, for reductions, norms and softmax.  A piece is m rows of n elements side by side,
// `row` apart.  It belongs to one slice, and `count` slices, `step` apart, have one each; or it is `down`: then count
// is 1, and each of its n columns belongs to a slice of its own.  What there is one of for each slice has whole
// vectors of room.
//
//   fold    to[s] = the sum, largest or smallest of f(x) over all of a piece, or down column s
//   apply   C[s][i][j] = epilogue(g(x)), with a, b, c of the slice
//
// Sums are added up in an order that m and n alone fix.  Of a piece element j of each row goes to lane j % 64 (of
// two results, 32); lanes are added 32 apart, 16, 8, 4, 2 and neighbours.  Down a column eight rows, of
// exponentials four, are added as a tree, and such sums one after the other.
enum class fold_of : uint8_t {
  sum,           // x
  magnitudes,    // |x|
  squares,       // x * x
  sample,        // x, and into `also` |x|
  deviations,    // x - from, and into `also` their squares
  largest,       // x; a NaN is kept
  smallest,      // likewise
  peak,          // the largest, where NaN counts as nothing; of nothing the least finite number
  exponentials,  // e^(x - from), which is at most 1
};

struct slices_fold_f32 {
  fold_of what;
  bool down;
  size_t count, m, n;
  const float* src;
  ptrdiff_t step, row;
  const float* from;
  float *to, *also;
  float* keep;  // not NULL: exponentials go there, too, in dense rows, slices keep_step apart
  ptrdiff_t keep_step;
};

enum class apply_of : uint8_t {
  scaled,       // (x - a) * b + c
  exponential,  // e^(x - a) * b
  shifted,      // (x - a) - b
};

struct slices_apply_f32 {
  apply_of what;
  bool down;
  size_t count, m, n;
  const float* src;
  ptrdiff_t step, row;
  const float *a, *b, *c;
  output_f32 out;  // of the first slice; output channels run along columns, or channels_are_rows: stay in a row
  ptrdiff_t dst_step, residual_step, channel_step;  // from slice to slice
  ptrdiff_t channel_row;                            // from row to row
};

struct slices_functions {
  void (*fold)(const slices_fold_f32&);
  void (*apply)(const slices_apply_f32&);
  void (*finish)(const output_f32&, size_t m, size_t n, const float* tile, size_t tile_row);
};

// ---- elementwise_f32 --------------------------------------------------------------------------
//
//   C[i][j] = epilogue(src[i * src_row + j] op other[i * other_row + j])         or other[i * other_row] all along
//
// for m rows of n elements side by side.  UNARY has no other, and C is epilogue(src).  MAX and MIN of a NaN are NaN.
struct elementwise_f32 {
  quern_op op;
  size_t m, n;
  const float* src;
  size_t src_row;
  const float* other;
  size_t other_row;
  bool same;  // one element of other for all of a row
  output_f32 out;
  bool one_channel;  // where out.channels_are_rows: all of them are out.channel
};

// ---- reference --------------------------------------------------------------------------------
//
// Elements [first, last) of dst, counted in the order n k o p q, of a complete problem.  Sums in double,
// rounds once.

// ---- CUDA kinds -------------------------------------------------------------------------------
//
// A kernel of a GPU takes one struct by value, which the header beside it in src/cuda/ defines:
//
//   reference_cuda    cuda/reference.h
//   implicit_f32      cuda/implicit.h; tensor too
//   tma               cuda/tma.h
//   tma_f16x3         cuda/tma_f16x3.h
//   few_channels      cuda/few_channels.h
//   quads             cuda/quads.h
//   walk              cuda/walk.h
//   group             cuda/group.h
//   group_box         cuda/group_box.h
//   depthwise_box     cuda/depthwise_box.h
//   depthwise_image   cuda/depthwise_image.h
//   toeplitz          cuda/toeplitz.h
//   first_layer       cuda/first_layer.h
//   first_box         cuda/first_box.h
//   pooling           cuda/pooling.h
//   slices            cuda/slices.h
//   elementwise       cuda/elementwise.h

// ---- The row ----------------------------------------------------------------------------------

// A set of operators.
struct op_set {
  static constexpr int most = 64;
  uint64_t bits;
  template <class... Op>
  constexpr op_set(Op... op) : bits((uint64_t{0} | ... | (uint64_t{1} << op))) {}
  constexpr bool has(quern_op op) const { return bits >> op & 1; }
};

enum class kind : uint8_t {
  reference,
  gemm_f32,
  depthwise_f32,
  depthwise_planar_f32,
  winograd_f32,
  winograd_line_f32,
  reorder_f32,
  grouped_f32,
  grouped_planes_f32,
  few_planes_f32,
  grouped_winograd_f32,
  grouped_planes_winograd_f32,
  split_f32,
  dot_f32,
  pool_f32,
  slices_f32,
  elementwise_f32,
  reference_cuda,
  implicit_f32,
  tensor,
  tma,
  tma_f16x3,
  few_channels,
  first_layer,
  first_box,
  pooling,
  slices,
  elementwise,
  quads,
  walk,
  group,
  group_box,
  depthwise_box,
  depthwise_image,
  toeplitz
};
constexpr size_t kinds = size_t(kind::toeplitz) + 1;

// How a kernel of kind implicit_f32 or tensor finds what it reads.
enum class index_scheme : uint8_t { increments, division, table };

struct kernel_list;

struct kernel {
  const char* name;   // public and final: never reused for other numerics
  const char* about;  // what it is for
  enum kind kind;
  op_set op = {};               // references: the operators; none: any that an algorithm builds on this kind
  quern_type type = QUERN_F32;  // of src and weights; 0: any
  quern_accuracy accuracy = QUERN_ACCURACY_DEFAULT;  // of sums of this type; default: the algorithm's
  uint64_t isa = 0;                                  // QUERN_ISA_* bits, all needed
  int16_t mr = 0, nr = 0;  // register tile; winograd_f32: outputs of a tile along y and x, lines have the latter
  int16_t vector = 0;      // elements of a vector register: what a tail of n is rounded up to

  int16_t taps = 0, step = 0;   // the filter's width and stride that it is made for, 0: any
  bool channels_last = false;   // all of a few pixels before the next ones: squares of `taps`, channels last alone
  int16_t group = 0;            // channels in and out of a group, 0: any
  bool several_groups = false;  // of any size up to half a vector, side by side in one
  int16_t lines = 0;            // of outputs that a tile has; tma: most taps of a filter that stays in shared memory
  int16_t tile = 0;  // winograd_line_f32, grouped_*winograd_f32: m, outputs of a tile; dot_f32: its sums; walk,
                     // group: blocks that registers let share a multiprocessor

  const kernel_list* winograd = nullptr;  // gemm_f32, split_f32: winograd_f32 rows of its ISA, if the build has them

  void (*gemm)(const gemm_f32&) = nullptr;
  void (*copy)(const copy_f32&) = nullptr;
  void (*depthwise)(const depthwise_f32&) = nullptr;
  void (*depthwise_planar)(const depthwise_planar_f32&) = nullptr;
  void (*grouped)(const grouped_f32&) = nullptr;
  void (*planes)(const grouped_planes_f32&) = nullptr;
  void (*few_planes)(const few_planes_f32&) = nullptr;
  void (*reorder)(const reorder_f32&) = nullptr;
  void (*winograd_input[2])(const winograd_input_f32&) = {};  // along x; along y and x
  void (*winograd_output[2])(const winograd_output_f32&) = {};
  void (*winograd_line)(const winograd_transform_f32&) = nullptr;
  void (*winograd_strip)(const winograd_strip_f32&) = nullptr;
  void (*winograd_finish)(const winograd_sums_f32&) = nullptr;
  const split_functions* split = nullptr;
  void (*dot)(const dot_f32&) = nullptr;
  void (*pool)(const pool_f32&) = nullptr;
  const slices_functions* slices = nullptr;
  void (*elementwise)(const elementwise_f32&) = nullptr;
  void (*reference)(const quern_problem&, const quern_args&, int64_t first, int64_t last) = nullptr;

  // CUDA: an entry of the row's name in the file's fat binary.
  const unsigned char* image = nullptr;
  uint32_t capability = 0;        // least compute capability, 10 * major + minor
  bool capability_alone = false;  // no other has its instructions
  uint32_t src_align = 1;         // bytes that src must be aligned to
  uint32_t threads = 0;           // of a block
  uint32_t shared_bytes = 0;      // dynamic shared memory of a block
  uint32_t cluster = 1;           // blocks that share a tile, each a part of its sums
  bool early = false;             // starts before what precedes it has ended, and waits for that, as code for 9.0
  index_scheme index = index_scheme::increments;
};

struct kernel_list {
  const kernel* rows;
  size_t count;
};

}  // namespace quern

// The last lines of a kernel file: its rows.  `stem` is the file's name without ending.
#define QUERN_KERNELS(stem, ...)                                                     \
  namespace quern::rows {                                                            \
  namespace {                                                                        \
  constexpr kernel table_##stem[] = {__VA_ARGS__};                                   \
  }                                                                                  \
  extern const kernel_list stem;                                                     \
  constexpr kernel_list stem = {table_##stem, sizeof table_##stem / sizeof(kernel)}; \
  }
