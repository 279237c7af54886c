// SPDX-License-Identifier: MIT
#include "operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stop.h"
#include "table.h"

namespace tools {
namespace {

// splitmix64 (Steele, Lea, Flood 2014).
struct random_bits {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float unit() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1; }  // [-1, 1)
};

// Channels that lie side by side (quern_layout).
int64_t block_of(quern_layout layout) {
  return layout == QUERN_NC4HW4 ? 4 : layout == QUERN_NC8HW8 ? 8 : layout == QUERN_NC16HW16 ? 16 : 1;
}

uint64_t tensor_bytes(const quern_tensor& t) {
  for (int64_t size : t.size) {
    if (size == 0) return 0;
  }
  // Whole blocks of channels: no more than some floats too many.
  const int64_t block = block_of(t.layout);
  int64_t elements = block;
  for (int i = 0; i < 5; ++i) elements += (i == 1 ? (t.size[1] - 1) / block : t.size[i] - 1) * t.stride[i];
  return static_cast<uint64_t>(elements) * sizeof(float);
}

bool multiplies(quern_op op) { return op <= QUERN_GEMM; }

// Length of the sum of products behind one output.
double terms(const quern_problem& p) {
  if (p.op == QUERN_GEMM) return static_cast<double>(p.src.size[4]);
  if (!multiplies(p.op)) return 0;
  const double taps = static_cast<double>(p.window.filter[0] * p.window.filter[1] * p.window.filter[2]);
  return taps * static_cast<double>(p.src.size[1]) / static_cast<double>(p.groups);
}

// Which of the five sizes of dst and weights counts output channels.
int dst_axis(const quern_problem& p) { return p.op == QUERN_GEMM ? 4 : 1; }
int weights_axis(const quern_problem& p) {
  return p.op == QUERN_GEMM ? 4 : p.op == QUERN_CONV_TRANSPOSED || !multiplies(p.op) ? 1 : 0;
}

// A part of a tensor as dense doubles, n c d h w.
std::vector<double> gather(const void* origin, quern_tensor t, int axis, int64_t first, int64_t count, bool magnitude) {
  const float* base = static_cast<const float*>(origin) + (axis == 1 ? 0 : first * t.stride[axis]);
  const int64_t block = block_of(t.layout), first_channel = axis == 1 ? first : 0;
  t.size[axis] = count;
  std::vector<double> out;
  out.reserve(static_cast<size_t>(t.size[0] * t.size[1] * t.size[2] * t.size[3] * t.size[4]));
  for (int64_t n = 0; n < t.size[0]; ++n)
    for (int64_t c = 0; c < t.size[1]; ++c)
      for (int64_t d = 0; d < t.size[2]; ++d)
        for (int64_t h = 0; h < t.size[3]; ++h) {
          const int64_t channel = first_channel + c;
          const float* row = base + n * t.stride[0] + channel / block * t.stride[1] + channel % block +
                             d * t.stride[2] + h * t.stride[3];
          for (int64_t w = 0; w < t.size[4]; ++w) {
            const double value = row[w * t.stride[4]];
            out.push_back(magnitude ? std::fabs(value) : value);
          }
        }
  return out;
}

std::vector<double> gather(const float* vector, int64_t first, int64_t count) {
  return vector ? std::vector<double>(vector + first, vector + first + count) : std::vector<double>();
}

// Channels [first, first + count) of all that dst has, dense.
std::vector<double> pick(const std::vector<double>& all, const quern_tensor& dst, int64_t first, int64_t count) {
  const int64_t pixels = dst.size[2] * dst.size[3] * dst.size[4];
  std::vector<double> out;
  for (int64_t n = 0; n < dst.size[0]; ++n) {
    const auto begin = all.begin() + (n * dst.size[1] + first) * pixels;
    out.insert(out.end(), begin, begin + count * pixels);
  }
  return out;
}

// Dense, in the reference's type.
void shape(quern_tensor& t, int axis, int64_t count) {
  t.type = QUERN_F64;
  t.layout = QUERN_NCHW;
  t.size[axis] = count;
  std::memset(t.stride, 0, sizeof t.stride);
}

}  // namespace

buffer::buffer(uint64_t bytes) : memory_(nullptr, std::free), bytes_(bytes) {
  const uint64_t whole = std::max<uint64_t>((bytes + QUERN_ALIGN - 1) / QUERN_ALIGN * QUERN_ALIGN, QUERN_ALIGN);
  memory_.reset(std::aligned_alloc(QUERN_ALIGN, whole));
  if (!memory_) throw stop{failed, text("no memory: %s could not be had", bytes_text(bytes).c_str())};
}

int64_t output_channels(const quern_problem& p) { return p.dst.size[dst_axis(p)]; }
int64_t group_channels(const quern_problem& p) { return output_channels(p) / p.groups; }

uint64_t operand_bytes(const quern_problem& p) {
  return tensor_bytes(p.src) + tensor_bytes(p.weights) + tensor_bytes(p.dst) +
         (p.epilogue.residual ? tensor_bytes(p.residual) : 0);
}

double direct_flops(const quern_problem& p) {
  const quern_tensor& pixels = p.op == QUERN_CONV_TRANSPOSED ? p.src : p.dst;
  double flops = 2;
  for (int64_t size : pixels.size) flops *= static_cast<double>(size);
  if (p.op != QUERN_CONV_TRANSPOSED) return flops * terms(p);
  const double taps = static_cast<double>(p.window.filter[0] * p.window.filter[1] * p.window.filter[2]);
  return flops * taps * static_cast<double>(group_channels(p));
}

operands::operands(const quern_problem& p, values kind, uint64_t seed)
    : src(tensor_bytes(p.src)),
      weights(tensor_bytes(p.weights)),
      dst(tensor_bytes(p.dst)),
      residual(p.epilogue.residual ? tensor_bytes(p.residual) : 0),
      scale(static_cast<uint64_t>(output_channels(p)) * sizeof(float)),
      bias(scale.bytes()),
      slope(scale.bytes()) {
  random_bits random{seed};
  const auto fill = [&](const buffer& b, float factor, float offset) {
    for (uint64_t i = 0; i < b.bytes() / sizeof(float); ++i) {
      const float real = random.unit() * factor + offset;
      b.floats()[i] = kind == values::integers ? std::floor(random.unit() * 4) : real;
    }
  };
  fill(src, 1, 0);
  fill(weights, static_cast<float>(std::sqrt(3 / std::max(terms(p), 1.0))), 0);
  fill(residual, 1, 0);
  fill(scale, 0.25f, 1);
  fill(bias, 1, 0);
  fill(slope, 0.25f, 0.25f);
  std::memset(dst.get(), 0xff, dst.bytes());  // NaN: what is not written shows
}

quern_args operands::args(const void* weights_or_packed) const {
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.get();
  args.weights = weights_or_packed;
  args.dst = dst.get();
  args.residual = residual.bytes() ? residual.get() : nullptr;
  args.scale = scale.get();
  args.bias = bias.get();
  args.slope = slope.get();
  return args;
}

std::vector<double> reference(const quern_problem& p, const operands& data, int64_t first, int64_t count,
                              bool magnitude) {
  quern_problem sub = p;
  const bool all = count == output_channels(p);
  // A slice that has channels is needed whole.
  if (!all && p.axes & QUERN_AXIS_C) return pick(reference(p, data, 0, p.dst.size[1], magnitude), p.dst, first, count);
  const bool gemm = p.op == QUERN_GEMM,
             own = !multiplies(p.op);  // an output channel has the input channel of its number
  // A part lies in one group: that group's input channels are all that it sees.
  const int64_t group = all ? 0 : first / group_channels(p);
  const int64_t inputs = gemm ? 1 : all ? p.src.size[1] : own ? count : p.src.size[1] / p.groups;
  const std::vector<double> src = gather(data.src.get(), p.src, 1, own ? first : group * inputs, inputs, magnitude);
  quern_tensor weights_tensor = p.weights;
  const void* weights_origin = data.weights.get();
  int64_t weights_first = first, weights_count = count;
  if (p.op == QUERN_CONV_TRANSPOSED) {  // weights count input channels outside, output channels of a group inside
    weights_first = all ? 0 : first % group_channels(p);
    weights_count = all ? group_channels(p) : count;
    weights_origin = static_cast<const float*>(weights_origin) + group * inputs * weights_tensor.stride[0];
    weights_tensor.size[0] = sub.weights.size[0] = inputs;
  }
  if (own && p.weights.size[1] == 1) weights_first = 0, weights_count = 1;
  const std::vector<double> weights =
      gather(weights_origin, weights_tensor, weights_axis(p), weights_first, weights_count, magnitude);
  shape(sub.src, 1, inputs);
  if (p.weights.layout != 0) shape(sub.weights, weights_axis(p), weights_count);
  shape(sub.dst, dst_axis(p), count);
  if (!all) sub.groups = 1;
  sub.accuracy = QUERN_ACCURACY_DEFAULT;
  sub.residual = quern_tensor{};
  if (magnitude) sub.epilogue = quern_epilogue{};
  std::vector<double> residual;
  if (sub.epilogue.residual) {
    residual = gather(data.residual.get(), p.residual, dst_axis(p), first, count, false);
    sub.residual = p.residual;
    shape(sub.residual, dst_axis(p), count);
  }
  const std::vector<double> scale = gather(data.scale.floats(), first, count);
  const std::vector<double> bias = gather(data.bias.floats(), first, count);
  const std::vector<double> slope = gather(data.slope.floats(), first, count);

  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.algorithm = "reference";
  wish.verbose = -1;
  quern_plan plan = {};
  quern_error error = {};
  need(quern_plan_make(&plan, nullptr, &sub, &wish, &error), error, "the reference");
  size_t elements = 1;
  for (int64_t size : sub.dst.size) elements *= static_cast<size_t>(size);
  std::vector<double> dst(elements);
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.data();
  args.weights = weights.data();  // which the reference takes as they are, without workspace
  args.dst = dst.data();
  args.residual = sub.epilogue.residual ? residual.data() : nullptr;
  args.scale = scale.data();
  args.bias = bias.data();
  args.slope = slope.data();
  quern_exec exec = {};
  exec.size = sizeof exec;
  need(quern_run(&plan, &args, &exec, &error), error, "the reference");
  return dst;
}

std::vector<double> result(const quern_problem& p, const operands& data, int64_t first, int64_t count) {
  return gather(data.dst.get(), p.dst, dst_axis(p), first, count, false);
}

channel_check::channel_check(const quern_problem& p, const operands& data, uint64_t seed) {
  const int64_t channels = output_channels(p);
  if (channels == 0) return;
  random_bits random{seed};
  std::vector<int64_t> picked = {0, channels - 1};
  for (int i = 0; i < 2; ++i) {
    picked.push_back(static_cast<int64_t>(random.next() % static_cast<uint64_t>(channels)));
  }
  std::sort(picked.begin(), picked.end());
  picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
  for (int64_t index : picked) channels_.push_back({index, reference(p, data, index, 1, false)});
}

double channel_check::relative_l2(const quern_problem& p, const operands& data) const {
  double difference = 0, norm = 0;
  for (const channel& c : channels_) {
    const std::vector<double> got = result(p, data, c.index, 1);
    for (size_t i = 0; i < got.size(); ++i) {
      difference += (got[i] - c.expected[i]) * (got[i] - c.expected[i]);
      norm += c.expected[i] * c.expected[i];
    }
  }
  return std::sqrt(norm > 0 ? difference / norm : difference);
}

}  // namespace tools
