// SPDX-License-Identifier: MIT
//
// Depthwise convolution, forward and transposed, any number of outputs a channel, where channels lie side by side:
// NHWC, and blocks of channels that are whole vectors.  Operands of other layouts are turned on their way.
//
//   item = image, column of pixels, band of lines, block of channels   one task of the parallel_for
//     row.copy                                                           of src and residual what does not lie so
//     for phase, class of lines, class of pixels
//       for output plane
//         row.depthwise                                                  vector by vector, each over all lines
//     row.copy                                                           dst, likewise
//
// Rows that take all channels of a few pixels at a time read memory in streams, and need no order.  Of the others a
// vector of channels goes through all lines before the next one: the lines under the filter stay in L1.  Where
// vectors share lines of the cache and what is beyond L2 comes slowly, lines go in bands, or their neighbours were
// fetched several times.  Bands are short: while one is computed the lines of the next come into L2, all channels of a
// pixel after the other, as a core reads fastest (1.2 to 1.3 times as fast as vector by vector, a line ahead, in bands
// of half of L2: Granite Rapids).  Where lines are wide an image goes in columns, or L2 lost what two bands share
// before the second one came (1.1 to 1.7 times as fast: Zen 5).  What a faster L3 keeps goes in columns of a few strips
// through all lines instead, where each load walks at one pace that hardware foresees and nothing needs to be asked for
// (1.1 to 1.9 times as fast from L3: Zen 5).  Blocks from memory have no neighbours to share lines with: their kernels
// ask for the lines below (1.3 to 2.4 times as fast: Zen 5).
#include "ahead.h"
#include "depthwise_classes.h"
#include "strips.h"
#include "turned.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_channels, blocks, column, width, flags, src_lines, dst_lines };
enum flag { bands_ahead = 1, line_ahead = 2, streams = 4, crowded = 8 };

// Channels in a row that one call takes.
bool one_row_of_vectors(int64_t block, int64_t stride, int64_t channels, int64_t vector) {
  return block == 1 ? channels == 1 || stride == 1 : block % vector == 0 || channels <= block;
}

// The operands that do not lie in rows of vectors.  A src that is turned has a channel for each output, which kernels
// made for a filter want.
struct turned {
  bool src, dst, residual;
  int64_t together = turned_channels;  // of src

  bool any() const { return src || dst || residual; }
  // Elements of the workspace for so many lines of each.
  double size(const geometry& g, int64_t in_lines, int64_t out_lines) const {
    return double(src) * turned_size(g.in, in_lines, together) +
           (double(dst) + double(residual)) * turned_size(g.out, out_lines);
  }
};

turned turned_of(const quern_problem& p, const geometry& g, const kernel& row) {
  const int64_t k = g.groups * g.k, vector = row.vector;
  // Kernels find the inputs of a vector of outputs by counting vectors.
  const bool spread = g.k > 1 && (row.taps || g.src_block > vector);
  return {spread || !one_row_of_vectors(g.src_block, g.src[1], g.groups, vector),
          !one_row_of_vectors(g.dst_block, g.dst[1], k, vector),
          p.epilogue.residual && !one_row_of_vectors(g.residual_block, g.residual[1], k, vector)};
}

// A band has whole groups of so many lines of outputs: a line of each phase, and of each class.
int64_t lines_together(const geometry& g) {
  return std::min(std::max<int64_t>(1, g.out[1]), g.phases(1) * (g.dilation[1] / std::gcd(g.stride[1], g.dilation[1])));
}

// Lines of the image that so many lines of outputs read, at most.
int64_t lines_under(const geometry& g, int64_t lines) {
  const int64_t reach = (g.filter[1] - 1) * g.dilation[1], last = lines - 1;
  return std::min(g.in[1], 1 + (g.transposed ? (last + reach) / g.stride[1] : last * g.stride[1] + reach));
}

refusal refuse_turned(const full_problem& p, const turned& t) {
  const geometry& g = geometry_of(p);
  if (t.dst && g.dst_block == 1 && g.dst[4] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[4]", g.dst[4], 1};
  constexpr int64_t most = int64_t{1} << 26;
  const int64_t lines = lines_together(g);
  const double size = t.size(g, lines_under(g, lines), lines);
  if (size <= double(most)) return {};
  return {QUERN_REASON_SHAPE, "(filter rows * row of src + row of dst) * 16", int64_t(std::min(size, 1e18)), most};
}

// A row's step along an axis, after dilation has made classes.
refusal refuse_step(const geometry& g, const kernel& row, int axis) {
  const int64_t step = g.stride[axis] / std::gcd(g.stride[axis], g.dilation[axis]);
  return step == row.step ? refusal{} : g.refuse(window_stride, axis, g.stride[axis], row.step * g.stride[axis] / step);
}

// Of rows that take whole vectors of channels side by side.
refusal refuse_channels(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  for (int axis : {0, 1})
    if (const int64_t taps = axis ? row.taps : 1; g.filter[axis] != taps)
      return g.refuse(window_filter, axis, g.filter[axis], taps);
  if (const refusal r = refuse_step(g, row, 1)) return r;
  if (g.k > 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
  if (g.groups % row.vector) return {QUERN_REASON_SHAPE, "groups", g.groups, up(g.groups, row.vector) * row.vector};
  if (g.src_block > 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NHWC};
  if (g.dst_block > 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NHWC};
  if (g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  if (g.dst[1] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[1]", g.dst[1], 1};
  if (!p.epilogue.residual) return {};
  if (g.residual_block > 1) return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NHWC};
  if (g.residual[1] != 1) return {QUERN_REASON_LAYOUT, "residual.stride[1]", g.residual[1], 1};
  return {};
}

refusal refuse(const full_problem& p, const kernel& row) {
  if (const int64_t c = p.src.size[1] / p.groups; c != 1) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, 1};
  const geometry& g = geometry_of(p);
  if (g.filter[0] > most_planes) return g.refuse(window_filter, 0, g.filter[0], most_planes);
  if (row.taps) {
    if (g.filter[2] != row.taps) return g.refuse(window_filter, 2, g.filter[2], row.taps);
    if (g.transposed && g.stride[2] != 1) return {QUERN_REASON_SHAPE, "op", p.op, QUERN_CONV};
    if (const refusal r = refuse_step(g, row, 2)) return r;
  }
  if (row.channels_last)
    if (const refusal r = refuse_channels(p, row)) return r;
  const turned t = turned_of(p, g, row);
  if (const refusal r = g.refuse_phases(); r || !t.any()) return r;
  return refuse_turned(p, t);
}

// A multiply-add of a vector costs half a cycle; a load as much, of pixels once for all taps that share it,
// where the kernel knows its filter.
double compute_cycles(const geometry& g, const turned& t, const kernel& row, const machine& on) {
  const double pixels = double(g.n * g.out[0] * g.out[1] * g.out[2]), vectors = double(up(g.groups * g.k, row.vector));
  const double rows = double(g.filter[0] * g.filter[1]) / double(g.transposed ? g.stride[0] * g.stride[1] : 1);
  const double taps = double(g.filter[2]) / double(g.transposed ? g.stride[2] : 1);
  const double m = row.mr, loads = row.taps ? ((m - 1) * row.step + 2 * taps) / m : taps + taps / m;
  const phase ph = phase_of(g, 0);
  const double inside = share_inside(ph.h) * share_inside(ph.w);
  // Around a line, or two or three of them at once.
  const bool square = row.taps == 3 && row.step == 1 && g.filter[1] == 3 && g.stride[1] == 1;
  const bool three = square && row.vector == 16, two = square && row.vector == 8;
  // Of one line or column, rows of all channels have strips whose weights serve one or two sums.
  const double alone = g.out[2] < 2 ? 15 : g.out[1] < 2 ? 4 : 0.7;
  const double around = row.channels_last ? alone : in_halves(on) ? (three ? 0.8 : 2.1) : two ? 1.7 : 2.5;
  // Several outputs of a channel whose pixels are spread by the kernel: for taps side by side a pixel serves several.
  const double spread = g.k == 1 || t.src ? 0 : ph.w.in_step == 1 ? 1.5 : 3.5;
  // Narrow vectors of pixels channels last come from a line of the cache each, and again.
  const double far = row.vector < 16 && !row.channels_last && !t.src && channels_dense(g.src, g.src_block) ? 3 : 0;
  return pixels * vectors * (inside * rows * (std::max(taps, loads) / 2 + spread) + around + far);
}

// The most channels that lie side by side in every operand whose blocks are several vectors, 0 where none has such.
int64_t side_by_side(const geometry& g, int64_t vector) {
  int64_t least = 0;
  for (const int64_t block : {g.src_block, g.dst_block, g.residual_block})
    if (block > vector && (least == 0 || block < least)) least = block;
  return least;
}

// Lines of outputs that are with their inputs so many bytes, at least two: of one, L1 would serve a filter nothing.
int64_t lines_of(const geometry& g, double bytes) {
  const double lines = double(g.n * g.out[0] * g.out[1]) * bytes;
  const double fit = lines / std::max(1.0, operand_bytes(g, 0).all() * double(g.filter[0]));
  return int64_t(std::clamp(fit + 0.5, 2.0, 1e9));
}

// The parts of a line that are so many pixels wide, and one of them; the last one has what is left, too.
int64_t parts_of(int64_t pixels, int64_t width) { return std::max<int64_t>(1, pixels / width); }
range part_of(int64_t pixels, int64_t width, int64_t i) {
  return {i * width, i + 1 < parts_of(pixels, width) ? (i + 1) * width : pixels};
}

// Outputs of a band and some channels are those of one call.
bool one_call(const geometry& g) {
  const phase ph = phase_of(g, 0);
  return g.phases() * g.out[0] == 1 && axis_class::count_of(ph.h) * axis_class::count_of(ph.w) == 1;
}

// Channels of pixels that share few sets, which are turned together.  A page holds few such pixels: of fewer channels
// finding pages takes longer than copying (1.2 to 1.3 times as fast as sixteen, Zen 3).
constexpr int64_t crowd = 64;

// Lines that the fullest set of L1 gets of so many pixels of a tensor, where a way has 64 sets.
double in_a_set(double pixels, int64_t apart) {
  constexpr int64_t way = 1024;  // floats
  return std::ceil(pixels / double(std::min<int64_t>(64, way / std::gcd(std::max<int64_t>(1, apart), way))));
}

// Pixels under the filter of so many of outputs in a row.
double pixels_under(const geometry& g, int64_t pixels) {
  return double(g.filter[1]) * double((pixels - 1) * g.stride[2] + (g.filter[2] - 1) * g.dilation[2] + 1);
}

// Ways of L1 that those fill beside the outputs, and those that it has.
double ways_of(const geometry& g, int64_t pixels) {
  return in_a_set(pixels_under(g, pixels), g.src[4]) + in_a_set(double(pixels), g.dst[4]);
}
double ways_of(const machine& m) { return double(m.l1) / 4096; }

// Whether what is under a strip leaves none, as pixels channels last share few sets, but would if they lay closer
// together, and L2 has room for what is turned.  Lines a page apart then take an AMD core ten clocks each, which finds
// ways by a hash of addresses (Lipp et al., Take A Way, 2020); Intel's takes four, as for any line of L2, and turning
// lost a third (Zen 3, Sapphire Rapids).  What loads a line once, as vectors of sixteen and rows of all channels do,
// has nothing to gain, or was not measured.
bool is_crowded(const geometry& g, const kernel& row, const machine& m) {
  constexpr int64_t strip = 7;
  const bool loads_once = row.vector > 8 || row.channels_last;
  return is_model_of(m.model, amd) && !loads_once && one_call(g) && g.k == 1 && channels_dense(g.src, g.src_block) &&
         in_a_set(pixels_under(g, strip), g.src[4]) >= ways_of(m) &&
         in_a_set(pixels_under(g, strip), crowd) < ways_of(m) &&
         4 * turned_size(g.in, lines_under(g, 1), crowd) <= double(m.l2);
}

// Inputs of two outputs of each of two lines, for rows of all channels.
int64_t under_square(const kernel& row) { return int64_t(row.step + row.taps) * (row.step + row.taps); }

// What those rows wait for lines that share sets of L1 with too many others (Zen 3).
double crowded_cycles(const geometry& g, const kernel& row, const machine& m) {
  if (in_a_set(double(under_square(row)), g.src[4]) + in_a_set(4, g.dst[4]) <= ways_of(m)) return 0;
  const double strips = double(g.n * g.out[1] * g.out[2]) / 4, lines = double(up(g.groups, 16) * under_square(row));
  return 2 * strips * lines;
}

// Pixels of outputs of a column: four strips, fewer if L1 keeps only what is under those.  Of vectors that come twice
// for a line it also keeps the outputs, and has a way to spare (1.1 to 1.2 times as fast from L3, Zen 3).
int64_t column_pixels(const geometry& g, const kernel& row, const machine& m) {
  const auto fits = [&](int64_t pixels) {
    return row.vector < 16 ? ways_of(g, pixels) < ways_of(m)
                           : in_a_set(pixels_under(g, pixels), g.src[4]) <= ways_of(m);
  };
  int64_t pixels = 28;
  while (pixels > 7 && !fits(pixels)) pixels /= 2;
  return pixels;
}

// Pixels of a line that go together where all lines of a band follow: a strip, or what L1 keeps under the filter.
int64_t pixels_kept(const geometry& g, const kernel& row, const machine& m, int64_t most) {
  if (row.channels_last || g.src_block > 1 || ways_of(g, most) <= ways_of(m)) return most;
  return std::min(most, std::max<int64_t>(row.mr, column_pixels(g, row, m)));
}

// What turning takes, of so many lines of each image: an element of planes 0.35 clocks, or one where they are fewer
// than eight, and each plane its ends; of blocks each four; of those that are spread 0.25 more (Zen 4).
double turning_cycles(const geometry& g, const turned& t, const machine& on, double in_lines) {
  const double groups = double(g.n * g.groups), k = double(g.k);
  const auto of = [&](const int64_t* stride, int64_t block, double elements, double each = 0.35) {
    if (block == 1 && stride[1] != 1) return each * elements + 10;
    return 4.0 / double(block == 1 ? turned_channels : block) * elements;
  };
  const double in = double(g.in[0] * g.in[2]) * in_lines, out = double(g.out[0] * g.out[1] * g.out[2]);
  const double spread = g.k > 1 ? 0.25 * k * in : 0;
  return clock_cycles(on) * groups *
         (t.src * (of(g.src, g.src_block, in, g.k > 2 ? 1 : 0.35) + spread) + t.dst * k * of(g.dst, g.dst_block, out) +
          t.residual * k * of(g.residual, g.residual_block, out));
}

// Lines of outputs whose band L2 keeps beside what it is turned into, enough that those under two bands count little.
// Pixels of all channels come back for every sixteen of these, which does not pay from further than twice L2 (depthwise
// 3x3 from 256 channels to 512, 112x112, channels last: 1.6 times as fast, Zen 4).
int64_t lines_of_turned(const geometry& g, const turned& t, const machine& m) {
  // The lines of outputs that move a filter on, those that it moves by, and bytes of so many blocks of channels of
  // both.
  const int64_t out_step = g.phases(1), in_step = g.transposed ? 1 : std::min(g.stride[1], g.in[1]);
  const auto bytes_of = [&](double src, double dst, double residual) {
    return std::max(
        1.0, 4 * (src * turned_size(g.in, in_step, t.together) + (dst + residual) * turned_size(g.out, out_step)));
  };
  const auto beside = [&](const int64_t* stride, int64_t block, int64_t channels) {
    return channels_dense(stride, block) ? double(channels) / double(t.together) : 0;
  };
  const int64_t k = g.groups * g.k;
  const double copied = bytes_of(t.src, t.dst, t.residual);
  const double lying = bytes_of(beside(g.src, g.src_block, g.groups), beside(g.dst, g.dst_block, k),
                                beside(g.residual, g.residual_block, k));
  const int64_t steps = int64_t(double(m.l2) * std::min(0.25 / copied, 2 / lying));
  return std::max({steps * out_step, lines_under(g, 1), int64_t{1}});
}

void choose_turned(const geometry& g, const turned& t, const machine& m, int64_t wanted, blocking& b) {
  const int64_t high = std::max<int64_t>(1, g.out[1]), together = lines_together(g), most = up(high, together);
  // An item has a crowd after the other, as many as leave work for all.
  const bool by_crowds = t.together == crowd;
  const int64_t sets = std::max<int64_t>(1, up(g.groups * g.k, t.together)), images = std::max<int64_t>(1, g.n);
  const int64_t parts = by_crowds ? std::min(sets, up(wanted, images)) : sets;
  b.word[flags] = by_crowds ? crowded : 0;
  b.word[block_channels] = up(sets, parts) * t.together;
  b.word[blocks] = up(g.groups * g.k, b.word[block_channels]);
  b.word[column] = b.word[width] = std::max<int64_t>(1, g.out[2]);
  const int64_t others = std::max<int64_t>(1, images * b.word[blocks]);
  b.word[bands] = std::clamp(std::max(up(high, lines_of_turned(g, t, m)), up(wanted, others)), int64_t{1}, most);
  b.word[dst_lines] = std::min(high, up(most, b.word[bands]) * together);
  b.word[src_lines] = lines_under(g, b.word[dst_lines]);
  // Lines under two bands are turned for both.
  const double again = double(b.word[bands] * b.word[src_lines] - g.in[1]);
  b.cycles += turning_cycles(g, {t.src, false, false}, m, std::max(0.0, again));
  const int64_t bytes = int64_t(4 * t.size(g, b.word[src_lines], b.word[dst_lines]));
  b.workspace_bytes = uint64_t(up(bytes, QUERN_ALIGN) * QUERN_ALIGN);
}

// In which order outputs are computed.
struct order {
  double bytes;                  // of a band, with its inputs
  int64_t column;                // pixels of outputs
  bool bands_ahead, line_ahead;  // the next band is fetched into L2 meanwhile; kernels fetch the next line
};

// Pixels that go together where bands are fetched ahead: as many as one strip takes of a stride of 1; every kernel has
// strips of seven.
int64_t pixels_ahead(const geometry& g, const kernel& row) {
  return std::max<int64_t>(7, row.mr / axis_class(phase_of(g, 0).w, 0, 1).step);
}

order order_of(const geometry& g, const kernel& row, const machine& m, double cycles) {
  const operand_bytes o(g, 0);
  const bool in_pieces = one_call(g) && g.src_block == 1 && g.dst_block == 1 && mostly_slowly(g, m);
  const double kept = o.image + (streams_outputs(g, m) ? 0.5 : 1) * o.output, wait = o.cycles(m, o.image, false);
  const double l2 = double(m.l2), l3 = slow_l3(m) ? 0 : double(m.l3);
  const bool in_l3 = kept <= 0.7 * l3;
  const int64_t wide = std::max<int64_t>(1, g.out[2]);
  // Streams need no order.
  if (row.channels_last) return {2 * o.all(), wide, false, false};
  // A band by itself is a quarter of L2.
  order by = {l2 / 4, wide, false, false};
  if (in_pieces && in_l3) {
    // A column has all lines; what L3 only just keeps goes in bands whose columns are one and a half of L2.
    by.column = column_pixels(g, row, m);
    by.bytes = o.all() > l3 / 2 ? 1.5 * l2 * double(parts_of(wide, by.column)) : 2 * o.all();
  } else if (in_pieces && wait > cycles) {
    by.bands_ahead = true;
    by.bytes = l2 / 12;
    if (l3 > 0) {
      // What one line of a column takes is a twentieth of L2, or two pieces; what its band takes is a sixth.
      const int64_t piece = pixels_ahead(g, row);
      const double pixels = double(g.n * g.out[1] * g.out[2]) * l2 / 20 / o.all();
      const int64_t most = std::max(int64_t(std::min(pixels, 1e9)), 2 * piece);
      by.column = std::max(wide / up(wide, most) / piece, int64_t{1}) * piece;
      by.bytes = l2 / 6 * double(parts_of(wide, by.column));
    }
  }
  by.line_ahead = l3 > 0 && !in_l3 && !by.bands_ahead;
  return by;
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const turned t = turned_of(p, g, row);
  const int64_t packed = up(g.groups * g.k, row.vector), vectors = std::max<int64_t>(1, packed);
  blocking b = {};
  b.packed_bytes = uint64_t(g.taps() * packed * row.vector) * sizeof(float);
  b.cycles = pace(row, m) * compute_cycles(g, t, row, m) + turning_cycles(g, t, m, double(g.in[1]));
  if (row.channels_last) b.cycles += crowded_cycles(g, row, m);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  if (t.any()) {
    choose_turned(g, t, m, wanted, b);
    return b;
  }
  if (is_crowded(g, row, m)) {
    constexpr turned crowds = {true, false, false, crowd};
    blocking by_crowds = b;
    by_crowds.cycles += turning_cycles(g, crowds, m, double(g.in[1]));
    choose_turned(g, crowds, m, wanted, by_crowds);
    if (by_crowds.workspace_bytes <= m.workspace / by_crowds.workers) return by_crowds;
  }
  const int64_t high = std::max<int64_t>(1, g.out[1]), fixed = std::max<int64_t>(1, g.n);
  const bool shared = g.src_block == 1 || g.dst_block == 1 || side_by_side(g, row.vector) > 0;
  const order by = order_of(g, row, m, b.cycles);
  const int64_t lines = std::min(high, lines_of(g, by.bytes));
  // Strips of all channels take two lines, and are parted last.
  const int64_t most = row.channels_last ? std::max<int64_t>(1, high / row.lines) : up(high, lines_together(g));
  const int64_t least = row.channels_last              ? std::min(up(wanted, fixed), most)
                        : shared && comes_slowly(g, m) ? std::clamp(up(wanted, fixed), up(high, lines), high)
                                                       : 1;
  int64_t together = up(vectors, std::min(vectors, up(wanted, fixed * least))) * row.vector;
  // Blocks of channels that are several vectors begin calls.
  if (const int64_t block = side_by_side(g, row.vector)) together = up(together, block) * block;
  b.word[block_channels] = together;
  b.word[blocks] = up(vectors * row.vector, together);
  b.word[bands] = std::min(std::clamp(up(wanted, fixed * b.word[blocks]), least, high), most);
  const bool ahead = by.bands_ahead && b.word[blocks] == 1;
  b.word[column] = by.column;
  b.word[width] = ahead ? pixels_ahead(g, row) : pixels_kept(g, row, m, by.column);
  // Lines of the cache are vectors, or they would go in pieces.
  const bool streamed = streams_outputs(g, m) && row.vector == 16 && (g.dst[3] | g.dst[4]) % 16 == 0;
  b.word[flags] = (ahead ? bands_ahead : 0) | (by.line_ahead ? line_ahead : 0) | (streamed ? streams : 0);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const operand_bytes o(g, b.packed_bytes);
  // Blocks pass as they lie in memory, pixel after pixel, which is what hardware foresees (a tenth faster than every
  // sixteenth part of a line: Granite Rapids, Zen 4); lines of dst are read before they are written.  An L3 that
  // answers in time has its lines fetched ahead: the slower of the two counts, and of memory the larger operand (3x3 to
  // 7x7, from 3 to 134 MB: three of four within a quarter, Zen 5).  A vector narrower than a line of the cache comes
  // back for its rest, after L1 has seen the whole plane; rows of all channels have no inputs from the strip before.
  const bool slow = slow_l3(m);
  const double bytes = o.image + 2 * o.output;
  const double apart =
      (channels_dense(g.src, g.src_block) ? o.image : 0) + (channels_dense(g.dst, g.dst_block) ? 2 * o.output : 0);
  const double share = apart / std::max(bytes, 1.0);
  const double copied = slow ? (0.9 + 0.3 * share) * slow_copy_cycles(g, m)
                             : (0.85 + 0.15 * share) * std::max(o.image, o.output) / copy_rate(m, o.all()) / m.cycle_ns;
  const double plane = 64.0 * double(g.in[1] * g.in[2] + g.out[1] * g.out[2]);
  // Blocks of a vector are lines of their own.
  const double in_parts = (g.src_block == row.vector ? 0 : o.image) + (g.dst_block == row.vector ? 0 : 2 * o.output);
  const double again = row.channels_last      ? o.image * (double(under_square(row)) / (4.0 * row.step * row.step) - 1)
                       : plane > double(m.l1) ? 1.5 * in_parts * (16.0 / row.vector - 1)
                                              : 0;
  return overlapped(row, m, b, copied + again / m.l2_rate / m.cycle_ns, slow ? 0.5 : 0.8);
}

// [phase][vector][tap][channel of the vector], the last one filled up with zeros.
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t vector = j.row.vector, channels = g.groups * g.k, whole = up(channels, vector) * vector;
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    const int64_t channel = w.group * g.k + w.k, lane = channel % vector;
    float* const row = to + w.before * whole + (channel / vector * w.ph.taps() + w.tap) * vector;
    put_lane(row, lane, channel == channels - 1 ? vector : lane + 1, w[0]);
  });
}

// All channels of so many pixels at a time.
void run_parts(const kernel& row, const depthwise_f32& call, int64_t width) {
  const int64_t step = call.x.step, pixels = call.x.count, parts = parts_of(pixels, width);
  if (parts == 1) return row.depthwise(call);
  depthwise_f32 one = call;
  for (int64_t i = 0; i < parts; ++i) {
    one.x.count = part_of(pixels, width, i).count();
    row.depthwise(one);
    one.x.begin -= width * step, one.x.end -= width * step;
    one.origin += width * step * one.x.src;
    one.out.c += width * one.out.ldc;
    if (one.out.residual) one.out.residual += width * one.out.ldr;
    next_share(one.ahead);
  }
}

// With each part goes its share of what the next band, of the lines `next`, reads beyond this one, and of what it
// writes.
void set_ahead(const kernel& row, depthwise_f32& call, range next, int64_t width) {
  const int64_t parts = parts_of(call.x.count, width), lines = call.y.count, pixels = call.x.count;
  const int64_t vectors = up(int64_t(call.n), row.vector) * pixels * lines;
  const int64_t seen = (lines - 1) * call.y.step + int64_t(call.y.taps);
  const int64_t first = std::max<int64_t>(0, call.x.begin);
  const int64_t last = std::min<int64_t>((pixels - 1) * call.x.step + int64_t(call.x.taps), call.x.end);
  call.ahead[0] = share_of(call.src + (call.origin + seen * call.y.src + first * call.x.src),
                           std::min<int64_t>(next.count() * call.y.step, call.y.end - seen),
                           (last - first) * call.x.src, call.y.src, parts, vectors);
  if (!call.out.stream)
    call.ahead[1] = share_of(call.out.c + lines * int64_t(call.y.dst), next.count(), pixels * int64_t(call.out.ldc),
                             int64_t(call.y.dst), parts, vectors);
}

// The lines of outputs that a band has, those that they read, and those of a class of a phase.
range lines_of_band(const geometry& g, int64_t band, int64_t bands) {
  const int64_t together = lines_together(g);
  const range groups = part(up(g.out[1], together), band, bands);
  return {groups.begin * together, std::min(g.out[1], groups.end * together)};
}
range lines_read(const geometry& g, range lines) {
  const int64_t reach = (g.filter[1] - 1) * g.dilation[1], last = lines.end - 1;
  range all = {lines.begin * g.stride[1] - g.pad[1], last * g.stride[1] - g.pad[1] + reach + 1};
  if (g.transposed)
    all = {up(std::max<int64_t>(0, lines.begin + g.pad[1] - reach), g.stride[1]), (last + g.pad[1]) / g.stride[1] + 1};
  all = {std::clamp<int64_t>(all.begin, 0, g.in[1]), std::clamp<int64_t>(all.end, 0, g.in[1])};
  return lines.count() > 0 && all.count() > 0 ? all : range{0, 0};
}
range lines_of_class(const axis& h, const axis_class& y, range lines) {
  const auto before = [&](int64_t line) {
    const int64_t of_phase = std::min(h.out_count, up(std::max<int64_t>(0, line - h.out_begin), h.out_step));
    return up(std::max<int64_t>(0, of_phase - y.first), y.classes);
  };
  return {before(lines.begin), before(lines.end)};
}

// Calls visit(f, phase f, class of its lines, class of its pixels) for all of them.
template <class Visit>
void each_class(const geometry& g, const Visit& visit) {
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    const int64_t high = axis_class::count_of(ph.h), wide = axis_class::count_of(ph.w);
    for (int64_t y = 0; y < high; ++y)
      for (int64_t x = 0; x < wide; ++x) visit(f, ph, axis_class(ph.h, y, high), axis_class(ph.w, x, wide));
  }
}

void run(const job& j, const execution& e) {
  const geometry& real = geometry_of(j.problem);
  const bool by_crowds = j.blocks.word[flags] & crowded;
  const turned t = by_crowds ? turned{true, false, false, crowd} : turned_of(j.problem, real, j.row);
  geometry g = real;
  if (t.src) set_turned(g.src, g.src_block, g.in, j.blocks.word[src_lines], t.together);
  if (t.dst) set_turned(g.dst, g.dst_block, g.out, j.blocks.word[dst_lines]);
  if (t.residual) set_turned(g.residual, g.residual_block, g.out, j.blocks.word[dst_lines]);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t vector = j.row.vector, channels = g.groups * g.k, whole = up(channels, vector) * vector;
  const int64_t columns = parts_of(g.out[2], word[column]), items = g.n * columns * word[bands] * word[blocks];
  // Blocks of several vectors are taken one by one: their vectors are not evenly apart.
  const int64_t block = side_by_side(g, vector), most = block ? block : by_crowds ? crowd : channels;
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    const int64_t part_of_channels = digit(item, word[blocks]), band = digit(item, word[bands]),
                  part_of_lines = digit(item, columns), n = item;
    const int64_t first = part_of_channels * word[block_channels];
    const int64_t last = std::min(channels, first + word[block_channels]);
    // Tensors, or a band of them from these elements on.
    const float *src = static_cast<const float*>(e.args.src), *residual = static_cast<const float*>(e.args.residual);
    float* dst = static_cast<float*>(e.args.dst);
    int64_t src_begin = 0, dst_begin = 0, residual_begin = 0;
    const range out_lines = lines_of_band(g, band, word[bands]);
    float* turned_src = nullptr;
    const auto turn_src = [&](range of) {
      const range in_lines = lines_read(g, out_lines);
      turn_in(j.row, {real.src, real.src_block, g.in, t.together},
              static_cast<const float*>(e.args.src) + n * real.src[0], of, g.k, in_lines, word[src_lines], turned_src);
      src = turned_src, src_begin = of.begin + in_lines.begin * g.src[3];
    };
    if (t.any()) {
      float* free = reinterpret_cast<float*>(workspace);
      const auto take = [&](int64_t lines, const int64_t(&size)[3], int64_t together = turned_channels) {
        return std::exchange(free, free + int64_t(turned_size(size, lines, together)));
      };
      if (t.src) turned_src = take(word[src_lines], g.in, t.together);
      if (t.src && !by_crowds) turn_src({first, last});
      if (t.residual) {
        float* const to = take(word[dst_lines], g.out);
        turn_in(j.row, {real.residual, real.residual_block, g.out}, residual + n * real.residual[0], {first, last}, 1,
                out_lines, word[dst_lines], to);
        residual = to, residual_begin = first + out_lines.begin * g.residual[3];
      }
      if (t.dst) dst = take(word[dst_lines], g.out), dst_begin = first + out_lines.begin * g.dst[3];
    }
    gemm_tap planes[most_planes];
    depthwise_f32 call = {};
    call.plane = planes;
    call.src_vector = g.src_block == 1 || g.src_block > vector ? vector : g.src[1];
    call.dst_vector = g.dst_block == 1 || g.dst_block > vector ? vector : g.dst[1];
    call.residual_vector = g.residual_block == 1 || g.residual_block > vector ? vector : g.residual[1];
    call.multiplier = t.src ? 1 : g.k;
    call.out.epilogue = &epilogue, call.out.stream = word[flags] & streams, call.fetches = word[flags] & line_ahead;
    call.bounded_below = epilogue.lower > -std::numeric_limits<float>::infinity();
    call.bounded_above = epilogue.upper < std::numeric_limits<float>::infinity();
    each_class(g, [&](int64_t f, const phase& ph, const axis_class& y, const axis_class& x) {
      const range within = lines_of_class(ph.h, y, out_lines);
      const range across = part_of(x.count, word[column], part_of_lines);
      const float* weights = reinterpret_cast<const float*>(e.packed) + taps_before(g, f) * whole;
      call.weights_vector = ph.taps() * vector;
      call.x.taps = ph.w.taps, call.y.taps = ph.h.taps;
      call.x.count = across.count(), call.x.step = x.step;
      call.x.src = x.apart * g.src[4], call.y.src = y.apart * g.src[3];
      call.y.step = y.step;
      call.out.ldc = ph.w.out_step * x.classes * g.dst[4];
      call.out.ldr = ph.w.out_step * x.classes * g.residual[4];
      call.y.dst = ph.h.out_step * y.classes * g.dst[3];
      call.y.residual = ph.h.out_step * y.classes * g.residual[3];
      const int64_t line = within.begin * y.step, pixel = across.begin * x.step;
      call.y.count = within.count();
      call.y.begin = y.begin - line, call.y.end = y.end - line;
      call.x.begin = x.begin - pixel, call.x.end = x.end - pixel;
      call.origin = (y.base + line * y.apart) * g.src[3] + (x.base + pixel * x.apart) * g.src[4];
      for (int64_t d = 0; d < ph.d.out_count; ++d) {
        call.planes = planes_of(g, ph, d, planes);
        const auto place = [&](const int64_t* stride) {
          return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] +
                 (ph.h.out_begin + (y.first + within.begin * y.classes) * ph.h.out_step) * stride[3] +
                 (ph.w.out_begin + (x.first + across.begin * x.classes) * ph.w.out_step) * stride[4];
        };
        for (int64_t channel = first; channel < last; channel += most) {
          call.n = std::min(most, last - channel);
          if (by_crowds && (channel - first) % crowd == 0) turn_src({channel, std::min(last, channel + crowd)});
          call.weights = weights + channel / vector * ph.taps() * vector;
          call.input = call.multiplier > 1 ? 0 : channel;
          call.src = src + (n * g.src[0] + g.src_channel(call.input) - src_begin);
          call.out.c = dst + (place(g.dst) + g.dst_channel(channel) - dst_begin);
          call.out.channel = channel;
          if (epilogue.residual)
            call.out.residual = residual + (place(g.residual) + g.residual_channel(channel) - residual_begin);
          if ((word[flags] & bands_ahead) && band + 1 < word[bands])
            set_ahead(j.row, call, part(y.count, band + 1, word[bands]), word[width]);
          run_parts(j.row, call, word[width]);
        }
      }
    });
    if (t.dst)
      turn_out(j.row, {real.dst, real.dst_block, g.out}, static_cast<float*>(e.args.dst) + n * real.dst[0],
               {first, last}, out_lines, word[dst_lines], dst);
    if (word[flags] & streams) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise,
                .about = "one filter a channel, channels across the vector; NHWC and blocks, others turned",
                .drives = kind::depthwise_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .least_cycles = least_by_pixels,
                .error_bound = chain_bound, .pack = pack, .run = run)
