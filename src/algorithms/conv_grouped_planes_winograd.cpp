// SPDX-License-Identifier: MIT
//
// Grouped convolution with few channels a group, 3x3 at stride 1, for NCHW: Winograd's F(4, 3) down the lines, pixels
// across vectors.
//
//   item = image, band of strips of 4 lines, run of groups        one task of the parallel_for
//     for group: for strip: V = transformed lines of all channels of the group, in L1
//       for nr pixels: for mr output channels
//         row.grouped                                             as grouped_planes_winograd_f32.h has it
#include "conv_grouped_winograd.h"

namespace quern {
namespace {

using namespace grouped_winograd;

enum word { bands, block_groups, blocks };

constexpr int64_t most_pixels = 1 << 14;  // of a line: V lies in the workspace

refusal refuse(const full_problem& p, const kernel&) {
  if (const refusal why = refuse_groups(p)) return why;
  if (const refusal why = refuse_window(p)) return why;
  if (const refusal why = refuse_blocks(p)) return why;
  const geometry& g = geometry_of(p);
  if (const refusal why = refuse_pixels_apart(p)) return why;
  if (g.in[2] > most_pixels) return {QUERN_REASON_SHAPE, "pixels of a line of src", g.in[2], most_pixels};
  if (g.out[2] > most_pixels) return {QUERN_REASON_SHAPE, "pixels of a line of dst", g.out[2], most_pixels};
  if (g.pad[2] > most_pixels) return g.refuse(window_pad_begin, 2, g.pad[2], most_pixels);
  return {};
}

// Transformed lines, in floats: whole vectors of the image between zeros, as far as any output reads.
struct line_sizes {
  int64_t first, first_read, matrix, channel;  // of pixel 0; of output 0's first tap; from point to point

  line_sizes(const geometry& g, const kernel& row) {
    const int64_t pad = -phase_of(g, 0).w.in_begin, wide = row.vector;
    first = up(std::max<int64_t>(0, pad), wide) * wide, first_read = first - pad;
    const int64_t written = first + up(g.in[2], wide) * wide, read = first_read + up(g.out[2], wide) * wide + taps - 1;
    // An odd number of lines of L1, so that points do not share its sets.
    matrix = (up(std::max(written, read), wide) | 1) * wide;
    channel = points * matrix;
  }
};

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const line_sizes s(g, row);
  const int64_t panels = up(std::max<int64_t>(1, g.k), row.mr), strips = std::max<int64_t>(1, up(g.out[1], lines));
  blocking b = {};
  b.packed_bytes = uint64_t(g.groups * panels * row.mr * g.c * taps * points) * sizeof(float);
  b.workspace_bytes = uint64_t(up(g.c * s.channel * int64_t(sizeof(float)), QUERN_ALIGN) * QUERN_ALIGN);
  // A vector of pixels: products, and the way back with the epilogue; lines, and what L1 does not keep of them.
  const int64_t half = row.nr / 2;
  const double vectors = 0.5 * double(up(g.out[2], half)), mr = row.mr;
  const double kept = double(b.workspace_bytes) > 0.75 * double(m.l1) ? 1.2 : 1;
  // Vectors of eight load each weight beside the pixels.
  const double load = row.vector == 16 ? 0.3 : 1;
  const double call = 0.5 * kept * double(points * taps * g.c) * (mr + load) + 8 * mr + 15;
  const double transform = 6.5 * double(up(g.in[2], half)) * double(g.c);
  b.cycles = pace(row, m) * double(g.n * g.groups * g.out[0] * strips) * (vectors * double(panels) * call + transform);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1, images = std::max<int64_t>(1, g.n * g.out[0]);
  b.word[block_groups] = up(g.groups, std::min(g.groups, up(wanted, images)));
  b.word[blocks] = up(g.groups, b.word[block_groups]);
  b.word[bands] = std::clamp<int64_t>(up(wanted, images * b.word[blocks]), 1, strips);
  return b;
}

// [group][k / mr][c][s][point][mr]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t mr = j.row.mr;
  float* const to = reinterpret_cast<float*>(payload);
  pack_points(g, first, count, static_cast<const float*>(weights),
              [&](int64_t channel, int64_t c, int64_t point, int64_t s, float w) {
                const int64_t group = channel / g.k, k = channel % g.k;
                float* at = to + (((group * up(g.k, mr) + k / mr) * g.c + c) * taps * points + s * points + point) * mr;
                at[k % mr] = w;
                if (k == g.k - 1) std::fill(at + k % mr + 1, at + mr, 0.0f);
              });
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const phase ph = phase_of(g, 0);
  const line_sizes s(g, j.row);
  const int64_t* word = j.blocks.word;
  const int64_t mr = j.row.mr, nr = j.row.nr, panels = up(g.k, mr), panel = g.c * taps * points * mr;
  for_each_item(j, e, g.n * g.out[0] * word[bands] * word[blocks], [&](int64_t item, char* workspace) {
    const int64_t block = digit(item, word[blocks]), band = digit(item, word[bands]), d = digit(item, g.out[0]);
    const int64_t n = item;
    const range strips = part(up(g.out[1], lines), band, word[bands]);
    const int64_t z = ph.d.in_begin + d * ph.d.in_step;
    const bool inside = z >= 0 && z < g.in[0];
    float* const v = reinterpret_cast<float*>(workspace);
    std::fill(v, v + g.c * s.channel, 0.0f);

    winograd_input_f32 image = {};
    image.n = size_t(g.in[2]), image.rows = 1;
    image.column = g.src[3], image.matrix = size_t(s.matrix);
    grouped_f32 call = {};
    call.channels = size_t(g.c), call.src_run = s.channel, call.src_line = s.matrix;
    call.out.epilogue = &epilogue, call.out.channels_are_rows = true;
    call.out.ldc = size_t(g.dst[1]), call.out.ldr = size_t(g.residual[1]);
    call.dst_line = g.dst[3], call.residual_line = g.residual[3];
    for (int64_t group = block * word[block_groups]; group < std::min(g.groups, (block + 1) * word[block_groups]);
         ++group)
      for (int64_t strip = strips.begin; strip < strips.end; ++strip) {
        const int64_t y = strip * lines, top = ph.h.in_begin + y;
        image.columns = 0;
        for (int64_t i = 0; i < points; ++i)
          image.columns |= uint32_t{inside && top + i >= 0 && top + i < g.in[1]} << i;
        image.origin = z * g.src[2] + top * g.src[3];
        for (int64_t c = 0; c < g.c; ++c) {
          image.src = static_cast<const float*>(e.args.src) + n * g.src[0] + (group * g.c + c) * g.src[1];
          image.v = v + c * s.channel + s.first;
          j.row.winograd_input[0](image);
        }
        call.lines = size_t(std::min(lines, g.out[1] - y));
        const auto place = [&](const int64_t* stride) {
          return n * stride[0] + group * g.k * stride[1] + d * stride[2] + y * stride[3];
        };
        float* const dst = static_cast<float*>(e.args.dst) + place(g.dst);
        const float* const residual =
            epilogue.residual ? static_cast<const float*>(e.args.residual) + place(g.residual) : nullptr;
        for (int64_t x = 0; x < g.out[2]; x += nr)
          for (int64_t i = 0; i < panels; ++i) {
            call.m = size_t(std::min(mr, g.k - i * mr)), call.n = size_t(std::min(nr, g.out[2] - x));
            call.src = v + s.first_read + x;
            call.weights = reinterpret_cast<const float*>(e.packed) + (group * panels + i) * panel;
            call.out.channel = size_t(group * g.k + i * mr);
            call.out.c = dst + i * mr * g.dst[1] + x;
            if (epilogue.residual) call.out.residual = residual + i * mr * g.residual[1] + x;
            j.row.grouped(call);
          }
      }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_grouped_planes_winograd, .about = "few channels a group, 3x3, NCHW: Winograd down the lines",
                .drives = kind::grouped_planes_winograd_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32_FAST, .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict_one_pass, .error_bound = error_bound, .pack = pack,
                .run = run)
