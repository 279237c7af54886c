// SPDX-License-Identifier: MIT
//
// A problem with its plan and every operand in memory of exactly the size it must have, ready to run.
#pragma once

#include <gtest/gtest.h>
#include <quern/quern.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "build_isas.h"
#include "problem.h"

namespace quern {

class memory {
 public:
  explicit memory(uint64_t bytes = 0) : bytes_(bytes) {
    void* p = nullptr;
    if (posix_memalign(&p, QUERN_ALIGN, bytes ? bytes : 1) != 0) abort();
    memset(p, 0xff, bytes);  // as floats: NaN
    p_.reset(static_cast<char*>(p));
  }
  char* get() const { return p_.get(); }
  float* floats() const { return reinterpret_cast<float*>(p_.get()); }
  uint64_t bytes() const { return bytes_; }
  std::string copy() const { return {get(), static_cast<size_t>(bytes_)}; }

 private:
  struct release {
    void operator()(char* p) const { free(p); }
  };
  std::unique_ptr<char, release> p_;
  uint64_t bytes_;
};

inline memory random_floats(uint64_t count, std::mt19937& random) {
  memory m(count * sizeof(float));
  for (uint64_t i = 0; i < count; ++i) m.floats()[i] = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
  return m;
}

inline std::string text_of(const quern_problem& p) {
  char line[1024] = "";
  return quern_problem_print(&p, line, sizeof line, nullptr, nullptr) == QUERN_OK ? line : "(not printable)";
}

inline quern_problem conv(quern_layout layout, int64_t n, int64_t c, int64_t hw, int64_t k, int64_t filter = 3) {
  quern_problem p = quern_conv2d(QUERN_F32, layout, n, c, hw, hw, k, filter, filter);
  for (int i = 1; i < 3; ++i) p.window.pad_begin[i] = p.window.pad_end[i] = filter / 2;
  return p;
}

inline quern_wish wish_of(uint32_t threads = 1) {
  quern_wish w = {};
  w.size = sizeof w;
  w.threads = threads;
  w.verbose = -1;
  return w;
}

// Whether kernels of this ISA run here, QUERN_ISA included.
inline bool can_run(uint64_t isa) {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  return quern_cpu_get(&cpu, nullptr) == QUERN_OK && (isa & ~cpu.isa) == 0;
}

inline quern_plan plan_of(const quern_problem& p, const quern_wish& wish) {
  quern_plan plan = {};
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << error.text << "\n" << text_of(p);
  return plan;
}

struct prepared {
  explicit prepared(const quern_problem& p, const quern_wish& wish = wish_of(), unsigned seed = 1)
      : plan(plan_of(p, wish)) {
    const quern_problem& q = plan.problem;
    std::mt19937 random(seed);
    const int64_t channels = q.op == QUERN_GEMM ? q.dst.size[4] : q.dst.size[1];
    const auto floats = [&](int64_t count) { return random_floats(static_cast<uint64_t>(count), random); };
    src = floats(extent(q.src)), weights = floats(extent(q.weights));
    if (q.epilogue.residual) residual = floats(extent(q.residual));
    if (q.epilogue.scale) scale = floats(channels);
    if (q.epilogue.bias) bias = floats(channels);
    if (q.epilogue.activation == QUERN_PRELU) slope = floats(channels);
    dst = memory(static_cast<uint64_t>(extent(q.dst)) * sizeof(float));
    packed = memory(plan.packed_bytes);
    workspace = memory(plan.workspace_bytes);
    if (plan.packed_bytes) {
      quern_error error = {};
      EXPECT_EQ(quern_pack(&plan, weights.get(), packed.get(), packed.bytes(), nullptr, &error), QUERN_OK)
          << error.text;
    }
    args.size = sizeof args;
    args.src = src.get(), args.dst = dst.get();
    args.weights = plan.packed_bytes ? packed.get() : weights.get();
    args.residual = q.epilogue.residual ? residual.get() : nullptr;
    args.scale = q.epilogue.scale ? scale.get() : nullptr;
    args.bias = q.epilogue.bias ? bias.get() : nullptr;
    args.slope = q.epilogue.activation == QUERN_PRELU ? slope.get() : nullptr;
    exec.size = sizeof exec;
    exec.workspace = plan.workspace_bytes ? workspace.get() : nullptr;
    exec.workspace_bytes = plan.workspace_bytes;
  }

  quern_status run(quern_error* error = nullptr) const { return quern_run(&plan, &args, &exec, error); }

  quern_plan plan;
  memory src, weights, dst, residual, scale, bias, slope, packed, workspace;
  quern_args args = {};
  quern_exec exec = {};
};

}  // namespace quern
