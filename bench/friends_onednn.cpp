// SPDX-License-Identifier: MIT
//
// Operators without products beside those of oneDNN 2, on the same memory, in turns: built where its headers are found.
//
//   OMP_NUM_THREADS=1 friends_onednn FILE_OR_LINE... [--layout nchw,nhwc] [--rounds N] > results.json
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <dnnl.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lines.h"
#include "measure.h"
#include "stop.h"
#include "wishes.h"

namespace {

using dims = dnnl::memory::dims;
using descriptor = dnnl::memory::desc;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

dims sizes_of(const quern_tensor& t) { return {t.size[0], t.size[1], t.size[3], t.size[4]}; }

// A tensor that is dense in NCHW or NHWC.
descriptor of(const quern_tensor& t) {
  return {sizes_of(t), dnnl::memory::data_type::f32, {t.stride[0], t.stride[1], t.stride[3], t.stride[4]}};
}

struct peer {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;

  void add(int which, const descriptor& d, void* at) { arguments[which] = dnnl::memory(d, engine, at); }
  void run() { primitive.execute(stream, arguments), stream.wait(); }
};

std::optional<dnnl::algorithm> activation_of(quern_activation a) {
  switch (a) {
    case QUERN_RELU: return dnnl::algorithm::eltwise_relu;
    case QUERN_SILU: return dnnl::algorithm::eltwise_swish;
    case QUERN_SIGMOID: return dnnl::algorithm::eltwise_logistic;
    case QUERN_TANH: return dnnl::algorithm::eltwise_tanh;
    case QUERN_GELU: return dnnl::algorithm::eltwise_gelu_erf;
    case QUERN_GELU_TANH: return dnnl::algorithm::eltwise_gelu_tanh;
    case QUERN_HARD_SWISH: return dnnl::algorithm::eltwise_hardswish;
    case QUERN_MISH: return dnnl::algorithm::eltwise_mish;
    default: return {};
  }
}

// The same operator; false where oneDNN has none, or not with this epilogue.
bool make(peer& o, const quern_problem& p, const tools::operands& data) {
  constexpr auto inference = dnnl::prop_kind::forward_inference;
  const quern_epilogue& e = p.epilogue;
  const descriptor src = of(p.src), dst = of(p.dst);
  const auto act = activation_of(e.activation);
  if (e.residual || (e.activation && !act)) return false;
  const float slope = e.activation == QUERN_RELU ? 0 : 1;  // of a leaky ReLU; to others the factor of x
  dnnl::primitive_attr attr;
  if (act && p.op != QUERN_UNARY) {
    dnnl::post_ops after;
    after.append_eltwise(1, *act, slope, 0);
    attr.set_post_ops(after);
  }
  const auto is = [&](std::initializer_list<quern_op> list) {
    return std::find(list.begin(), list.end(), p.op) != list.end();
  };
  o.add(DNNL_ARG_SRC, src, data.src.get()), o.add(DNNL_ARG_DST, dst, data.dst.get());
  if (is({QUERN_POOL_MAX, QUERN_POOL_AVG, QUERN_POOL_AVG_PADDED})) {
    if (e.scale || e.bias) return false;
    const auto how = p.op == QUERN_POOL_MAX   ? dnnl::algorithm::pooling_max
                     : p.op == QUERN_POOL_AVG ? dnnl::algorithm::pooling_avg_exclude_padding
                                              : dnnl::algorithm::pooling_avg_include_padding;
    const auto two = [](const int64_t* three) { return dims{three[1], three[2]}; };
    const quern_window& w = p.window;
    o.primitive = dnnl::pooling_forward(
        {{inference, how, src, dst, two(w.stride), two(w.filter), two(w.pad_begin), two(w.pad_end)}, attr, o.engine});
  } else if (is({QUERN_SOFTMAX})) {
    int axis = p.axes == QUERN_AXIS_C ? 1 : p.axes == QUERN_AXIS_W ? 3 : -1;
    if (axis < 0 || e.scale || e.bias) return false;
    o.primitive = dnnl::softmax_forward({{inference, src, axis}, attr, o.engine});
  } else if (is({QUERN_LOG_SOFTMAX})) {
    if (p.axes != QUERN_AXIS_C || e.scale || e.bias) return false;
    o.primitive = dnnl::logsoftmax_forward({{inference, src, 1}, attr, o.engine});
  } else if (is({QUERN_NORM})) {
    // Only the last of its axes: of channels, rows of pixels.
    if (p.axes != QUERN_AXIS_C || p.groups != 1 || e.activation || !e.scale || !e.bias) return false;
    const auto rows = [&](const quern_tensor& t) {
      return descriptor{{t.size[0], t.size[3] * t.size[4], t.size[1]},
                        dnnl::memory::data_type::f32,
                        {t.stride[0], t.stride[4], t.stride[1]}};
    };
    const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    o.primitive = dnnl::layer_normalization_forward({{inference, rows(p.src), p.epsilon, flags}, attr, o.engine});
    o.add(DNNL_ARG_SRC, rows(p.src), data.src.get()), o.add(DNNL_ARG_DST, rows(p.dst), data.dst.get());
    const descriptor one{{p.src.size[1]}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x};
    o.add(DNNL_ARG_SCALE, one, data.scale.get()), o.add(DNNL_ARG_SHIFT, one, data.bias.get());
  } else if (is({QUERN_REDUCE_SUM, QUERN_REDUCE_MEAN, QUERN_REDUCE_MAX})) {
    if (e.scale || e.bias) return false;
    const auto how = p.op == QUERN_REDUCE_SUM    ? dnnl::algorithm::reduction_sum
                     : p.op == QUERN_REDUCE_MEAN ? dnnl::algorithm::reduction_mean
                                                 : dnnl::algorithm::reduction_max;
    o.primitive = dnnl::reduction({{how, src, dst, 0, 0}, attr, o.engine});
  } else if (is({QUERN_UNARY})) {
    if (!act || e.scale || e.bias) return false;
    o.primitive = dnnl::eltwise_forward({{inference, *act, src, slope, 0}, o.engine});
  } else if (is({QUERN_ADD, QUERN_MUL})) {
    if (e.scale || e.bias) return false;
    const descriptor other = of(p.weights);
    o.primitive =
        dnnl::binary({{p.op == QUERN_ADD ? dnnl::algorithm::binary_add : dnnl::algorithm::binary_mul, src, other, dst},
                      attr,
                      o.engine});
    o.add(DNNL_ARG_SRC_0, src, data.src.get()), o.add(DNNL_ARG_SRC_1, other, data.weights.get());
  } else {
    return false;
  }
  return true;
}

// Seconds of one run, of a sample of half a millisecond at least.
template <class Run>
double sample(const Run& run, int runs) {
  const double begin = now();
  for (int i = 0; i < runs; ++i) run();
  return (now() - begin) / runs;
}

nlohmann::json measure(const tools::layer& l, int rounds) {
  const quern_problem& p = l.problem;
  const tools::wishes w{tools::wish_options{}};
  const tools::operands data(p, tools::values::real, 1);
  const tools::pool none(1);
  const tools::ready ours(p, w.wish, tools::candidates(p, w.wish).front(), data, none);
  peer theirs;
  try {
    if (!make(theirs, p, data)) return nullptr;
  } catch (const dnnl::error&) {
    return nullptr;  // it has none for these sizes
  }
  const auto first = [&] { ours.run(data); };
  const auto second = [&] { theirs.run(); };
  first();
  const std::vector<double> a = tools::result(p, data, 0, tools::output_channels(p));
  second();
  const std::vector<double> b = tools::result(p, data, 0, tools::output_channels(p));
  double apart = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i)
    apart = std::max(apart, std::fabs(a[i] - b[i])), largest = std::max(largest, std::fabs(b[i]));
  const int runs[] = {static_cast<int>(5e-4 / sample(first, 3)) + 1, static_cast<int>(5e-4 / sample(second, 3)) + 1};
  std::vector<double> times[2], ratios;
  for (int i = 0; i < rounds; ++i) {
    times[0].push_back(sample(first, runs[0])), times[1].push_back(sample(second, runs[1]));
    ratios.push_back(times[1].back() / times[0].back());
  }
  return {{"layer", l.name},
          {"kernel", ours.plan().kernel},
          {"ms", tools::quantile(times[0], 0.5) * 1e3},
          {"peer_ms", tools::quantile(times[1], 0.5) * 1e3},
          {"ratio", tools::quantile(ratios, 0.5)},
          {"apart", apart / largest}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("operators without products beside those of oneDNN");
  std::vector<std::string> lines, layouts = {"nchw", "nhwc"};
  int rounds = 31;
  app.add_option("layers", lines)->required();
  app.add_option("--layout", layouts)->delimiter(',');
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    nlohmann::json rows = nlohmann::json::array();
    for (const tools::layer& l : tools::read_layers(lines, ""))
      for (const std::string& layout : layouts) {
        const size_t after = l.line.find(' ') + 1;
        const std::string line = l.line.substr(0, after) + layout + " " + l.line.substr(after);
        nlohmann::json row = measure(tools::read_layer({line}), rounds);
        if (row.is_null()) continue;
        row["layout"] = layout;
        rows.push_back(row);
      }
    std::printf("%s\n", rows.dump(1).c_str());
  } catch (const tools::stop& s) {
    std::fprintf(stderr, "friends_onednn: %s\n", s.text.c_str());
    return 1;
  }
}
