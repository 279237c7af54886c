// SPDX-License-Identifier: MIT
//
// Grouped convolution with few channels a group for NCHW: pixels across vectors, straight from the planes of the
// image, padding by masks.  The stride along x is the kernel's.
//
//   item = image, band of lines, run of groups                    one task of the parallel_for
//     for group
//       for lines that have the same rows of the filter           as one line where they follow each other
//         for nr pixels of the line
//           for mr output channels
//             row.planes
#include <cmath>

#include "ahead.h"
#include "driver.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_groups, blocks, fetches };

constexpr int64_t most_pixels = int64_t{1} << 20;  // of a line: masks of them lie in the workspace

refusal refuse(const full_problem& p, const kernel& row) {
  if (const refusal why = refuse_groups(p)) return why;
  if (const refusal why = refuse_blocks(p)) return why;
  const geometry& g = geometry_of(p);
  if (g.out[2] > 1 && g.stride[2] != row.step) return g.refuse(window_stride, 2, g.stride[2], row.step);
  if (const refusal why = refuse_pixels_apart(p)) return why;
  if (g.out[2] > most_pixels) return {QUERN_REASON_SHAPE, "pixels of a line of dst", g.out[2], most_pixels};
  return {};
}

// Outputs of neighbouring lines follow each other, and what they read as well.
bool lines_join(const geometry& g, const kernel& row, bool residual) {
  return g.stride[1] == 1 && g.src[3] == g.out[2] * row.step && g.dst[3] == g.out[2] &&
         (!residual || g.residual[3] == g.out[2]);
}

// Which pixels of a line a tap of a row finds on the image, a bit each, from any multiple of a vector on.
struct masks {
  int64_t width, vectors, length;  // of a line in pixels; after so many vectors all repeats; kept for each tap

  masks(const geometry& g, const kernel& row, bool joined)
      : width(std::max<int64_t>(1, g.out[2])),
        vectors(joined ? width / std::gcd<int64_t>(width, row.vector) : up(width, row.vector)),
        length(vectors + row.nr / row.vector) {}
  void fill(const axis& x, int64_t tap, int64_t lanes, uint32_t* to) const {
    const range on = x.outputs_of(tap, {0, width});
    int64_t at = 0;
    for (int64_t v = 0; v < length; ++v) {
      uint32_t bits = 0;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        bits |= uint32_t{at >= on.begin && at < on.end} << lane;
        if (++at == width) at = 0;
      }
      to[v] = bits;
    }
  }
};

// A channel of a tap takes half a cycle a multiply-add, but no less than the four of an addition that waits for
// the last one.  Lines along the border have fewer taps and are runs of their own.
double compute_cycles(const geometry& g, const kernel& row, bool joined) {
  const axis y = phase_of(g, 0).h;
  const double taps = double(g.filter[0] * g.filter[2]) * double(g.c);
  double cycles = 0;
  int parts = 0;
  for (range same = {0, 0}; same.begin < y.out_count; same.begin = same.end) {
    same = y.span(same.begin, y.out_count);
    // A choice must not take longer for a larger filter: what comes then counts as lines with all taps.
    const bool rest = ++parts == 8;
    if (rest) same.end = y.out_count;
    const bool whole = joined && !rest;
    const double pixels = double(g.out[2]) * (whole ? double(same.count()) : 1);
    const double vectors = std::ceil(pixels / row.vector), tiles = std::ceil(pixels / row.nr);
    const double k = taps * double(rest ? y.taps : y.taps_at(same.begin).count());
    const double run =
        tiles * (k * (std::max(0.56 * row.mr * vectors / std::max(1.0, tiles), 4.0) + 0.5) + 30) + vectors * row.mr * 2;
    cycles += run * (whole ? 1 : double(same.count()));
  }
  return cycles * double(g.n * g.groups * g.out[0]) * double(up(std::max<int64_t>(1, g.k), row.mr));
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const bool joined = lines_join(g, row, p.epilogue.residual);
  blocking b = {};
  b.packed_bytes = uint64_t(g.groups * up(g.k, row.mr) * row.mr * g.filter_size() * g.c) * sizeof(float);
  const int64_t bytes = g.filter_size() * int64_t(sizeof(grouped_row)) +
                        g.filter[2] * masks(g, row, joined).length * int64_t(sizeof(uint32_t));
  b.workspace_bytes = uint64_t(up(bytes, QUERN_ALIGN) * QUERN_ALIGN);
  b.cycles = pace(row, m) * compute_cycles(g, row, joined);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1, images = std::max<int64_t>(1, g.n);
  b.word[block_groups] = up(g.groups, std::min(g.groups, up(wanted, images)));
  b.word[blocks] = up(g.groups, b.word[block_groups]);
  b.word[bands] = std::clamp<int64_t>(up(wanted, images * b.word[blocks]), 1, std::max<int64_t>(1, g.out[1]));
  b.word[fetches] = !joined && g.in[0] == 1 && is_waited_for(g, m);
  return b;
}

// [group][k / mr][tap][c][mr]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t mr = j.row.mr;
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    const int64_t lane = w.k % mr, end = w.k == g.k - 1 ? mr : lane + 1;
    const int64_t row = ((w.group * up(g.k, mr) + w.k / mr) * w.ph.taps() + w.tap) * g.c;
    for (int64_t c = w.begin; c < w.end; ++c) put_lane(to + (row + c) * mr, lane, end, w[c]);
  });
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const bool joined = lines_join(g, j.row, epilogue.residual);
  const masks m(g, j.row, joined);
  const phase ph = phase_of(g, 0);
  const int64_t mr = j.row.mr;
  for_each_item(j, e, g.n * word[bands] * word[blocks], [&](int64_t item, char* workspace) {
    const int64_t block = digit(item, word[blocks]), band = digit(item, word[bands]), n = item;
    grouped_row* taps = reinterpret_cast<grouped_row*>(workspace);
    uint32_t* inside = reinterpret_cast<uint32_t*>(taps + g.filter_size());
    for (int64_t s = 0; s < ph.w.taps; ++s) m.fill(ph.w, s, j.row.vector, inside + s * m.length);
    const range all = part(ph.h.out_count, band, word[bands]);
    const int64_t last_group = std::min(g.groups, (block + 1) * word[block_groups]);

    grouped_planes_f32 call = {};
    call.tap = taps;
    call.channels = size_t(g.c);
    call.src_plane = g.src[1];
    call.out.epilogue = &epilogue;
    call.out.channels_are_rows = true;
    call.out.ldc = size_t(g.dst[1]), call.out.ldr = size_t(g.residual[1]);

    // What line y of a group reads that the line before has not read, of all planes, and what it writes.
    const auto ask_for_line = [&](int64_t group, int64_t y, int64_t calls) {
      const range line = {y, std::min(y + 1, all.end)};
      const int64_t vectors = up(ph.w.out_count, j.row.vector) * up(g.k, mr) * mr;
      call.ahead[0] = share_of_planes(static_cast<const float*>(e.args.src) + n * g.src[0] + group * g.c * g.src[1],
                                      g.src, g.c, g.src[1], new_inputs_under(ph.h, line, {y - 1, y}), calls, vectors);
      call.ahead[1] = share_of_planes(static_cast<const float*>(e.args.dst) + n * g.dst[0] + group * g.k * g.dst[1],
                                      g.dst, g.k, g.dst[1], line, calls, vectors);
    };

    // A line from output line y on, which may be several; taps count from line `first`.
    const auto line = [&](int64_t group, int64_t d, int64_t first, int64_t y, int64_t pixels) {
      const cut tiles(up(pixels, j.row.vector), j.row.nr / j.row.vector);
      if (word[fetches] && tiles.tiles) ask_for_line(group, y + 1, tiles.tiles * up(g.k, mr));
      for (int64_t tile = 0; tile < tiles.tiles; ++tile) {
        const int64_t from = tiles.begin(tile) * j.row.vector;
        call.n = size_t(std::min(tiles.rows(tile) * j.row.vector, pixels - from));
        call.src = static_cast<const float*>(e.args.src) + n * g.src[0] + group * g.c * g.src[1] +
                   (y - first) * ph.h.in_step * g.src[3] + from * j.row.step;
        for (size_t t = 0; t < call.taps; ++t)
          taps[t].inside = inside + int64_t(t) % ph.w.taps * m.length + tiles.begin(tile) % m.vectors;
        for (int64_t i = 0; i < up(g.k, mr); ++i) {
          const int64_t channel = group * g.k + i * mr;
          call.m = size_t(std::min(mr, g.k - i * mr));
          call.weights = reinterpret_cast<const float*>(e.packed) + (group * up(g.k, mr) + i) * ph.taps() * g.c * mr;
          const auto place = [&](const int64_t* stride) {
            return n * stride[0] + channel * stride[1] + d * stride[2] + y * stride[3] + from;
          };
          call.out.channel = size_t(channel);
          call.out.c = static_cast<float*>(e.args.dst) + place(g.dst);
          if (epilogue.residual) call.out.residual = static_cast<const float*>(e.args.residual) + place(g.residual);
          j.row.planes(call);
          next_share(call.ahead);
        }
      }
    };

    for (int64_t group = block * word[block_groups]; group < last_group; ++group)
      for (int64_t d = 0; d < ph.d.out_count; ++d)
        for (range same = {all.begin, all.begin}; same.begin < all.end; same.begin = same.end) {
          same = ph.h.span(same.begin, all.end);
          const range td = ph.d.taps_at(d), th = ph.h.taps_at(same.begin);
          call.taps = 0;
          for (int64_t t = td.begin; t < td.end; ++t)
            for (int64_t r = th.begin; r < th.end; ++r)
              for (int64_t s = 0; s < ph.w.taps; ++s)
                taps[call.taps++] = {(ph.d.in_begin + d * ph.d.in_step + t * ph.d.tap_step) * g.src[2] +
                                         (ph.h.in_begin + same.begin * ph.h.in_step + r * ph.h.tap_step) * g.src[3] +
                                         ph.w.in_begin + s * ph.w.tap_step,
                                     ((t * ph.h.taps + r) * ph.w.taps + s) * g.c * mr, nullptr};
          if (joined)
            line(group, d, same.begin, same.begin, same.count() * ph.w.out_count);
          else
            for (int64_t y = same.begin; y < same.end; ++y) line(group, d, same.begin, y, ph.w.out_count);
        }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_grouped_planes, .about = "few channels a group, NCHW, pixels of planes in registers",
                .drives = kind::grouped_planes_f32, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict_one_pass, .least_cycles = least_by_pixels, .error_bound = chain_bound, .pack = pack,
                .run = run)
