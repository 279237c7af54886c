// SPDX-License-Identifier: MIT
//
// im2col against itself: whole or in blocks, packed in one step or in two; and the memory that it takes.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "compare.h"
#include "driver.h"
#include "im2col.h"
#include "lines.h"
#include "measure.h"
#include "registry.h"
#include "stop.h"
#include "weights.h"
#include "wishes.h"

namespace compare {
namespace {

using quern::range;

// The kernel that conv_im2col would take: the other arm is to have the same.
std::string kernel_of(const task& t) {
  quern_wish wish = {};
  wish.size = sizeof wish, wish.algorithm = "conv_im2col";
  return tools::candidates(t.problem(), wish).at(0).kernel;
}

const quern::kernel& row_named(const std::string& name) {
  for (size_t i = 0; i < quern::kernel_count(); ++i)
    if (name == quern::kernel_at(i).name) return quern::kernel_at(i);
  throw tools::stop{tools::failed, "no kernel called " + name};
}

// One image, one group, one phase: what the arms here are made for.
struct plain {
  std::shared_ptr<task> of;
  const quern::kernel& row;
  quern::geometry g = quern::geometry_of(of->problem());
  quern::phase ph = quern::phase_of(g, 0);
  int64_t pixels = ph.outputs(), k = ph.taps() * g.c;

  const float* image() const { return of->data().src.floats(); }
  quern::im2col matrix() const { return {g, ph, row, image(), 0}; }
};

// The whole matrix, pixels by (taps, channels), then a GEMM; NHWC.
arm whole_matrix(const std::shared_ptr<task>& t, const std::string& kernel) {
  struct state {
    plain p;
    tools::buffer matrix, packed, workspace;
    quern_plan plan;
    quern_exec exec;
  };
  const plain p = {t, row_named(kernel)};
  const quern_problem& conv = t->problem();
  quern_problem gemm = quern_gemm(QUERN_F32, p.pixels, p.g.k, p.k);
  gemm.weights.stride[3] = 1, gemm.weights.stride[4] = p.k;  // filters lie one after the other
  gemm.weights.stride[0] = gemm.weights.stride[1] = gemm.weights.stride[2] = p.k * p.g.k;
  gemm.epilogue = conv.epilogue;
  const uint64_t bytes = static_cast<uint64_t>(p.pixels * p.k) * sizeof(float);
  const auto s = std::make_shared<state>(state{p, tools::buffer(bytes), tools::buffer(), tools::buffer(), {}, {}});
  quern_wish wish = {};
  wish.size = sizeof wish, wish.kernel = s->p.row.name;
  quern_error error = {};
  tools::need(quern_plan_make(&s->plan, nullptr, &gemm, &wish, &error), error, "gemm");
  s->packed = tools::buffer(s->plan.packed_bytes);
  s->workspace = tools::buffer(s->plan.workspace_bytes);
  s->exec.size = sizeof s->exec;
  s->exec.workspace = s->workspace.get(), s->exec.workspace_bytes = s->plan.workspace_bytes;
  tools::need(quern_pack(&s->plan, t->data().weights.get(), s->packed.get(), s->plan.packed_bytes, nullptr, &error),
              error, "gemm");
  return {"whole matrix", bytes + s->plan.workspace_bytes,
          [s] {
            s->p.matrix().pack({0, s->p.pixels}, {0, s->p.k}, s->matrix.floats(), s->p.k, 1);
            quern_args args = s->p.of->data().args(s->packed.get());
            args.src = s->matrix.get();
            quern_error wrong = {};
            tools::need(quern_run(&s->plan, &args, &s->exec, &wrong), wrong, "gemm");
          },
          [t] { return t->max_error(); }};
}

// NCHW, weights as A, blocks of pixels in panels of nr: packed from the image, or through a block of the matrix
// as im2col makes it, [k][pixels].  The same blocks, the same kernel, the same loops around it.
arm packed_panels(const std::shared_ptr<task>& t, const std::string& kernel, bool fused) {
  struct state {
    plain p;
    tools::buffer weights, panels, block;
    int64_t kc, width;
    quern::epilogue_f32 epilogue;
  };
  const plain p = {t, row_named(kernel)};
  const quern::weight_rows rows = {p.g};
  const int64_t nr = p.row.nr, kc = quern::up(p.k, quern::up(p.k, 576));
  const int64_t room = static_cast<int64_t>(tools::this_cpu().l2_bytes / 4 / 2) / kc / nr * nr;
  const int64_t blocks = quern::up(p.pixels, std::max(nr, room));
  const int64_t width = quern::up(quern::up(p.pixels, blocks), nr) * nr;
  const uint64_t bytes = static_cast<uint64_t>(kc * width) * sizeof(float);
  const auto s = std::make_shared<state>(state{p, tools::buffer(static_cast<uint64_t>(rows.size()) * sizeof(float)),
                                               tools::buffer(bytes), tools::buffer(fused ? 0 : bytes), kc, width,
                                               quern::epilogue_of(t->problem(), t->data().args(nullptr))});
  quern::pack_rows(rows, 0, p.g.k, t->data().weights.floats(), s->weights.floats());
  const auto run = [s, fused] {
    const plain& q = s->p;
    const quern::kernel& row = q.row;
    const quern::im2col matrix = q.matrix();
    const int64_t stride = quern::weight_rows{q.g}.stride(q.ph.taps());
    const quern::cut tiles(q.g.k, row.mr);
    const quern::gemm_tap tap = {0, 0};
    for (int64_t p0 = 0; p0 < q.pixels; p0 += s->width) {
      const range block = {p0, std::min(q.pixels, p0 + s->width)};
      for (int64_t k0 = 0; k0 < q.k; k0 += s->kc) {
        const range ks = {k0, std::min(q.k, k0 + s->kc)};
        const auto panel = [&](int64_t first) { return s->panels.floats() + (first - p0) * ks.count(); };
        if (!fused) matrix.pack(block, ks, s->block.floats(), 1, s->width);
        for (int64_t first = p0; first < block.end; first += row.nr) {
          const range pixels = {first, std::min(block.end, first + row.nr)};
          if (fused)
            matrix.pack(pixels, ks, panel(first), 1, row.nr);
          else
            row.copy({size_t(ks.count()), size_t(pixels.count()), s->block.floats() + (first - p0), size_t(s->width), 1,
                      panel(first), size_t(row.nr)});
        }
        for (int64_t i = 0; i < tiles.tiles; ++i)
          for (int64_t first = p0; first < block.end; first += row.nr) {
            quern::gemm_f32 call = {};
            call.m = size_t(tiles.rows(i)), call.n = size_t(std::min<int64_t>(row.nr, block.end - first));
            call.k = size_t(ks.count()), call.taps = 1, call.tap = &tap;
            call.a = s->weights.floats() + tiles.begin(i) * stride + k0, call.lda = size_t(stride);
            call.b = panel(first), call.ldb = size_t(row.nr);
            call.accumulate = k0 > 0;
            call.out.c = q.of->data().dst.floats() + tiles.begin(i) * q.g.dst[1] + first;
            call.out.ldc = size_t(q.g.dst[1]);
            call.out.epilogue = ks.end == q.k ? &s->epilogue : nullptr;
            call.out.channels_are_rows = true, call.out.channel = size_t(tiles.begin(i));
            row.gemm(call);
          }
      }
    }
  };
  return {fused ? "packed from the image" : "im2col, then packed", (fused ? 1 : 2) * bytes, run,
          [t] { return t->max_error(); }};
}

std::string square(int64_t c, int64_t image, int64_t k, int64_t filter, int64_t stride) {
  return "mb1ic" + std::to_string(c) + "ih" + std::to_string(image) + "oc" + std::to_string(k) + "kh" +
         std::to_string(filter) + "sh" + std::to_string(stride) + "ph" + std::to_string(filter / 2);
}

std::string label(int64_t c, int64_t image, int64_t k, int64_t stride) {
  return std::to_string(c) + " x " + std::to_string(image) + "^2 to " + std::to_string(k) +
         (stride > 1 ? ", stride " + std::to_string(stride) : "");
}

}  // namespace

void im2col_blocked(ring& r) {
  const int64_t shapes[][2] = {{64, 112}, {128, 56}, {256, 28}, {512, 14}};
  for (const auto& [c, image] : shapes) {
    quern_problem p = tools::read_layer({"nhwc", square(c, image, c, 3, 1), "bias act=relu"}).problem;
    p.weights.layout = QUERN_NHWC;
    std::memset(p.weights.stride, 0, sizeof p.weights.stride);
    quern_error error = {};
    tools::need(quern_problem_complete(&p, &p, &error), error, "im2col_blocked");
    const auto t = std::make_shared<task>(p);
    const std::string kernel = kernel_of(*t);
    const std::vector<arm> arms = {whole_matrix(t, kernel), planned(t, "in blocks", "conv_im2col", kernel.c_str())};
    // Nine copies of the image, since every pixel of it has nine outputs (the border counts as inside).
    const auto matrix = static_cast<uint64_t>(image * image * 9 * c) * sizeof(float);
    if (arms[0].workspace_bytes != matrix)
      throw tools::stop{tools::failed, "a whole matrix does not have OH * OW * C * R * S elements"};
    r.play(label(c, image, c, 1), t->flops(), arms);
  }
}

void fused_packing(ring& r) {
  const int64_t shapes[][4] = {{64, 112, 64, 1}, {128, 56, 128, 1}, {256, 28, 256, 1}, {512, 14, 512, 1},
                               {64, 112, 64, 2}, {128, 56, 128, 2}, {256, 28, 256, 2}, {64, 112, 32, 1},
                               {32, 112, 32, 1}, {16, 112, 16, 1},  {64, 56, 64, 1},   {64, 56, 16, 1}};
  for (const auto& [c, image, k, stride] : shapes) {
    const auto t = std::make_shared<task>("nchw " + square(c, image, k, 3, stride) + " bias act=relu");
    const std::string kernel = kernel_of(*t);
    r.play(label(c, image, k, stride), t->flops(),
           {packed_panels(t, kernel, false), packed_panels(t, kernel, true),
            planned(t, "conv_im2col", "conv_im2col", kernel.c_str())});
  }
}

void im2col_workspace(ring& r) {
  for (const tools::layer& l : tools::read_layers({QUERN_LAYERS}, "bias act=relu")) {
    const quern::geometry g = quern::geometry_of(l.problem);
    if (g.groups > 1 || g.filter_size() == 1) continue;
    const quern::phase ph = quern::phase_of(g, 0);
    const auto formula = static_cast<uint64_t>(g.n * g.out[0] * g.out[1] * g.out[2] * g.c * g.filter_size()) * 4;
    if (formula != static_cast<uint64_t>(g.n * ph.outputs() * ph.taps() * g.c) * 4)
      throw tools::stop{tools::failed, l.name + ": the matrix does not have OH * OW * C * R * S elements"};
    std::vector<arm> arms = {{"whole matrix", formula, {}, {}}};
    for (const char* layout : {"nhwc", "nchw"}) {
      const quern_problem p = tools::read_layer({layout, l.line}).problem;
      quern_wish wish = {};
      wish.size = sizeof wish;
      std::vector<std::string> seen;
      for (const quern_candidate& c : tools::candidates(p, wish)) {
        const std::string name = c.algorithm;
        if (c.verdict > QUERN_USABLE || std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
        seen.push_back(name);
        arms.push_back({name + ", " + layout, c.workspace_bytes, {}, {}});
      }
    }
    r.play(l.name, 0, arms);
  }
}

}  // namespace compare
