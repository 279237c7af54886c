// SPDX-License-Identifier: MIT
//
// Quern as a contender in a comparison of convolution libraries: a shared library with the C ABI below,
// which the harness loads for each library that it compares.  The harness hands over plain NCHW data, times
// contender_run alone, and reads the result back as plain NCHW.  What is computed is f32
// relu(conv(x, w) + bias); for other types contender_create returns NULL, "not supported".
//
// cfg.algo chooses: "auto" (or empty) is the library's own choice, "conv_im2col" one algorithm, and
// "conv_im2col:gemm_f32_14x32_avx512" one algorithm with one kernel.
#include <quern/host.h>
#include <quern/quern.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#define CONTENDER_API extern "C" __attribute__((visibility("default")))

// ---- The harness's ABI ------------------------------------------------------------------------
extern "C" {
enum { CD_F32 = 0 };
enum { CL_NATIVE = 0, CL_NHWC = 1, CL_NCHW = 2 };  // native: whatever the library likes best
struct contender_layer {
  int g, mb, ic, oc, ih, iw, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;  // dh, dw: dilation minus one
};
struct contender_cfg {
  int dtype, layout, threads;
  const char* algo;
  const void* w;           // [oc][ic / g][kh][kw]
  const float* bias;       // [oc]
  const float* wei_scale;  // integer types only, as the two below
  float src_scale, dst_scale;
};
}

namespace {

using memory = std::unique_ptr<void, void (*)(void*)>;

memory allocate(uint64_t bytes) {
  const uint64_t whole = (bytes + QUERN_ALIGN) / QUERN_ALIGN * QUERN_ALIGN;
  memory m(std::aligned_alloc(QUERN_ALIGN, whole), std::free);
  if (!m) throw std::bad_alloc();
  return m;
}

// Where the channels of an image lie: `block` of them side by side, 1 in NCHW, all in NHWC; the last block is whole.
struct place {
  int64_t channels, pixels, block;
  int64_t whole() const { return (channels + block - 1) / block * block; }
  int64_t at(int64_t n, int64_t c, int64_t pixel) const {
    return (n * whole() + c / block * block) * pixels + pixel * block + c % block;
  }
};

void move(const float* from, const place& source, float* to, const place& target, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < source.channels; ++c)
      for (int64_t p = 0; p < source.pixels; ++p) to[target.at(i, c, p)] = from[source.at(i, c, p)];
}

// Padding behind the image that makes `out` outputs.
int64_t pad_end(int64_t in, int64_t out, int64_t filter, int64_t stride, int64_t dilation, int64_t pad) {
  const int64_t needed = (out - 1) * stride + (filter - 1) * dilation + 1 - in - pad;
  return needed > 0 ? needed : 0;
}

quern_problem problem_of(const contender_layer& l, quern_layout layout) {
  quern_problem p = quern_conv2d(QUERN_F32, layout, l.mb, l.ic, l.ih, l.iw, l.oc, l.kh, l.kw);
  p.groups = l.g;
  p.weights.size[1] = l.ic / l.g;
  p.weights.layout = QUERN_NCHW;
  p.window.stride[1] = l.sh, p.window.stride[2] = l.sw;
  p.window.dilation[1] = l.dh + 1, p.window.dilation[2] = l.dw + 1;
  p.window.pad_begin[1] = l.ph, p.window.pad_begin[2] = l.pw;
  p.window.pad_end[1] = pad_end(l.ih, l.oh, l.kh, l.sh, l.dh + 1, l.ph);
  p.window.pad_end[2] = pad_end(l.iw, l.ow, l.kw, l.sw, l.dw + 1, l.pw);
  p.epilogue.bias = 1;
  p.epilogue.activation = QUERN_RELU;
  return p;
}

struct contender {
  contender_layer layer;
  quern_plan plan = {};
  memory src{nullptr, std::free}, weights{nullptr, std::free}, packed{nullptr, std::free}, dst{nullptr, std::free},
      bias{nullptr, std::free}, workspace{nullptr, std::free};
  std::unique_ptr<quern_host, void (*)(quern_host*)> host{nullptr, quern_host_destroy};
  quern_args args = {};
  quern_exec exec = {};
  std::string impl;

  quern_layout layout() const { return plan.problem.src.layout; }
  place src_place(quern_layout l) const { return {layer.ic, int64_t{layer.ih} * layer.iw, block(l, layer.ic)}; }
  place dst_place(quern_layout l) const { return {layer.oc, int64_t{layer.oh} * layer.ow, block(l, layer.oc)}; }
  static int64_t block(quern_layout l, int64_t c) {
    return l == QUERN_NHWC ? c : l == QUERN_NC16HW16 ? 16 : l == QUERN_NC8HW8 ? 8 : 1;
  }
};

bool choose(contender& c, const contender_cfg& cfg, quern_layout layout) {
  const std::string algo = cfg.algo ? cfg.algo : "auto";
  const size_t colon = algo.find(':');
  const std::string algorithm = algo.substr(0, colon),
                    kernel = colon == std::string::npos ? "" : algo.substr(colon + 1);
  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.threads = cfg.threads > 0 ? static_cast<uint32_t>(cfg.threads) : 1;
  wish.algorithm = algorithm.empty() || algorithm == "auto" ? nullptr : algorithm.c_str();
  wish.kernel = kernel.empty() ? nullptr : kernel.c_str();
  const quern_problem problem = problem_of(c.layer, layout);
  quern_plan plan = {};
  quern_error error = {};
  if (quern_plan_make(&plan, nullptr, &problem, &wish, &error) != QUERN_OK) {
    std::fprintf(stderr, "quern: %s\n", error.text);
    return false;
  }
  if (plan.problem.dst.size[3] != c.layer.oh || plan.problem.dst.size[4] != c.layer.ow) {
    std::fprintf(stderr, "quern: the output would be %lldx%lld, must be %dx%d\n",
                 static_cast<long long>(plan.problem.dst.size[3]), static_cast<long long>(plan.problem.dst.size[4]),
                 c.layer.oh, c.layer.ow);
    return false;
  }
  if (!c.plan.size || plan.predicted_ns < c.plan.predicted_ns) c.plan = plan;
  return true;
}

bool prepare(contender& c, const contender_cfg& cfg) {
  const contender_layer& l = c.layer;
  const int64_t taps = static_cast<int64_t>(l.kh) * l.kw, inputs = l.ic / l.g;
  const uint64_t weight_count = static_cast<uint64_t>(l.oc * inputs * taps);
  const place src = c.src_place(c.layout()), dst = c.dst_place(c.layout());
  c.src = allocate(static_cast<uint64_t>(l.mb * src.whole() * src.pixels) * sizeof(float));
  c.dst = allocate(static_cast<uint64_t>(l.mb * dst.whole() * dst.pixels) * sizeof(float));
  c.weights = allocate(weight_count * sizeof(float));
  c.bias = allocate(static_cast<uint64_t>(l.oc) * sizeof(float));
  std::memcpy(c.bias.get(), cfg.bias, static_cast<size_t>(l.oc) * sizeof(float));
  std::memcpy(c.weights.get(), cfg.w, weight_count * sizeof(float));

  quern_error error = {};
  if (c.plan.packed_bytes) {
    c.packed = allocate(c.plan.packed_bytes);
    if (quern_pack(&c.plan, c.weights.get(), c.packed.get(), c.plan.packed_bytes, nullptr, &error) != QUERN_OK) {
      std::fprintf(stderr, "quern: %s\n", error.text);
      return false;
    }
    c.weights.reset();
  }
  c.workspace = allocate(c.plan.workspace_bytes);
  c.args.size = sizeof c.args;
  c.args.src = c.src.get();
  c.args.weights = c.plan.packed_bytes ? c.packed.get() : c.weights.get();
  c.args.dst = c.dst.get();
  c.args.bias = c.bias.get();
  c.exec.size = sizeof c.exec;
  c.exec.workspace = c.workspace.get();
  c.exec.workspace_bytes = c.plan.workspace_bytes;
  if (cfg.threads > 1) {
    quern_host* host = nullptr;
    if (quern_host_create(&host, static_cast<uint32_t>(cfg.threads), QUERN_HOST_POLL, &error) != QUERN_OK) {
      std::fprintf(stderr, "quern: %s\n", error.text);
      return false;
    }
    c.host.reset(host);
    quern_host_attach(host, &c.exec);
  }
  c.impl = std::string(c.plan.algorithm) + ":" + c.plan.kernel +
           (c.layout() == QUERN_NHWC     ? " nhwc"
            : c.layout() == QUERN_NCHW   ? " nchw"
            : c.layout() == QUERN_NC8HW8 ? " nc8hw8"
                                         : " nc16hw16");
  return true;
}

}  // namespace

CONTENDER_API const char* contender_name() { return "quern"; }

CONTENDER_API void* contender_create(const contender_layer* layer, const contender_cfg* cfg) {
  if (cfg->dtype != CD_F32) return nullptr;
  try {
    std::unique_ptr<contender> c(new contender{*layer});
    const bool nchw = cfg->layout != CL_NHWC && choose(*c, *cfg, QUERN_NCHW);
    const bool nhwc = cfg->layout != CL_NCHW && choose(*c, *cfg, QUERN_NHWC);
    const bool by_eight = cfg->layout == CL_NATIVE && choose(*c, *cfg, QUERN_NC8HW8);
    const bool by_sixteen = cfg->layout == CL_NATIVE && choose(*c, *cfg, QUERN_NC16HW16);
    return (nchw || nhwc || by_eight || by_sixteen) && prepare(*c, *cfg) ? c.release() : nullptr;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "quern: no memory\n");
    return nullptr;
  }
}

CONTENDER_API const char* contender_impl(void* self) { return static_cast<contender*>(self)->impl.c_str(); }

CONTENDER_API void contender_set_src(void* self, const void* x) {
  const contender& c = *static_cast<contender*>(self);
  move(static_cast<const float*>(x), c.src_place(QUERN_NCHW), static_cast<float*>(c.src.get()), c.src_place(c.layout()),
       c.layer.mb);
}

CONTENDER_API void contender_run(void* self) {
  const contender& c = *static_cast<contender*>(self);
  quern_error error;
  if (quern_run(&c.plan, &c.args, &c.exec, &error) == QUERN_OK) return;
  std::fprintf(stderr, "quern: %s\n", error.text);
  std::abort();  // the ABI has no way to say so, and a time without a result would be a lie
}

CONTENDER_API void contender_get_dst(void* self, void* y) {
  const contender& c = *static_cast<contender*>(self);
  move(static_cast<const float*>(c.dst.get()), c.dst_place(c.layout()), static_cast<float*>(y), c.dst_place(QUERN_NCHW),
       c.layer.mb);
}

CONTENDER_API void contender_destroy(void* self) { delete static_cast<contender*>(self); }
