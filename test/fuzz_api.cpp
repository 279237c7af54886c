// SPDX-License-Identifier: MIT
//
// The verbs on whatever problems, wishes, processors and sizes the bytes say: an answer with a sentence, never a
// crash or a hang; what is small enough is packed and run in memory of exactly the stated sizes, and must equal
// the reference.
#include <quern/quern.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "build_isas.h"
#include "problem.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

void check_error(quern_status status, const quern_error& error) {
  require(status == error.status, "the error has the status");
  require(error.text[0] != 0 && std::memchr(error.text, 0, sizeof error.text), "the error has a sentence");
}

struct input {
  const uint8_t* data;
  size_t size;
  uint8_t byte() { return size ? --size, *data++ : uint8_t{0}; }
  int64_t upto(int64_t most) { return byte() % (most + 1); }
  template <class T>
  T raw() {
    T value = {};
    for (size_t i = 0; i < sizeof value; ++i) reinterpret_cast<uint8_t*>(&value)[i] = byte();
    return value;
  }
};

struct buffer {
  std::unique_ptr<char, void (*)(void*)> p{nullptr, std::free};
  uint64_t bytes = 0;
  explicit buffer(uint64_t n) : bytes(n) {
    void* memory = nullptr;
    require(posix_memalign(&memory, QUERN_ALIGN, n ? n : 1) == 0, "memory for a small problem");
    p.reset(static_cast<char*>(memory));
    std::memset(memory, 0xff, n);
  }
  float* floats() const { return reinterpret_cast<float*>(p.get()); }
  void integers(input& in) const {
    for (uint64_t i = 0; i < bytes / sizeof(float); ++i)
      floats()[i] = static_cast<float>(static_cast<int>((i * 7 + in.size + i / 5) % 9) - 4);
  }
};

quern_layout some_layout(input& in) {
  constexpr quern_layout all[] = {QUERN_NCHW, QUERN_NHWC, QUERN_NC4HW4, QUERN_NC8HW8, QUERN_NC16HW16};
  return all[in.upto(4)];
}

quern_problem small_problem(input& in) {
  const quern_layout layout = some_layout(in);
  if (in.upto(5) == 0) return quern_gemm(QUERN_F32, in.upto(40), in.upto(70), in.upto(40));
  quern_problem p =
      quern_conv2d(QUERN_F32, layout, in.upto(3), 0, in.upto(12), in.upto(12), 0, 1 + in.upto(4), 1 + in.upto(4));
  const bool transposed = in.upto(2) == 0;
  if (transposed) p.op = QUERN_CONV_TRANSPOSED;
  p.groups = 1 + in.upto(4);
  const int64_t c = in.upto(9), k = in.upto(40);
  p.src.size[1] = c * p.groups;
  p.weights.size[0] = transposed ? c * p.groups : k * p.groups, p.weights.size[1] = transposed ? k : c;
  if (in.upto(7) == 0) p.src.size[2] = in.upto(4), p.weights.size[2] = 1 + in.upto(2);
  for (int i = 0; i < 3; ++i) {
    p.window.stride[i] = in.upto(3), p.window.dilation[i] = in.upto(3);
    p.window.pad_begin[i] = in.upto(3), p.window.pad_end[i] = in.upto(3);
    if (transposed) p.window.output_padding[i] = in.upto(1);
  }
  p.weights.layout = in.upto(1) ? QUERN_NHWC : QUERN_NCHW;
  return p;
}

void add_epilogue(quern_problem& p, input& in) {
  quern_epilogue& e = p.epilogue;
  e.scale = in.byte() & 1, e.bias = in.byte() & 1, e.residual = static_cast<int32_t>(in.upto(2));
  e.activation = static_cast<quern_activation>(in.upto(QUERN_PRELU));
  if (e.activation == QUERN_CLAMP) e.activation_beta = 6;
  if (e.activation == QUERN_LEAKY_RELU) e.activation_alpha = 0.5f;
  if (e.residual && in.upto(1)) p.residual.layout = some_layout(in);
  if (in.upto(2) == 0) p.dst.layout = some_layout(in);
}

// The size of a struct that really has `bytes`: mostly that, a shorter one, or too much to be one at all.
uint32_t some_size(input& in, size_t bytes) {
  const int64_t kind = in.upto(15);
  const uint32_t whole = static_cast<uint32_t>(bytes), any = in.raw<uint16_t>();
  return kind > 1 ? whole : kind == 1 ? any % whole : any + (1u << 16) + 1;
}

// Some fields become what nobody would write.
void damage(quern_problem& p, input& in) {
  for (int64_t i = in.upto(4); i > 0; --i) {
    const size_t at = static_cast<size_t>(in.raw<uint16_t>()) % (sizeof p - 8) / 4 * 4;
    const int64_t sizes[] = {-1, 0, 1, 1000, int64_t{1} << 20, INT32_MAX, int64_t{1} << 40, INT64_MAX};
    const int64_t value = in.upto(1) ? in.raw<int64_t>() : sizes[in.upto(7)];
    std::memcpy(reinterpret_cast<char*>(&p) + at, &value, in.upto(1) ? 8 : 4);
  }
  p.size = some_size(in, sizeof p);
}

void set_types(quern_problem& p, input& in) {
  static constexpr quern_type types[] = {QUERN_F32, QUERN_F16, QUERN_BF16, QUERN_S8, QUERN_E4M3};
  const quern_type type = types[in.upto(4)];
  for (quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual}) t->type = type;
  if (in.upto(2) == 0) p.dst.type = p.residual.type = types[in.upto(2)];
}

constexpr quern_cpu host = {sizeof(quern_cpu), 1, quern::lowest_isa, 32 << 10, 256 << 10, 0, 0};

struct wish {
  quern_cpu cpu = host;
  quern_gpu gpu = {};
  quern_wish w = {};
  explicit wish(input& in) {
    w.size = sizeof w;
    w.verbose = -1;
    w.threads = in.upto(3) ? static_cast<uint32_t>(in.upto(5)) : in.raw<uint32_t>();
    w.workspace_limit = in.upto(3) ? 0 : in.raw<uint16_t>();
    w.repeat = static_cast<int32_t>(in.upto(3));
    w.src_limit = in.upto(7) ? 0 : in.raw<float>();
    static const char* const algorithms[] = {nullptr, nullptr,       nullptr,       "reference",
                                             "gemm",  "conv_direct", "conv_im2col", "nonsense"};
    w.algorithm = algorithms[in.upto(7)];
    static const char* const lists[] = {nullptr, nullptr, "", quern::a_gemm_kernel, "conv_direct, conv_im2col", ",,x"};
    w.deny = lists[in.upto(5)];
    if (in.upto(1)) {
      w.cpu = &cpu;
      if (in.upto(1)) cpu.l1_bytes = in.raw<uint64_t>(), cpu.l2_bytes = in.raw<uint64_t>();
      if (in.upto(3) == 0) cpu.isa = in.upto(3);
    } else if (in.upto(2) == 0) {
      static constexpr uint32_t capabilities[] = {75, 80, 89, 90};
      gpu.size = sizeof gpu, gpu.capability = in.upto(7) ? capabilities[in.upto(3)] : in.raw<uint32_t>();
      if (in.upto(1)) gpu.shared_bytes = 227 << 10, gpu.multiprocessors = in.raw<uint16_t>();
      if (in.upto(3) == 0) gpu.clock_mhz = in.raw<uint32_t>(), gpu.bandwidth = in.raw<uint64_t>();
      if (in.upto(3) == 0) gpu.l2_bytes = in.raw<uint64_t>(), gpu.shared_bytes = in.raw<uint64_t>();
      w.gpu = &gpu;
    }
    w.size = some_size(in, sizeof w);
  }
};

double work(const quern_problem& p) {
  double work = 1;
  for (const int64_t size : p.dst.size) work *= static_cast<double>(size > 1 ? size : 1);
  return work * static_cast<double>(quern::sum_length(p) + 1);
}

bool small(const quern_tensor& t) { return quern::extent(t) <= 1 << 18; }

void run(const quern_plan& plan, input& in) {
  const quern_problem& p = plan.problem;
  if (!small(p.src) || !small(p.weights) || !small(p.dst) || !small(p.residual) || work(p) > 4e6) return;
  if (p.src.type != QUERN_F32 || plan.packed_bytes > 1 << 22 || plan.workspace_bytes > 1 << 24) return;
  const auto floats = [&](int64_t count) {
    buffer b(static_cast<uint64_t>(count) * sizeof(float));
    b.integers(in);
    return b;
  };
  const int64_t channels = p.op == QUERN_GEMM ? p.dst.size[4] : p.dst.size[1];
  const buffer src = floats(quern::extent(p.src)), weights = floats(quern::extent(p.weights));
  const buffer residual = floats(p.epilogue.residual ? quern::extent(p.residual) : 0), vector = floats(channels);
  const buffer dst(static_cast<uint64_t>(quern::extent(p.dst)) * sizeof(float)), expected(dst.bytes);
  const buffer packed(plan.packed_bytes), workspace(plan.workspace_bytes);
  quern_error error = {};
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.floats(), args.dst = dst.floats();
  args.weights = plan.packed_bytes ? packed.floats() : weights.floats();
  args.residual = residual.floats();
  args.scale = args.bias = args.slope = vector.floats();
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.threads = static_cast<uint32_t>(in.upto(9));
  if (in.upto(1))
    exec.parallel_for = [](void*, size_t count, void (*task)(void*, size_t), void* arg) {
      for (size_t i = count; i-- > 0;) task(arg, i);
    };
  exec.workspace = workspace.floats(), exec.workspace_bytes = workspace.bytes;
  if (plan.packed_bytes) {
    require(quern_pack(&plan, weights.floats(), packed.p.get(), packed.bytes, &exec, &error) == QUERN_OK, error.text);
    require(quern_packed_check(&plan, packed.p.get(), packed.bytes, &error) == QUERN_OK, error.text);
    if (in.upto(7) == 0) {  // a damaged blob is found, and runs at most when its header is whole
      const uint64_t at = in.raw<uint32_t>() % packed.bytes;
      packed.p.get()[at] = static_cast<char>(packed.p.get()[at] ^ (1 + in.upto(254)));
      require(quern_packed_check(&plan, packed.p.get(), packed.bytes, &error) == QUERN_MISMATCH, "damage is found");
      return;
    }
  }
  require(quern_run(&plan, &args, &exec, &error) == QUERN_OK, error.text);

  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.algorithm = "reference";
  quern_plan reference;
  require(quern_plan_make(&reference, nullptr, &p, &wish, &error) == QUERN_OK, error.text);
  args.weights = weights.floats(), args.dst = expected.floats();
  require(quern_run(&reference, &args, nullptr, &error) == QUERN_OK, error.text);
  // Sums of small integers are exact in every order, but not in Winograd; what lies between the elements of dst was NaN
  // in both.
  const quern_epilogue& e = p.epilogue;
  const bool exact = plan.accuracy <= QUERN_ACCURACY_F32 && e.alpha == 1 && e.beta == 1 && !e.activation_alpha;
  for (int64_t i = 0; exact && i < quern::extent(p.dst); ++i) {
    const float a = dst.floats()[i], b = expected.floats()[i];
    require(a == b || (std::isnan(a) && std::isnan(b)), "the result equals the reference");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  input in = {data, size};
  quern_problem p = small_problem(in);
  add_epilogue(p, in);
  wish w(in);
  if (w.w.gpu) set_types(p, in);
  if (in.upto(2) == 0) damage(p, in);

  quern_error error = {};
  quern_plan plan;
  const quern_status status = quern_plan_make(&plan, nullptr, &p, &w.w, &error);
  if (status != QUERN_OK) check_error(status, error);

  std::vector<quern_candidate> all(static_cast<size_t>(in.upto(40)));
  if (!all.empty()) all[0].size = sizeof all[0];
  size_t count = 0;
  error = {};
  const quern_status listed = quern_candidates(nullptr, &p, &w.w, all.data(), all.size(), &count, &error);
  if (listed != QUERN_OK) {
    check_error(listed, error);
    require(status == listed, "the same refusal from plan and candidates");
    return 0;
  }
  require(status == QUERN_OK || status == QUERN_UNSUPPORTED, "candidates know of a complete problem");
  for (size_t i = 0; i < std::min(all.size(), count); ++i) {
    char text[300];
    require(quern_candidate_explain(&all[i], text, sizeof text, nullptr, &error) == QUERN_OK, error.text);
    require((all[i].verdict == QUERN_CHOSEN) == (i == 0 && status == QUERN_OK), "the first is the chosen one");
  }
  if (status != QUERN_OK) return 0;
  if (!all.empty()) require(std::strcmp(all[0].kernel, plan.kernel) == 0, "the plan has the chosen kernel");
  if (w.w.gpu) return 0;  // it is not there

  quern_cpu here = {};
  here.size = sizeof here;
  quern_cpu_get(&here, nullptr);
  for (size_t i = 0; i < quern_kernel_count(); ++i) {
    quern_kernel_info info = {};
    info.size = sizeof info;
    quern_kernel_get(i, &info, nullptr);
    if (std::strcmp(info.name, plan.kernel) == 0 && (info.isa & ~here.isa)) return 0;
  }
  run(plan, in);
  return 0;
}
