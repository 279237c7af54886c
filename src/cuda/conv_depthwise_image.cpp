// SPDX-License-Identifier: MIT
//
// Depthwise convolution of images of up to 14x14 by filters of any size, at stride 1, by spectra of lines
// (cuda/depthwise_image.h).
//
//   block: 32 channels, one image after another
//     warp: a pair of the spectrum, then a line
#include "cuda/depthwise_image.h"
#include "cuda/few_drive.h"

namespace quern {
namespace {

using block = image_14x14;

int64_t chunks_of(const geometry& g) { return up(g.groups, int64_t{block::channels}); }

// Blocks that share the images of a chunk: as few rounds of all blocks as there can be, of those the fewest blocks.
struct shares {
  int64_t parts, rounds;  // rounds: images of a multiprocessor
};
shares shares_of(const geometry& g, const machine& m) {
  const int64_t processors = std::max(1u, m.gpu.multiprocessors);
  shares best = {1, std::numeric_limits<int64_t>::max()};
  for (int64_t parts = 1; parts <= std::min(g.n, processors); ++parts) {
    const int64_t rounds = up(g.n, parts) * up(chunks_of(g) * parts, processors);
    if (rounds < best.rounds) best = {parts, rounds};
  }
  return best;
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (const refusal r = refuse_all_but_depthwise(p, row)) return r;
  if (const refusal r = refuse_large_images(p, row)) return r;
  if (const refusal r = refuse_all_but_clamps(p)) return r;
  // Fewer products round less than spectra do.
  if (g.filter_size() < 4) return {QUERN_REASON_SHAPE, "product of window.filter", g.filter_size(), 4};
  return refuse_many(double(g.n * chunks_of(g)) * row.threads, "tiles");
}

blocking choose_blocks(const full_problem& p, const kernel&, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(chunks_of(g) * block::packed_floats) * sizeof(float);
  b.workers = 1;
  b.word[0] = shares_of(g, m).parts;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const shares s = shares_of(g, m);
  // Clocks of a multiprocessor: what it waits for at first, and more where others fetch filters with it; an image's
  // products, and its lines, in and out.  Where channels do not lie side by side, lanes read and write apart.  Measured
  // on an H100: 31x31 on 14x14, 384 channels: 7.4, 17 and 52 us for 11, 32 and 128 images.
  const double filled = std::min(1.0, double(s.parts * chunks_of(g)) / std::max(1u, m.gpu.multiprocessors));
  const double apart = double(g.src[1] != 1) + double(g.dst[1] != 1);
  const double image = 2600 + 180 * double(g.in[1] + g.out[1]) + 12000 * apart;
  const double clocks = 3000 + 5000 * filled + double(s.rounds) * image;
  // What conv_walk and conv_depthwise_box predict of few blocks is up to 1.6 times what they take: where they have
  // kernels, so is this.
  const double fair = std::max(g.filter[1], g.filter[2]) <= 7 ? 1.7 - 0.7 * filled : 1;
  const double memory = tensor_bytes(g, row.type, row.type) / (double(m.gpu.bandwidth) * 0.8e-9);
  const double products = 3.0 * line_pairs * block::lines * block::lines;
  return {fair * std::max(1000 * clocks / std::max(1u, m.gpu.clock_mhz), 2000 + memory),
          2 * double(g.n * chunks_of(g) * block::channels) * products};
}

// Through its spectrum, the magnitudes of a line's products sum up to at most 4 * sqrt(14) times max |src| * sum
// |weights| (Cauchy and Schwarz), where products, sums over lines and the way back round.  The seven roundings of the
// way there may be alike at all frequencies: they count five times as much.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const double lines = double(std::min<int64_t>({g.in[1], g.filter[1], block::lines}));
  const double n = (15 * (2 * lines + 13) + 76 * 7) * 0x1p-24;
  return n / (1 - n);
}

struct circle {
  double cosine[line_period], sine[line_period];

  circle() {
    for (int i = 0; i < line_period; ++i)
      cosine[i] = cos(2 * M_PI * i / line_period), sine[i] = sin(2 * M_PI * i / line_period);
  }
};

// Of a channel's line of weights, by their distances.
void pack_line(const circle& turns, const double (&line)[block::distances], int64_t distance, int64_t channel,
               float* chunk) {
  for (int pair = 0; pair < line_pairs; ++pair) {
    double re = 0, im = 0;
    for (int i = 0; i < block::distances; ++i) {
      const int at = i - (block::columns - 1) + line_period, turn = at * line_frequency(pair) % line_period;
      // Of pair 0, half the sum of frequencies 0 and 14, and half their difference.
      re += line[i] * (pair == 0 ? double(at % 2 == 0) : turns.cosine[turn]);
      im += line[i] * (pair == 0 ? double(at % 2 != 0) : turns.sine[turn]);
    }
    // Inputs of pair 0 are twice as large, the other frequencies are there twice.
    const double scale = (pair == 0 ? 0.5 : 2) / line_period;
    float* const to = chunk + pair * block::pair_floats;
    to[block::weight_at(distance, channel)] = float(re * scale);
    to[block::weight_at(block::distances + distance, channel)] = float(im * scale);
  }
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t padded = chunks_of(g) * block::channels;
  const auto chunk_of = [&](int64_t channel) {
    return reinterpret_cast<float*>(payload) + channel / block::channels * block::packed_floats;
  };
  const auto clear = [&](int64_t channel) {
    for (int64_t pair = 0; pair < line_pairs; ++pair)
      for (int64_t i = 0; i < block::padded_weights; ++i)
        chunk_of(channel)[pair * block::pair_floats + block::weight_at(i, channel % block::channels)] = 0;
  };
  const circle turns;
  double line[block::distances] = {};
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    const int64_t channel = w.group;
    if (w.tap == 0) clear(channel);
    if (w.tap == 0 && channel == g.groups - 1)
      for (int64_t i = g.groups; i < padded; ++i) clear(i);
    // What is further away than the image is large meets nothing.
    const int64_t distance = w.tap / w.ph.w.taps + w.ph.h.in_begin + block::lines - 1;
    const int64_t column = w.tap % w.ph.w.taps, at = column + w.ph.w.in_begin + block::columns - 1;
    if (column == 0) std::fill_n(line, block::distances, 0.0);
    if (at >= 0 && at < block::distances) line[at] = w[0];
    if (column == w.ph.w.taps - 1 && distance >= 0 && distance < block::distances)
      pack_line(turns, line, distance, channel % block::channels, chunk_of(channel));
  });
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  depthwise_image a = {};
  a.lines = int32_t(g.in[1]), a.columns = int32_t(g.in[2]), a.images = int32_t(g.n);
  a.chunks = int32_t(chunks_of(g)), a.parts = int32_t(j.blocks.word[0]);
  a.src_image = g.src[0], a.src_channel = g.src[1], a.src_line = g.src[3], a.src_pixel = g.src[4];
  a.src = static_cast<const float*>(l.args.src);
  a.weights = reinterpret_cast<const float*>(l.packed), a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, phase_of(g, 0), l.args, 1);
  a.out.k = int32_t(g.groups);
  return launch_kernel(l, j.row, uint32_t(a.chunks * a.parts), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise_image, .about = "depthwise on small images, any filter, by spectra of lines",
                .drives = kind::depthwise_image, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32_FAST, .repeat = QUERN_REPEAT_BATCH, .pads = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .pack = pack,
                .launch = launch)
