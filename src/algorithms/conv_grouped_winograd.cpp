// SPDX-License-Identifier: MIT
//
// Grouped convolution with few channels a group, 3x3 at stride 1, for NHWC and blocked layouts: Winograd's F(m, 3) down
// the lines, summed along x in registers.
//
//   item = image, band of strips of m lines, run of vectors of output channels    one task of the parallel_for
//     for strip: for mr pixels of it
//       for vector of channels                                                    of several groups
//         row.grouped                                                             as grouped_winograd_f32.h has it
//
// Where L3 is slow the lines of the next strip come into L2 meanwhile, channels last (a fifth of all: Granite Rapids).
#include "conv_grouped_winograd.h"

#include <array>

#include "ahead.h"

namespace quern {
namespace {

using namespace grouped_winograd;

enum word { bands, block_vectors, blocks, fetches, width_of_pieces };

refusal refuse(const full_problem& p, const kernel& row) {
  if (p.groups < 2) return {QUERN_REASON_SHAPE, "groups", p.groups, 2};
  if (const int64_t c = p.src.size[1] / p.groups; c != row.group)
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, row.group};
  if (const int64_t k = p.dst.size[1] / p.groups; k != row.group)
    return {QUERN_REASON_SHAPE, "dst.size[1] / groups", k, row.group};
  if (const refusal why = refuse_window(p)) return why;
  // Channels side by side, or halves of a vector of them.
  const auto takes = [&](const quern_tensor& t) {
    const int64_t block = block_of(t.layout);
    return block == 1 ? t.stride[1] == 1 : block >= row.vector / 2;
  };
  if (!takes(p.src)) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NHWC};
  if (!takes(p.dst)) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NHWC};
  if (p.epilogue.residual && !takes(p.residual))
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NHWC};
  return {};
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const int64_t vectors = up(g.groups * g.k, row.vector);
  blocking b = {};
  b.packed_bytes = uint64_t(vectors * row.group * points * taps * row.vector) * sizeof(float);
  const double strips = double(up(g.out[1], lines)), pieces = double(up(g.out[2], row.mr));
  // A pixel: products and channels spread, both ways of the transform and the epilogue.  A call begins with two pixels
  // that are not all of any output.  Points that wait for their products cost more on the way, most where each pixel is
  // in another page; where they do not wait, it is halves of a vector from two planes that do (a fifth of 4 channels a
  // group), and pixels apart a little (a twentieth; Zen 4 and Zen 5).
  const bool whole = row.group == row.vector, apart = g.src_block == 1 || g.dst_block == 1;
  const auto in_halves_of = [&](int64_t block) { return block * 2 == row.vector; };
  const bool halves = in_halves_of(g.src_block) || in_halves_of(g.dst_block);
  const double spread = whole ? 0 : 0.75;
  const double around = whole ? (apart ? 70 : halves ? 55 : 50) : (halves ? 44 : apart ? 29 : 24);
  const double pixel = double(points * row.group) * (taps + spread) + around;
  b.cycles = pace(row, m) * double(g.n * g.out[0] * vectors) * strips *
             (0.5 * pixel * (double(g.out[2]) + (whole ? 0 : 2 * (pieces - 1))) + 60 * pieces);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1, images = std::max<int64_t>(1, g.n * g.out[0]);
  b.word[bands] = std::clamp<int64_t>(up(wanted, images), 1, std::max<int64_t>(1, int64_t(strips)));
  b.word[block_vectors] = std::max<int64_t>(1, vectors / std::max<int64_t>(1, wanted / (images * b.word[bands])));
  // Weights that L1 does not keep serve all strips while they are there, where L2 has the image.
  if (b.packed_bytes > m.l1 / 2 && operand_bytes(g, b.packed_bytes).all() <= double(m.l2)) b.word[block_vectors] = 1;
  // From memory planes of blocks are read line after line, one vector after the other.
  const bool below = g.src_block > 1 && g.dst_block > 1 && is_waited_for(g, m);
  if (below) b.word[block_vectors] = 1;
  b.word[blocks] = up(vectors, b.word[block_vectors]);
  const bool along = g.src_block == 1 && g.dst_block == 1 && b.word[blocks] == 1 && mostly_slowly(g, m);
  // Where L2 does not keep two strips of lines, one that is computed and one that comes, it does so with pieces of
  // them.
  const double fit = double(m.l2) / 10 / double(points * g.src[4] + lines * g.dst[4]);
  const bool in_pieces = along && fit < double(g.out[2]);
  b.word[fetches] = in_pieces ? fetch_pixels : along || below ? fetch_lines : fetch_nothing;
  b.word[width_of_pieces] =
      in_pieces ? std::clamp(int64_t(fit), std::min<int64_t>(14, row.mr), int64_t(row.mr)) : row.mr;
  return b;
}

// [vector][c][point][s][output]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t width = j.row.vector;
  float* const to = reinterpret_cast<float*>(payload);
  pack_points(g, first, count, static_cast<const float*>(weights),
              [&](int64_t k, int64_t c, int64_t point, int64_t s, float w) {
                float* row = to + (((k / width * g.c + c) * points + point) * taps + s) * width;
                row[k % width] = w;
                if (k + 1 == g.groups * g.k) std::fill(row + k % width + 1, row + width, 0.0f);
              });
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const phase ph = phase_of(g, 0);
  const int64_t* word = j.blocks.word;
  const int64_t width = j.row.vector, half = width / 2, channels = g.groups * g.k, strips = up(g.out[1], lines);
  for_each_item(j, e, g.n * g.out[0] * word[bands] * word[blocks], [&](int64_t item, char*) {
    const int64_t block = digit(item, word[blocks]), band = digit(item, word[bands]), d = digit(item, g.out[0]);
    const int64_t n = item;
    const range all = part(strips, band, word[bands]);
    const int64_t last = std::min(channels, (block + 1) * word[block_vectors] * width);
    const int64_t z = ph.d.in_begin + d * ph.d.in_step;
    const bool inside_z = z >= 0 && z < g.in[0];

    std::array<grouped_row, points> rows;
    uint32_t on_image[2];
    grouped_f32 call = {};
    call.row = rows.data(), call.rows = size_t(points);
    call.channels = size_t(g.c), call.run = size_t(half);
    call.src_pixel = g.src[4];
    call.out.ldc = size_t(g.dst[4]), call.out.ldr = size_t(g.residual[4]);
    call.out.epilogue = &epilogue;
    call.dst_line = g.dst[3], call.residual_line = g.residual[3];
    const float* const src = static_cast<const float*>(e.args.src) + n * g.src[0] + z * g.src[2];
    const float* const dst = static_cast<const float*>(e.args.dst) + n * g.dst[0] + d * g.dst[2];
    const cut pieces(g.out[2], word[width_of_pieces]);
    for (int64_t strip = all.begin; strip < all.end; ++strip) {
      const range here = {strip * lines, std::min((strip + 1) * lines, g.out[1])};
      const range below = {here.end, std::min(here.end + lines, std::min(all.end * lines, g.out[1]))};
      call.ahead[0] = call.ahead[1] = {};
      if (word[fetches] == fetch_lines) {
        // Of all channels side by side, or of the planes of a vector.
        const bool side = g.src_block == 1;
        const int64_t first = side ? 0 : block * width, count = side ? up(channels, width) : 1;
        const int64_t planes = side || channels - first <= half ? 1 : 2;
        const auto share = [&](const float* at, const int64_t* stride, int64_t apart, range y) {
          return share_of_planes(at, stride, planes, apart, y, pieces.tiles * count, g.out[2] * count);
        };
        call.ahead[0] = share(src + g.src_channel(first), g.src, g.src_channel(first + half) - g.src_channel(first),
                              new_inputs_under(ph.h, below, here));
        call.ahead[1] =
            share(dst + g.dst_channel(first), g.dst, g.dst_channel(first + half) - g.dst_channel(first), below);
      }
      for (int64_t piece = 0; piece < pieces.tiles; ++piece) {
        if (word[fetches] == fetch_pixels) {
          const bool more = piece + 1 < pieces.tiles;
          const int64_t next = more ? piece + 1 : 0, calls = up(channels, width), vectors = pieces.rows(piece) * calls;
          const range x = {pieces.begin(next), pieces.begin(next) + pieces.rows(next)}, y = more ? here : below;
          call.ahead[0] = share_of_pixels(src, g.src, inputs_under(ph.h, y), inputs_under(ph.w, x), calls, vectors);
          call.ahead[1] = share_of_pixels(dst, g.dst, y, x, calls, vectors);
        }
        const int64_t y = here.begin, x = pieces.begin(piece);
        const int64_t top = ph.h.in_begin + y, left = ph.w.in_begin + x;
        call.m = size_t(pieces.rows(piece));
        call.lines = size_t(here.count());
        uint64_t bits = 0;
        for (int64_t i = 0; i < int64_t(call.m) + taps - 1; ++i)
          bits |= uint64_t{left + i >= 0 && left + i < g.in[2]} << i;
        on_image[0] = uint32_t(bits), on_image[1] = uint32_t(bits >> 32);
        for (int64_t i = 0; i < points; ++i)
          rows[size_t(i)] = {z * g.src[2] + (top + i) * g.src[3], 0,
                             inside_z && top + i >= 0 && top + i < g.in[1] ? on_image : nullptr};
        const auto place = [&](const int64_t* stride) {
          return n * stride[0] + d * stride[2] + y * stride[3] + x * stride[4];
        };
        for (int64_t channel = block * word[block_vectors] * width; channel < last; channel += width) {
          call.n = size_t(std::min(width, channels - channel));
          // Where there is no second half, its place may lie beyond the tensor.
          const bool second = int64_t(call.n) > half;
          const int64_t input = g.src_channel(channel), output = g.dst_channel(channel);
          call.src = static_cast<const float*>(e.args.src) + n * g.src[0] + left * g.src[4] + input;
          call.src_run = second ? g.src_channel(channel + half) - input : half;
          call.weights = reinterpret_cast<const float*>(e.packed) + channel * g.c * points * taps;
          call.out.channel = size_t(channel);
          call.out.c = static_cast<float*>(e.args.dst) + place(g.dst) + output;
          call.dst_half = second ? g.dst_channel(channel + half) - output : half;
          if (epilogue.residual) {
            const int64_t residual = g.residual_channel(channel);
            call.out.residual = static_cast<const float*>(e.args.residual) + place(g.residual) + residual;
            call.residual_half = second ? g.residual_channel(channel + half) - residual : half;
          }
          j.row.grouped(call);
          next_share(call.ahead);
        }
      }
    }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_grouped_winograd, .about = "few channels a group, 3x3: Winograd down the lines, in registers",
                .drives = kind::grouped_winograd_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32_FAST, .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict_one_pass, .error_bound = error_bound, .pack = pack,
                .run = run)
