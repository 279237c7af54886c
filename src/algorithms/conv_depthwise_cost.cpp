// SPDX-License-Identifier: MIT
//
// Blocks and cost of conv_depthwise.cpp: what is turned, and in which order lines and pixels go.
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
#include "conv_depthwise.h"
#include "depthwise_classes.h"
#include "strips.h"

namespace quern::depthwise_driver {
namespace {

// Channels in a row that one call takes.
bool one_row_of_vectors(int64_t block, int64_t stride, int64_t channels, int64_t vector) {
  return block == 1 ? channels == 1 || stride == 1 : block % vector == 0 || channels <= block;
}

}  // namespace

turned turned_of(const quern_problem& p, const geometry& g, const kernel& row) {
  const int64_t k = g.groups * g.k, vector = row.vector;
  // Kernels find the inputs of a vector of outputs by counting vectors.
  const bool spread = g.k > 1 && (row.taps || g.src_block > vector);
  return {spread || !one_row_of_vectors(g.src_block, g.src[1], g.groups, vector),
          !one_row_of_vectors(g.dst_block, g.dst[1], k, vector),
          p.epilogue.residual && !one_row_of_vectors(g.residual_block, g.residual[1], k, vector)};
}

int64_t lines_together(const geometry& g) {
  return std::min(std::max<int64_t>(1, g.out[1]), g.phases(1) * (g.dilation[1] / std::gcd(g.stride[1], g.dilation[1])));
}

int64_t lines_under(const geometry& g, int64_t lines) {
  const int64_t reach = (g.filter[1] - 1) * g.dilation[1], last = lines - 1;
  return std::min(g.in[1], 1 + (g.transposed ? (last + reach) / g.stride[1] : last * g.stride[1] + reach));
}

int64_t side_by_side(const geometry& g, int64_t vector) {
  int64_t least = 0;
  for (const int64_t block : {g.src_block, g.dst_block, g.residual_block})
    if (block > vector && (least == 0 || block < least)) least = block;
  return least;
}

namespace {

// How many pixels a line of so many costs vectors of eight that know their filter: strips have seven or four, and the
// last lies over the one before; a pixel by itself waits for each multiply-add (Zen 3).
double pixels_of_strips(int64_t pixels, double taps) {
  const double alone = 1 + taps / 2;
  if (pixels < 4) return double(pixels) * alone;
  const int64_t whole = pixels < 7 ? 4 : pixels / 7 * 7, rest = pixels - whole;
  return double(whole) + (rest == 0 ? 0 : rest == 1 ? alone : rest <= 4 ? 4 : 7);
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
  const double sums = inside * rows * (std::max(taps, loads) / 2 + spread) + around + far;
  if (row.vector != 8 || row.channels_last) return pixels * vectors * sums;
  // Strips for any filter wait for each multiply-add, and take what of channels is less than a vector.
  const int64_t line = up(ph.w.out_count, axis_class::count_of(ph.w));
  const double any = g.k > 1 && !t.src ? 1.4 : g.stride[2] == 1 ? 1.65 : 1.9;
  const double made = row.taps && line ? pixels_of_strips(line, taps) / double(line) : any;
  const double part = g.groups * g.k % row.vector ? 1 : 0;
  return pixels * sums * (made * (vectors - part) + std::max(made, 2.5) * part);
}

// Lines of outputs that are with their inputs so many bytes, at least two: of one, L1 would serve a filter nothing.
int64_t lines_of(const geometry& g, double bytes) {
  const double lines = double(g.n * g.out[0] * g.out[1]) * bytes;
  const double fit = lines / std::max(1.0, operand_bytes(g, 0).all() * double(g.filter[0]));
  return int64_t(std::clamp(fit + 0.5, 2.0, 1e9));
}

// Outputs of a band and some channels are those of one call.
bool one_call(const geometry& g) {
  const phase ph = phase_of(g, 0);
  return g.phases() * g.out[0] == 1 && axis_class::count_of(ph.h) * axis_class::count_of(ph.w) == 1;
}

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
// than eight, and each plane its ends; of blocks each four; of those that are spread 0.25 more (Zen 4).  Vectors of
// eight take more of each (Zen 3).
double turning_cycles(const geometry& g, const turned& t, const kernel& row, const machine& on, double in_lines) {
  const bool narrow = row.vector == 8;
  const double groups = double(g.n * g.groups), k = double(g.k), straight = narrow ? 0.43 : 0.35;
  const auto of = [&](const int64_t* stride, int64_t block, double elements, double each) {
    if (block == 1 && stride[1] != 1) return each * elements + (narrow ? 15 : 10);
    return 4.0 / double(block == 1 ? turned_channels : block) * elements;
  };
  const double in = double(g.in[0] * g.in[2]) * in_lines, out = double(g.out[0] * g.out[1] * g.out[2]);
  const double spread = g.k > 1 ? (narrow ? 0.6 : 0.25) * k * in : 0;
  return clock_cycles(on) * groups *
         (t.src * (of(g.src, g.src_block, in, g.k > 2 ? 1 : straight) + spread) +
          t.dst * k * of(g.dst, g.dst_block, out, straight) +
          t.residual * k * of(g.residual, g.residual_block, out, straight));
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

void choose_turned(const geometry& g, const turned& t, const kernel& row, const machine& m, int64_t wanted,
                   blocking& b) {
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
  b.cycles += turning_cycles(g, {t.src, false, false}, row, m, std::max(0.0, again));
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

}  // namespace

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const turned t = turned_of(p, g, row);
  const int64_t packed = up(g.groups * g.k, row.vector), vectors = std::max<int64_t>(1, packed);
  blocking b = {};
  b.packed_bytes = uint64_t(g.taps() * packed * row.vector) * sizeof(float);
  b.cycles = pace(row, m) * compute_cycles(g, t, row, m) + turning_cycles(g, t, row, m, double(g.in[1]));
  if (row.channels_last) b.cycles += crowded_cycles(g, row, m);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  if (t.any()) {
    choose_turned(g, t, row, m, wanted, b);
    return b;
  }
  if (is_crowded(g, row, m)) {
    constexpr turned crowds = {true, false, false, crowd};
    blocking by_crowds = b;
    by_crowds.cycles += turning_cycles(g, crowds, row, m, double(g.in[1]));
    choose_turned(g, crowds, row, m, wanted, by_crowds);
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

}  // namespace quern::depthwise_driver
