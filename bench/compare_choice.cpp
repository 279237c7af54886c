// SPDX-License-Identifier: MIT
//
// What the choice is worth: predicted or measured, whole networks against plain im2col, threads and slow cores, and how
// much a layer's time varies.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "compare.h"
#include "geometry.h"
#include "lines.h"
#include "measure.h"
#include "stop.h"
#include "wishes.h"

namespace compare {
namespace {

std::vector<tools::layer> layers_of(const std::string& network) {
  std::vector<tools::layer> all;
  for (const tools::layer& l : tools::read_layers({QUERN_LAYERS}, "bias act=relu"))
    if (l.name.rfind(network + ":", 0) == 0) all.push_back(l);
  return all;
}

quern_wish plain_wish(uint32_t threads = 1) {
  quern_wish wish = {};
  wish.size = sizeof wish, wish.threads = threads;
  return wish;
}

// What this level of tuning chooses.
arm tuned(const std::shared_ptr<task>& t, const std::string& name, int32_t level) {
  std::string table;
  quern_budget budget = {};
  budget.size = sizeof budget, budget.level = level, budget.self = &table;
  budget.row = [](void* self, const void* row, size_t bytes) {
    static_cast<std::string*>(self)->assign(static_cast<const char*>(row), bytes);
  };
  quern_wish wish = plain_wish();
  quern_tuned cost = {};
  cost.size = sizeof cost;
  quern_error error = {};
  tools::need(quern_host_tune(nullptr, nullptr, &t->problem(), &wish, &budget, &cost, &error), error, name);
  wish.tuning = table.data(), wish.tuning_bytes = table.size();
  arm a = planned(t, name, wish);
  a.tuning_ms = cost.elapsed_ns * 1e-6;
  return a;
}

// One image in NCHW: the whole im2col matrix of a group, a GEMM, then a pass for bias and ReLU.
arm naive(const std::shared_ptr<task>& t) {
  struct state {
    quern::geometry g;
    tools::buffer matrix, workspace;
    quern_exec exec;
  };
  const quern::geometry g = quern::geometry_of(t->problem());
  const int64_t k = g.c * g.filter_size(), pixels = g.out[1] * g.out[2];
  const auto s = std::make_shared<state>(
      state{g, tools::buffer(static_cast<uint64_t>(k * pixels) * sizeof(float)), tools::buffer(), {}});
  s->exec.size = sizeof s->exec;
  s->workspace = tools::buffer(quern_sgemm_workspace(g.k, pixels, k, nullptr));
  s->exec.workspace = s->workspace.get(), s->exec.workspace_bytes = s->workspace.bytes();
  return {"naive", s->matrix.bytes() + s->workspace.bytes(),
          [t, s, k, pixels] {
            const quern::geometry& q = s->g;
            float* const matrix = s->matrix.floats();
            for (int64_t group = 0; group < q.groups; ++group) {
              float* row = matrix;
              for (int64_t c = 0; c < q.c; ++c)
                for (int64_t r = 0; r < q.filter[1]; ++r)
                  for (int64_t x = 0; x < q.filter[2]; ++x)
                    for (int64_t i = 0; i < q.out[1]; ++i, row += q.out[2]) {
                      const int64_t y = i * q.stride[1] + r * q.dilation[1] - q.pad[1];
                      const float* const line = t->data().src.floats() + (group * q.c + c) * q.src[1] + y * q.src[3];
                      for (int64_t j = 0; j < q.out[2]; ++j) {
                        const int64_t at = j * q.stride[2] + x * q.dilation[2] - q.pad[2];
                        const bool inside = y >= 0 && y < q.in[1] && at >= 0 && at < q.in[2];
                        row[j] = inside ? line[at] : 0.0f;
                      }
                    }
              quern_error error = {};
              const float* const weights = t->data().weights.floats() + group * q.weights_group;
              float* const dst = t->data().dst.floats() + group * q.k * q.dst[1];
              tools::need(
                  quern_sgemm(q.k, pixels, k, 1, weights, k, 1, matrix, pixels, 1, 0, dst, pixels, 1, &s->exec, &error),
                  error, "naive");
              for (int64_t c = 0; c < q.k; ++c) {
                const float bias = t->data().bias.floats()[group * q.k + c];
                for (int64_t i = 0; i < pixels; ++i) dst[c * pixels + i] = std::max(dst[c * pixels + i] + bias, 0.0f);
              }
            }
          },
          [t] { return t->max_error(); }};
}

// Arms one after the other, as one.
arm chain(const std::string& name, const std::vector<arm>& parts) {
  uint64_t workspace = 0;
  for (const arm& a : parts) workspace = std::max(workspace, a.workspace_bytes);
  return {name, workspace,
          [parts] {
            for (const arm& a : parts) a.run();
          },
          [parts] {
            double worst = 0;
            for (const arm& a : parts)
              if (a.error) worst = std::max(worst, a.error());
            return worst;
          }};
}

// A thread that is in the way of whoever else wants its CPU.
class intruder {
 public:
  explicit intruder(int cpu)
      : thread_([this, cpu] {
          cpu_set_t set;
          CPU_ZERO(&set);
          CPU_SET(static_cast<size_t>(cpu), &set);
          sched_setaffinity(0, sizeof set, &set);
          while (!ends_.load(std::memory_order_relaxed)) continue;
        }) {}
  ~intruder() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace

void profiled(ring& r) {
  for (const char* network : {"resnet50", "mobilenetv2"})
    for (const tools::layer& l : layers_of(network)) {
      const auto t = std::make_shared<task>("nhwc " + l.line);
      r.play(l.name, t->flops(),
             {planned(t, "predicted", nullptr), tuned(t, "profiled", QUERN_TUNE_NORMAL),
              tuned(t, "exhaustive", QUERN_TUNE_HEAVY)});
    }
}

void networks(ring& r) {
  for (const char* network : {"resnet50", "mobilenetv2"}) {
    std::vector<arm> plain, planes, last;
    double flops = 0;
    const std::vector<tools::layer> all = layers_of(network);
    for (const tools::layer& l : all) {
      const auto nchw = std::make_shared<task>("nchw " + l.line), nhwc = std::make_shared<task>("nhwc " + l.line);
      plain.push_back(naive(nchw)), planes.push_back(planned(nchw, "nchw", nullptr));
      last.push_back(planned(nhwc, "nhwc", nullptr));
      flops += nchw->flops();
    }
    // A network hands its first image over in NCHW, and wants its last one back like that.
    const auto reorder = [](const quern_tensor& t, const char* layouts) {
      const auto size = [&](int i) { return std::to_string(t.size[i]); };
      return planned(std::make_shared<task>(std::string("reorder ") + layouts + " " + size(0) + "x" + size(1) + "x" +
                                            size(3) + "x" + size(4)),
                     layouts, nullptr);
    };
    last.insert(last.begin(), reorder(all.front().problem.src, "nchw:nhwc"));
    last.push_back(reorder(all.back().problem.dst, "nhwc:nchw"));
    r.play(network, flops,
           {chain("naive im2col, nchw", plain), chain("library, nchw", planes),
            chain("library, nhwc and conversions", last)});
  }
}

// Eight images: cut once for all threads, or shares that idle threads help with; then with one CPU half as fast.
void threads(ring& r) {
  const uint32_t cpus = quern_host_cpus();
  for (const char* line :
       {"nhwc mb8ic64ih56oc64kh3ph1", "nhwc mb8g96ic96ih56oc96kh3ph1", "nhwc mb8ic256ih14oc256kh1"}) {
    const std::string layer = std::string(line) + " bias act=relu";
    const auto t = std::make_shared<task>(layer);
    for (const bool slow : {false, true}) {
      if (slow && cpus < 2) continue;
      std::vector<arm> arms;
      for (uint32_t n = 1; n <= cpus; n *= 2) {
        const auto pool = std::make_shared<tools::pool>(n);
        arms.push_back(planned(t, std::to_string(n) + (n == 1 ? " thread" : " threads, helping"), plain_wish(n), pool));
        if (n == 1) continue;
        // As many plans as threads, each for its own images.
        struct cut {
          std::vector<std::shared_ptr<tools::ready>> parts;
          std::vector<std::shared_ptr<task>> tasks;
        };
        const auto c = std::make_shared<cut>();
        const std::string images = "mb" + std::to_string(8 / n);
        std::string part = layer;
        part.replace(part.find("mb8"), 3, images);
        const tools::pool alone(1);
        for (uint32_t i = 0; i < n; ++i) {
          c->tasks.push_back(std::make_shared<task>(part));
          const quern_problem& p = c->tasks[i]->problem();
          c->parts.push_back(std::make_shared<tools::ready>(p, plain_wish(), tools::candidates(p, plain_wish()).at(0),
                                                            c->tasks[i]->data(), alone));
        }
        arms.push_back({std::to_string(n) + " threads, cut once", 0,
                        [c, pool, n] {
                          const tools::buffer none;
                          const quern_exec exec = pool->exec(none);
                          exec.parallel_for(
                              exec.self, n,
                              [](void* self, size_t i) {
                                const cut& all = *static_cast<cut*>(self);
                                all.parts[i]->run(all.tasks[i]->data());
                              },
                              c.get());
                        },
                        [c] { return c->tasks[0]->max_error(); }});
      }
      if (slow) {
        const intruder busy(0);
        r.play(layer.substr(5) + ", a slow CPU", t->flops(), arms);
      } else {
        r.play(layer.substr(5), t->flops(), arms);
      }
    }
  }
}

void variance(ring& r) {
  // Written between samples: pushes operands and weights out of all caches that a core can count on.
  const auto other = std::make_shared<tools::buffer>(uint64_t{64} << 20);
  for (const char* network : {"resnet50", "mobilenetv2"})
    for (const tools::layer& l : layers_of(network)) {
      const auto t = std::make_shared<task>("nhwc " + l.line);
      arm warm = planned(t, "warm", nullptr), cold = planned(t, "cold", nullptr);
      warm.single = cold.single = true;
      cold.prepare = [other] { std::memset(other->get(), 1, other->bytes()); };
      r.play(l.name, t->flops(), {warm, cold});
    }
}

}  // namespace compare
