// SPDX-License-Identifier: MIT
//
// Solves a problem with one candidate, every operand between pages that fault, the workspace full of NaN,
// and compares what it gives with what the reference gives.
#pragma once

#include <gtest/gtest.h>
#include <quern/quern.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "guard.h"
#include "half.h"
#include "problem.h"
#include "registry.h"

namespace quern::test {

// The line that `quern bench` replays.
inline std::string text(const quern_problem& p) {
  char line[2048] = "";
  quern_error error = {};
  return quern_problem_print(&p, line, sizeof line, nullptr, &error) == QUERN_OK ? line : error.text;
}

inline int64_t channels_of(const quern_problem& p) { return p.dst.size[p.op == QUERN_GEMM ? 4 : 1]; }

inline bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
inline bool same_value(float a, float b) { return a == b || (a != a && b != b); }

// visit(offset) for every element, in the order n c d h w.
template <class Visit>
void each(const quern_tensor& t, Visit visit) {
  const int64_t block = block_of(t.layout);
  for (int64_t n = 0; n < t.size[0]; ++n)
    for (int64_t c = 0; c < t.size[1]; ++c)
      for (int64_t d = 0; d < t.size[2]; ++d)
        for (int64_t h = 0; h < t.size[3]; ++h)
          for (int64_t w = 0; w < t.size[4]; ++w)
            visit(static_cast<size_t>(n * t.stride[0] + c / block * t.stride[1] + c % block + d * t.stride[2] +
                                      h * t.stride[3] + w * t.stride[4]));
}

// Guarded elements of any type but f64, read and written as floats.
class elements {
 public:
  elements(quern_type type, size_t count, edge side) : bytes_(count * width(type), side, width(type)), type_(type) {}
  float* data() const { return reinterpret_cast<float*>(bytes_.data()); }  // of f32; of others an address alone
  float* begin() const { return data(); }
  float* end() const { return data() + size(); }
  size_t size() const { return bytes_.size() / width(type_); }
  size_t bytes() const { return bytes_.size(); }
  void protect() const { bytes_.protect(); }

  // What nobody computes: a NaN of its own.  Of s8 there is none: what is not written is wrong, but for -128.
  static constexpr uint32_t untouched(quern_type type) {
    return type == QUERN_S8                         ? 0x80
           : type == QUERN_E4M3                     ? 0xff
           : type == QUERN_F32 || type == QUERN_S32 ? 0x7fedcba9u
                                                    : 0x7fcbu;
  }
  uint32_t bits(size_t i) const {
    uint32_t b = 0;
    memcpy(&b, at(i), width(type_));
    return b;
  }
  void set_bits(size_t i, uint32_t b) const { memcpy(at(i), &b, width(type_)); }
  float operator[](size_t i) const {
    const uint32_t b = bits(i);
    switch (type_) {
      case QUERN_F16: return value(f16{static_cast<uint16_t>(b)});
      case QUERN_BF16: return value(bf16{static_cast<uint16_t>(b)});
      case QUERN_S8: return value(s8{static_cast<int8_t>(b)});
      case QUERN_E4M3: return value(e4m3{static_cast<uint8_t>(b)});
      case QUERN_S32: return static_cast<float>(static_cast<int32_t>(b));
      default: return float_of(b);
    }
  }
  void set(size_t i, float x) const {
    switch (type_) {
      case QUERN_F16: return set_bits(i, rounded<f16>(x).bits);
      case QUERN_BF16: return set_bits(i, rounded<bf16>(x).bits);
      case QUERN_S8: return set_bits(i, static_cast<uint8_t>(rounded<s8>(x).bits));
      case QUERN_E4M3: return set_bits(i, rounded<e4m3>(x).bits);
      default: return set_bits(i, bits_of(x));
    }
  }

 private:
  static size_t width(quern_type type) { return type ? static_cast<size_t>(type_bytes(type)) : 4; }
  char* at(size_t i) const { return bytes_.data() + i * width(type_); }

  guarded<char> bytes_;
  quern_type type_;
};

using numbers = std::function<float()>;

// Everything that a problem reads, read only.  Memory between the elements of a tensor is NaN.
struct operands {
  elements src, weights, residual;
  guarded<float> scale, bias, slope;

  operands(const quern_problem& p, edge side, const numbers& number, const numbers& slopes)
      : src(tensor(p.src, side, number)),
        weights(tensor(p.weights, side, number)),
        residual(tensor(p.residual, side, number)),
        scale(vector(p, side, number)),
        bias(vector(p, side, number)),
        slope(vector(p, side, slopes)) {}

  quern_args args() const {
    quern_args a = {};
    a.size = sizeof a;
    a.src = src.data(), a.weights = weights.data(), a.residual = residual.data();
    a.scale = scale.data(), a.bias = bias.data(), a.slope = slope.data();
    return a;
  }

 private:
  static elements tensor(const quern_tensor& t, edge side, const numbers& number) {
    elements memory(t.type, static_cast<size_t>(extent(t)), side);
    for (size_t i = 0; i < memory.size(); ++i) memory.set(i, std::numeric_limits<float>::quiet_NaN());
    each(t, [&](size_t at) { memory.set(at, number()); });
    memory.protect();
    return memory;
  }
  static guarded<float> vector(const quern_problem& p, edge side, const numbers& number) {
    guarded<float> memory(static_cast<size_t>(channels_of(p)), side);
    for (float& x : memory) x = number();
    memory.protect();
    return memory;
  }
};

inline std::vector<quern_candidate> all_candidates(const quern_problem& p, const char* algorithm = nullptr,
                                                   const quern_device* device = nullptr, float src_limit = 0) {
  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.algorithm = algorithm, wish.src_limit = src_limit;
  quern_error error = {};
  std::vector<quern_candidate> list(256);
  list[0].size = sizeof list[0];
  size_t count = 0;
  EXPECT_EQ(quern_candidates(device, &p, &wish, list.data(), list.size(), &count, &error), QUERN_OK)
      << error.text << "\n"
      << text(p);
  EXPECT_LE(count, list.size());
  list.resize(std::min(count, list.size()));
  return list;
}

inline std::vector<quern_candidate> usable_candidates(const quern_problem& p) {
  std::vector<quern_candidate> list = all_candidates(p);
  std::erase_if(list, [](const quern_candidate& c) { return c.verdict > QUERN_USABLE; });
  if (list.empty()) ADD_FAILURE() << "no candidate solves " << text(p);
  return list;
}

// Those of class F32: sums in the one order of taps and channels, exact on small integers.
inline std::vector<quern_candidate> exact_candidates(const quern_problem& p) {
  std::vector<quern_candidate> list = usable_candidates(p);
  std::erase_if(list, [](const quern_candidate& c) { return c.accuracy > QUERN_ACCURACY_F32; });
  return list;
}

// Those of them whose products are f32's own: what is infinite, NaN or denormal comes out as the mathematics has it.
inline std::vector<quern_candidate> faithful_candidates(const quern_problem& p) {
  std::vector<quern_candidate> list = exact_candidates(p);
  std::erase_if(list, [&p](const quern_candidate& c) {
    for (size_t i = 0; i < algorithm_count(); ++i)
      if (strcmp(algorithm_at(i).name, c.algorithm) == 0) return algorithm_at(i).splits && p.src.type == QUERN_F32;
    return false;
  });
  return list;
}

// Those whose sums are one chain each: they have the same bits.
inline std::vector<quern_candidate> chained_candidates(const quern_problem& p) {
  std::vector<quern_candidate> list = exact_candidates(p);
  std::erase_if(list, [](const quern_candidate& c) { return c.repeat < QUERN_REPEAT_ISA; });
  return list;
}

// How a candidate is run.
struct way {
  edge side = edge::back;
  uint32_t threads = 1;
  void (*parallel_for)(void*, size_t, void (*)(void*, size_t), void*) = nullptr;
  void* self = nullptr;
  bool in_place = false;      // the residual is what dst holds before
  bool small_caches = false;  // blocks are small, so that small problems have several
  int64_t small_l1 = 4 << 10;
  bool slow_l3 = false;      // with small caches: what lies beyond L2 is waited for
  uint64_t vector_bits = 0;  // that the core is said to multiply at once
  uint64_t model = 0;        // that it is said to be
  size_t workspace_limit = 0;
  const quern_device* device = nullptr;
  void* queue = nullptr;
  int32_t overlap = QUERN_OVERLAP_START;
  float src_limit = 0;
  std::string tuning = {};  // a table
};

struct solution {
  std::vector<float> dst;  // in the order n k o p q
  std::string failure;     // empty when all went well
  quern_plan plan;
};

inline solution solve(const quern_problem& p, const operands& in, const char* algorithm, const char* kernel,
                      const way& how = {}) {
  solution s = {};
  quern_error error = {};
  const auto fails = [&](const std::string& why) {
    s.failure = why + ": " + (algorithm ? algorithm : "chosen") + " " + (kernel ? kernel : "") + ", " +
                std::to_string(how.threads) + " threads\n" + text(p);
    return s;
  };
  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.algorithm = algorithm, wish.kernel = kernel, wish.threads = how.threads, wish.overlap = how.overlap;
  wish.src_limit = how.src_limit, wish.workspace_limit = how.workspace_limit;
  wish.tuning = how.tuning.data(), wish.tuning_bytes = how.tuning.size();
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  if (quern_cpu_get(&cpu, &error)) return fails(error.text);
  if (how.small_caches) {
    cpu.l1_bytes = how.small_l1, cpu.l2_bytes = 4 * how.small_l1, cpu.l3_bytes = 16 * how.small_l1;
    cpu.l3_rate = how.slow_l3 ? 2 : 60;
  }
  if (how.vector_bits) cpu.vector_bits = how.vector_bits;
  if (how.model) cpu.model = how.model;
  if (how.small_caches || how.vector_bits || how.model) wish.cpu = &cpu;
  if (quern_plan_make(&s.plan, how.device, &p, &wish, &error)) return fails(error.text);

  quern_args args = in.args();
  guarded<char> packed(s.plan.packed_bytes, how.side, QUERN_ALIGN);
  if (s.plan.packed_bytes) {
    memset(packed.data(), 0xff, packed.size());
    if (quern_pack(&s.plan, in.weights.data(), packed.data(), packed.size(), nullptr, &error)) return fails(error.text);
    if (!packed.intact()) return fails("packing wrote behind the packed weights");
    packed.protect();
    if (quern_packed_check(&s.plan, packed.data(), packed.size(), &error)) return fails(error.text);
    args.weights = packed.data();
  }
  guarded<char> workspace(s.plan.workspace_bytes, how.side, QUERN_ALIGN);
  memset(workspace.data(), 0xff, workspace.size());  // a NaN
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.threads = how.threads, exec.parallel_for = how.parallel_for, exec.self = how.self;
  exec.queue = how.queue;
  exec.workspace = workspace.data(), exec.workspace_bytes = workspace.size();

  const quern_tensor& t = s.plan.problem.dst;
  const uint32_t untouched = elements::untouched(t.type);
  const elements dst(t.type, static_cast<size_t>(extent(t)), how.side);
  for (size_t i = 0; i < dst.size(); ++i) dst.set_bits(i, untouched);
  if (how.in_place) {
    each(t, [&](size_t at) { dst.set_bits(at, in.residual.bits(at)); });
    args.residual = dst.data();
  }
  args.dst = dst.data();
  if (quern_run(&s.plan, &args, &exec, &error)) return fails(error.text);
  if (!workspace.intact()) return fails("it wrote behind the workspace");
  each(t, [&](size_t at) {
    s.dst.push_back(dst[at]);
    if (dst.bits(at) == untouched && t.type != QUERN_S8 && s.failure.empty())
      fails("it left an element of dst as it was");
    dst.set_bits(at, untouched);
  });
  for (size_t i = 0; i < dst.size(); ++i)
    if (dst.bits(i) != untouched && s.failure.empty()) fails("it wrote between the elements of dst");
  return s;
}

// The reference's answer.
inline solution expected(const quern_problem& p, const operands& in) { return solve(p, in, "reference", nullptr); }

inline std::string place(const quern_problem& p, size_t index) {
  std::string at;
  int64_t rest = static_cast<int64_t>(index);
  for (int i = 4; i >= 0; --i) {
    at = " " + std::to_string(rest % p.dst.size[i]) + at;
    rest /= p.dst.size[i];
  }
  return "dst" + at;
}

// Where the first element is that `same(want, got, index)` does not accept.
template <class Same>
testing::AssertionResult agree(const quern_problem& p, const solution& want, const solution& got, Same same) {
  if (!want.failure.empty()) return testing::AssertionFailure() << want.failure;
  if (!got.failure.empty()) return testing::AssertionFailure() << got.failure;
  for (size_t i = 0; i < want.dst.size(); ++i)
    if (!same(want.dst[i], got.dst[i], i))
      return testing::AssertionFailure() << got.plan.algorithm << " " << got.plan.kernel << ": " << place(p, i)
                                         << " is " << std::hexfloat << got.dst[i] << ", must be " << want.dst[i] << "\n"
                                         << text(p);
  return testing::AssertionSuccess();
}

inline testing::AssertionResult agree(const quern_problem& p, const solution& want, const solution& got) {
  return agree(p, want, got, [](float a, float b, size_t) { return same_value(a, b); });
}

inline testing::AssertionResult agree_in_bits(const quern_problem& p, const solution& want, const solution& got) {
  return agree(p, want, got, [](float a, float b, size_t) { return same_bits(a, b); });
}

// Within the rounding of sums of numbers around one.
inline testing::AssertionResult agree_closely(const quern_problem& p, const solution& want, const solution& got) {
  return agree(p, want, got, [](float a, float b, size_t) { return std::abs(a - b) <= 1e-4f * (1 + std::abs(a)); });
}

}  // namespace quern::test
