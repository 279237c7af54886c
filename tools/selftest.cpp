// SPDX-License-Identifier: MIT
//
// quern selftest: is every kernel right on this very machine?
#include <quern/host.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "commands.h"
#include "lines.h"
#include "measure.h"
#include "stop.h"
#include "table.h"

namespace tools {
namespace {

// Small, and each with something that kernels get wrong: tails of every tile, padding on one side,
// strides that skip, groups, one channel, one pixel, filters larger than the image.
const char* const fixed[] = {
    "ic64ih8oc64kh1",
    "ic33ih7oc17kh1 bias act=relu",
    "mb2ic17ih9oc33kh3ph1 bias",
    "ic3ih15oc32kh3sh2ph1 bias act=leaky_relu:0.1",
    "ic3ih17oc20kh7sh2ph3 bias act=relu",
    "ic8ih13iw5oc9kh3kw5ph1pw2 scale bias",
    "ic9ih12oc8kh3ph2dh1",
    "ic7ih9oc7kh7ph3 bias act=clamp:0:6",
    "ic1ih1oc1kh1",
    "ic1ih5oc33kh5ph4",
    "ic16ih10oc16kh2sh2 pad_end=0x1x1",
    "g4mb1ic12ih9oc20kh3ph1 bias",
    "g32ic32ih9oc32kh3ph1 bias act=relu",
    "g24ic24ih11oc48kh5sh2ph2",
    "g33ic33ih12oc33kh3sh2ph1 bias act=clamp:0:6",
    "g40ic40ih12oc40kh3sh2ph1 bias residual=after",
    "g40ic40ih10oc40kh5ph2 bias",
    "g17ic17ih11oc17kh5sh2ph2 scale",
    "g48ic48ih9iw16oc48kh7ph3 bias act=silu",
    "g20ic20ih13oc20kh7sh2ph3 bias act=relu",
    "g9ic9ih7oc9kh4kw2ph2dw1",
    "g7ic28ih11oc28kh3ph1 bias act=relu",
    "g5ic40ih10oc40kh3ph2dh1 scale bias",
    "g5ic40ih10oc40kh3ph1 bias act=clamp:0:6",
    "g10ic40ih9oc40kh3sh2ph1 bias residual=after",
    "g3ic24ih8iw17oc24kh5ph2 bias act=hard_swish",
    "g3ic24ih9oc24kh3sh2ph1 bias",
    "g3ic48ih9oc48kh3ph1 bias act=relu",
    "g2ic32ih9oc32kh3sh2ph1 bias",
    "g2ic32ih7oc32kh5ph2 scale",
    "ic5iw40oc6kw3pw1 bias",
    "ic4id5ih6iw7oc6kd3kh3kw3pd1ph1pw1 bias",
    "ic130ih6oc40kh3ph1 bias residual=before act=relu",
    "ic24ih9oc24kh1 bias residual=after",
    "ic40ih6oc50kh3ph1 scale bias act=prelu",
    "ic12ih6oc12kh3ph1 bias act=sigmoid",
    "ic12ih6oc12kh3ph1 bias act=silu",
    "ic12ih6oc12kh3ph1 bias act=hard_sigmoid",
    "ic12ih6oc12kh3ph1 bias act=hard_swish",
    "ic12ih6oc12kh3ph1 bias act=tanh",
    "ic12ih6oc12kh3ph1 bias act=gelu",
    "ic12ih6oc12kh3ph1 bias act=mish",
    "ic12ih6oc12kh3ph1 bias act=gelu_tanh",
    "ic12ih6oc12kh3ph1 bias act=gelu_sigmoid",
    "conv_transposed ic12ih6oc3kh4sh2ph1 bias",
    "conv_transposed g2ic8ih5oc10kh3sh2ph1 output_padding=0x1x1 bias act=relu",
    "conv_transposed mb2ic17ih4oc9kh3dh1",
    "gemm 33x65:65x47 bias act=relu",
    "gemm 2x7x300:300x100",
    "reorder nchw:nhwc 2x3x15x17",
    "reorder nhwc:nchw 1x70x9x9",
    "reorder nchw:nc8hw8 1x35x7x7",
    "reorder nc8hw8:nchw 1x35x7x7",
    "reorder nchw:nc16hw16 1x33x11x5",
    "reorder nc16hw16:nchw 1x33x11x5",
    "reorder nhwc:nc4hw4 1x22x6x6",
    "reorder nc4hw4:nhwc 1x22x6x6",
    "reorder nc4hw4:nc16hw16 1x45x8x9",
    "reorder nc16hw16:nc8hw8 1x45x8x9",
    "pool_max mb2ic19ih13kh3sh2ph1",
    "pool_max ic40ih11kh2sh2 act=relu",
    "pool_max ic33ih12kh7ph3",
    "pool_avg ic21ih11kh3ph1",
    "pool_avg_padded ic17ih9iw20kh3kw5ph1pw2 bias act=relu",
    "pool_avg ic70ih7kh7",
    "reduce_sum 2x35x9x11 axes=hw",
    "reduce_max 2x35x9x11 axes=c",
    "reduce_l2 2x35x9x11 axes=chw",
    "norm 2x36x9x11 axes=hw scale bias act=relu",
    "norm 1x70x5x7 axes=c scale bias",
    "norm 2x36x9x11 axes=chw groups=4 scale bias act=silu",
    "rms_norm 1x70x5x7 axes=c scale",
    "softmax 3x67x1x9 axes=c",
    "softmax 2x5x9x40 axes=w",
    "log_softmax 3x67x1x9 axes=c",
    "unary 2x19x7x9 act=gelu",
    "add 2x19x7x9:2x19x7x9 act=relu",
    "mul 2x19x7x9:1x19x1x1",
    "max 2x19x7x9:2x1x7x9 bias residual=after",
};

// How far dst is from float64, in units of what the error model allows; at most 1 is right.  The
// activations here have a slope of at most 1.5 (hard_swish at 3); every step of the epilogue rounds, the
// exponentials a few times.
double worst_ratio(const quern_problem& p, const operands& data, double bound) {
  const int64_t channels = output_channels(p);
  const std::vector<double> expected = reference(p, data, 0, channels, false);
  // Norms and logarithms are bounded by their largest input, maxima and the like by what they are.
  const bool adds = p.op <= QUERN_REORDER || p.op == QUERN_POOL_AVG || p.op == QUERN_POOL_AVG_PADDED ||
                    (p.op >= QUERN_REDUCE_SUM && p.op <= QUERN_REDUCE_SUM_SQUARE);
  const std::vector<double> magnitude =
      adds ? reference(p, data, 0, channels, true) : std::vector(expected.size(), 8.0);
  const std::vector<double> got = result(p, data, 0, channels);
  const quern_epilogue& e = p.epilogue;
  const bool plain = !e.scale && !e.bias && !e.residual && e.activation == QUERN_IDENTITY;
  const double slope = 1.5 * (e.scale ? 1.25 : 1);
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    const double rounding =
        plain ? FLT_EPSILON * std::fabs(expected[i]) : 16 * FLT_EPSILON * (1 + magnitude[i] + std::fabs(expected[i]));
    const double ratio = std::fabs(got[i] - expected[i]) / ((plain ? 1 : slope) * bound * magnitude[i] + rounding);
    worst = std::max(worst, std::isnan(ratio) ? INFINITY : ratio);
  }
  return worst;
}

// Sums, and what these epilogues make of them, are integers below 2^24: no rounding anywhere.
bool exact_on_integers(const quern_problem& p) {
  switch (p.op) {
    case QUERN_POOL_AVG:
    case QUERN_POOL_AVG_PADDED:
    case QUERN_REDUCE_MEAN:
    case QUERN_REDUCE_L2:
    case QUERN_NORM:
    case QUERN_RMS_NORM:
    case QUERN_SOFTMAX:
    case QUERN_LOG_SOFTMAX:
    case QUERN_DIV: return false;
    default:
      return p.epilogue.activation == QUERN_IDENTITY || p.epilogue.activation == QUERN_RELU ||
             p.epilogue.activation == QUERN_CLAMP;
  }
}

// Empty when right, else a sentence.
std::string try_candidate(const quern_problem& p, const quern_wish& wish, const quern_candidate& c,
                          const pool& threads) {
  const operands real(p, values::real, 3);
  const ready on_real(p, wish, c, real, threads);
  on_real.run(real);
  const double worst = worst_ratio(p, real, on_real.plan().error_bound);
  if (!(worst <= 1)) return text("error on random data is %.3g times its bound", worst);
  if (!exact_on_integers(p) || c.accuracy > QUERN_ACCURACY_F32) return "";
  const operands integers(p, values::integers, 4);
  const ready on_integers(p, wish, c, integers, threads);
  on_integers.run(integers);
  const int64_t channels = output_channels(p);
  if (result(p, integers, 0, channels) != reference(p, integers, 0, channels, false)) return "wrong on small integers";
  return "";
}

std::vector<quern_problem> in_layouts(const layer& l, bool only_own) {
  if (only_own || l.problem.op == QUERN_GEMM || l.problem.op == QUERN_REORDER) return {l.problem};
  std::vector<quern_problem> out;
  for (const char* layout : {"nchw", "nhwc", "nchw:nhwc", "nhwc:nchw"}) {
    // Lines of convolutions do not name their operator.
    const size_t after = l.problem.op == QUERN_CONV ? 0 : l.line.find(' ') + 1;
    out.push_back(read_layer({l.line.substr(0, after) + layout + " " + l.line.substr(after)}).problem);
  }
  return out;
}

}  // namespace

int run_selftest(const selftest_options& options) {
  const bool own = !options.layers.empty();
  std::vector<std::string> lines(std::begin(fixed), std::end(fixed));
  const std::vector<layer> layers = read_layers(own ? options.layers : lines, "");
  const uint32_t many = options.threads ? options.threads : quern_host_cpus();
  std::vector<uint32_t> thread_counts = {1};
  if (many > 1) thread_counts.push_back(many);

  std::map<std::string, std::pair<size_t, size_t>> tally;  // algorithm and kernel: right, wrong
  std::set<std::string> listed;                            // kernels, refused ones too
  size_t problems = 0;
  for (uint32_t count : thread_counts) {
    const pool threads(count);
    wish_options options_of_wish;
    options_of_wish.threads = count;
    const wishes w(options_of_wish);
    for (const layer& l : layers) {
      for (const quern_problem& p : in_layouts(l, own)) {
        ++problems;
        for (const quern_candidate& c : candidates(p, w.wish)) {
          listed.insert(c.kernel);
          if (c.verdict != QUERN_CHOSEN && c.verdict != QUERN_USABLE) continue;
          auto& [right, wrong] = tally[std::string(c.algorithm) + " " + c.kernel];
          std::string trouble;
          try {
            trouble = try_candidate(p, w.wish, c, threads);
          } catch (const stop& s) {
            trouble = s.text;
          }
          ++(trouble.empty() ? right : wrong);
          if (trouble.empty()) continue;
          std::printf("WRONG  %s %s, %u threads: %s: %s\n", c.algorithm, c.kernel, count, problem_text(p).c_str(),
                      trouble.c_str());
        }
      }
    }
  }

  // A kernel that runs here and that none of the fixed problems reached would be a hole in this test.  Those that
  // no candidate names are parts of others: Winograd's transforms.
  std::string untested;
  const quern_cpu cpu = this_cpu();
  for (size_t i = 0; !own && i < quern_kernel_count(); ++i) {
    quern_kernel_info info = {};
    info.size = sizeof info;
    quern_error error = {};
    need(quern_kernel_get(i, &info, &error), error, "the kernel table");
    if (info.backend == QUERN_BACKEND_REF || info.backend == QUERN_BACKEND_CUDA || (info.isa & ~cpu.isa) ||
        !listed.count(info.name))
      continue;
    const std::string ending = std::string(" ") + info.name;
    const bool found = std::any_of(tally.begin(), tally.end(), [&](const auto& entry) {
      return entry.first.size() > ending.size() &&
             entry.first.compare(entry.first.size() - ending.size(), ending.size(), ending) == 0;
    });
    if (!found) untested += std::string("\n  ") + info.name;
  }

  table t({{"algorithm and kernel", false}, {"right", true}, {"wrong", true}});
  std::string avoid;
  size_t checks = 0;
  for (const auto& [name, counts] : tally) {
    t.add({name, text("%zu", counts.first), text("%zu", counts.second)});
    checks += counts.first + counts.second;
    if (counts.second) avoid += "\n  " + name;
  }
  t.print(stdout);
  if (checks == 0) {
    std::fprintf(stderr, "quern selftest: no kernel here solves any of the problems\n");
    return failed;
  }
  std::printf("%zu checks of %zu candidates on %zu problems: %s\n", checks, tally.size(), problems,
              avoid.empty() ? "all right" : "WRONG");
  if (!avoid.empty()) std::printf("avoid, with quern_wish.deny:%s\n", avoid.c_str());
  if (!untested.empty()) std::printf("never tested, no problem here reaches them:%s\n", untested.c_str());
  return avoid.empty() && untested.empty() ? 0 : failed;
}

}  // namespace tools
