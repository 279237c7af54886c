// SPDX-License-Identifier: MIT
//
// Layouts against each other, and sliding windows against im2col.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>
#include <cstring>

#include "compare.h"
#include "lines.h"
#include "stop.h"
#include "wishes.h"

namespace compare {
namespace {

constexpr const char* layout_names[] = {"nchw", "nhwc", "nc4hw4", "nc8hw8", "nc16hw16"};

#if defined(__x86_64__)
// Rows of `width` floats, one after the other, added up by vectors from where each row begins, its rest one by
// one: what a kernel does that takes an image row by row.
#define SUM_ROWS(NAME, TARGET, VECTOR, WIDTH, ZERO, LOAD, ADD, STORE)                       \
  __attribute__((target(TARGET))) float NAME(const float* p, int64_t rows, int64_t width) { \
    VECTOR a = ZERO(), b = ZERO(), c = ZERO(), d = ZERO();                                  \
    float rest = 0;                                                                         \
    for (int64_t r = 0; r < rows; ++r, p += width) {                                        \
      int64_t i = 0;                                                                        \
      for (; i + 4 * WIDTH <= width; i += 4 * WIDTH) {                                      \
        a = ADD(a, LOAD(p + i)), b = ADD(b, LOAD(p + i + WIDTH));                           \
        c = ADD(c, LOAD(p + i + 2 * WIDTH)), d = ADD(d, LOAD(p + i + 3 * WIDTH));           \
      }                                                                                     \
      for (; i + WIDTH <= width; i += WIDTH) a = ADD(a, LOAD(p + i));                       \
      for (; i < width; ++i) rest += p[i];                                                  \
    }                                                                                       \
    float sums[WIDTH];                                                                      \
    STORE(sums, ADD(ADD(a, b), ADD(c, d)));                                                 \
    for (float s : sums) rest += s;                                                         \
    return rest;                                                                            \
  }
SUM_ROWS(sum_rows_128, "sse2", __m128, 4, _mm_setzero_ps, _mm_loadu_ps, _mm_add_ps, _mm_storeu_ps)
SUM_ROWS(sum_rows_256, "avx2", __m256, 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps)
SUM_ROWS(sum_rows_512, "avx512f", __m512, 16, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps)
#undef SUM_ROWS
#endif

// A layer, and the next one, which reads what the first has just written.  `l3` says whether outputs of a size between
// L2 and 20 MB go past the caches: only where L3 is small.
class two_layers {
 public:
  two_layers(const quern_problem& first, const quern_problem& second, uint64_t l3)
      : first_(first, tools::values::real, 1),
        second_(second, tools::values::real, 2),
        pool_(1),
        one_(ready(first, first_, l3)),
        two_(ready(second, second_, 0)) {}
  void run_first() const { one_.run(first_); }
  void run_both() {
    one_.run(first_);
    std::swap(first_.dst, second_.src);
    two_.run(second_);
    std::swap(first_.dst, second_.src);
  }

 private:
  tools::ready ready(const quern_problem& p, const tools::operands& data, uint64_t l3) const {
    quern_wish wish = {};
    wish.size = sizeof wish;
    const quern_candidate best = tools::candidates(p, wish).at(0);
    quern_cpu cpu = tools::this_cpu();
    if (l3) cpu.l3_bytes = l3;
    wish.algorithm = best.algorithm, wish.kernel = best.kernel, wish.cpu = &cpu;
    const std::vector<quern_candidate> all = tools::candidates(p, wish);
    if (all.empty() || all[0].verdict != QUERN_CHOSEN)
      throw tools::stop{tools::failed, "no kernel solves " + tools::problem_text(p)};
    return {p, wish, all[0], data, pool_};
  }

  tools::operands first_, second_;
  tools::pool pool_;
  tools::ready one_, two_;
};

}  // namespace

void layouts(ring& r) {
  for (const tools::layer& l : tools::read_layers({QUERN_LAYERS}, "bias act=relu")) {
    if (l.name.rfind("resnet50:", 0) != 0 && l.name.rfind("mobilenetv2:", 0) != 0) continue;
    std::vector<arm> arms;
    double flops = 0;
    for (const char* layout : layout_names) {
      const auto t = std::make_shared<task>(std::string(layout) + " " + l.line);
      arms.push_back(planned(t, layout, nullptr));
      flops = t->flops();
    }
    r.play(l.name, flops, arms);
  }
}

// 57 pixels a row: in NCHW each row begins elsewhere in a vector, in blocks of channels none does.
void aligned_reads(ring& r) {
#if defined(__x86_64__)
  constexpr int64_t channels = 16, side = 57;
  const tools::buffer image(channels * side * side * sizeof(float));
  for (int64_t i = 0; i < channels * side * side; ++i) image.floats()[i] = std::sin(static_cast<float>(i));
  const float* p = image.floats();
  const struct {
    const char* name;
    float (*sum)(const float*, int64_t, int64_t);
    int64_t block;
    uint64_t isa;
  } isas[] = {{"reads of 128 bits", sum_rows_128, 4, 0},
              {"reads of 256 bits", sum_rows_256, 8, QUERN_ISA_AVX2},
              {"reads of 512 bits", sum_rows_512, 16, QUERN_ISA_AVX512}};
  const auto keep = [](float sum) { __asm__ volatile("" : : "x"(sum)); };
  for (const auto& i : isas) {
    if (i.isa & ~tools::this_cpu().isa) continue;
    const std::string block = std::to_string(i.block);
    r.play(i.name, 0,
           {{"nchw", 0, [=] { keep(i.sum(p, channels * side, side)); }, {}},
            {"nc" + block + "hw" + block, 0, [=] { keep(i.sum(p, channels / i.block * side, side * i.block)); }, {}}});
  }
#endif
  for (const int64_t width : {57, 56}) {
    std::vector<arm> arms;
    double flops = 0;
    for (const char* layout : layout_names) {
      const std::string line = " mb1ic64ih57iw" + std::to_string(width) + "oc64kh1 bias act=relu";
      const auto t = std::make_shared<task>(layout + line);
      arms.push_back(planned(t, layout, nullptr));
      flops = t->flops();
    }
    r.play("1x1, rows of " + std::to_string(width), flops, arms);
  }
}

void sliding_window(ring& r) {
  for (const int filter : {3, 5, 7})
    for (const int c : {3, 8, 16, 32})
      for (const std::string layout : {"nhwc", "nchw"}) {
        const std::string f = std::to_string(filter);
        const auto t = std::make_shared<task>(layout + " mb1ic" + std::to_string(c) + "ih56oc32kh" + f + "ph" +
                                              std::to_string(filter / 2) + " bias act=relu");
        std::vector<arm> arms = {planned(t, "im2col", "conv_im2col")};
        if (layout == "nhwc") {
          arms.push_back(planned(t, "window", "conv_direct"));
        } else {
          arms.push_back(planned(t, "window, planes", "conv_planar"));
          arms.push_back(planned(t, "window, channels last", "conv_band"));
        }
        r.play(layout + " " + f + "x" + f + ", " + std::to_string(c) + " to 32", t->flops(), arms);
      }
}

// Last layers of networks that make pictures, sound or masks.
void few_outputs(ring& r) {
  const struct {
    const char *name, *line;
  } layers[] = {{"VAE, 128 to 3, 3x3", "mb1ic128ih512oc3kh3ph1"},
                {"super-resolution, 64 to 3, 3x3", "mb1ic64ih256oc3kh3ph1"},
                {"diffusion, 320 to 4, 3x3", "mb1ic320ih64oc4kh3ph1"},
                {"optical flow, 128 to 2, 3x3", "mb1ic128ih128oc2kh3ph1"},
                {"denoising, 64 to 1, 3x3", "mb1ic64ih180oc1kh3ph1"},
                {"detection, 256 to 8, 3x3", "mb1ic256ih40oc8kh3ph1"},
                {"CycleGAN, 64 to 3, 7x7", "mb1ic64ih128oc3kh7ph3"},
                {"SRCNN, 32 to 3, 5x5", "mb1ic32ih256oc3kh5ph2"},
                {"vocoder, 32 to 1, 1x7", "mb1ic32ih1iw8192oc1kh1kw7ph0pw3"}};
  for (const auto& l : layers) {
    const auto task_of = [&](const char* layout) {
      return std::make_shared<task>(std::string(layout) + " " + l.line + " bias act=relu");
    };
    const auto nchw = task_of("nchw"), nhwc = task_of("nhwc");
    r.play(l.name, nchw->flops(),
           {planned(nchw, "nchw, planes copied", "conv_planar"),
            planned(nchw, "nchw, planes as they lie", "conv_few_planes"),
            planned(nhwc, "nhwc, channels across", "conv_dot")});
  }
}

// What a layer gains by stores past the caches, and what the next one loses.
void stored_outputs(ring& r) {
  const struct {
    const char *name, *first, *second;
  } pairs[] = {{"1x1, 16 to 96, then depthwise, stride 2", "mb1ic16ih112oc96kh1", "g96mb1ic96ih112oc96kh3sh2ph1"},
               {"1x1, 64 to 256, then 1x1 to 64", "mb1ic64ih56oc256kh1", "mb1ic256ih56oc64kh1"},
               {"3x3, 3 to 64, then 3x3 to 64", "mb1ic3ih224oc64kh3ph1", "mb1ic64ih224oc64kh3ph1"},
               {"3x3, 64 to 64, then 3x3 to 64", "mb1ic64ih112oc64kh3ph1", "mb1ic64ih112oc64kh3ph1"}};
  const auto problem = [](const char* line) { return task("nhwc " + std::string(line) + " bias act=relu").problem(); };
  for (const auto& p : pairs) {
    const quern_problem first = problem(p.first), second = problem(p.second);
    const auto through = std::make_shared<two_layers>(first, second, uint64_t{1} << 30);
    const auto past = std::make_shared<two_layers>(first, second, 1);
    r.play(p.name, 0,
           {{"through the caches", 0, [=] { through->run_first(); }, {}},
            {"past them", 0, [=] { past->run_first(); }, {}},
            {"both layers, through", 0, [=] { through->run_both(); }, {}},
            {"both layers, past", 0, [=] { past->run_both(); }, {}}});
  }
}

}  // namespace compare
