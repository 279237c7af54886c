// SPDX-License-Identifier: MIT
//
// Winograd: of the whole image or of groups of tiles that stay in L2; and what is left of the multiplications saved.
#include <cstring>

#include "compare.h"
#include "conv_winograd.h"
#include "driver.h"
#include "lines.h"
#include "measure.h"
#include "registry.h"
#include "stop.h"
#include "winograd_tiling.h"
#include "wishes.h"

namespace compare {
namespace {

namespace driver = quern::winograd_driver;

struct square_form {
  const char* name;
  const char* algorithm;
  const driver::form& f;
};

constexpr square_form forms[] = {{"F(2,3)", "conv_winograd_f23", driver::of<2, 3>::f},
                                 {"F(4,3)", "conv_winograd_f43", driver::of<4, 3>::f},
                                 {"F(4x6,3)", "conv_winograd_f6x43", driver::of<6, 3, 16, 64, INT64_MAX, 1, 4>::f},
                                 {"F(6,3)", "conv_winograd_f63", driver::of<6, 3>::f}};

quern_candidate choice_of(const task& t, const char* algorithm) {
  quern_wish wish = {};
  wish.size = sizeof wish, wish.algorithm = algorithm;
  return tools::candidates(t.problem(), wish).at(0);
}

const quern::kernel& row_named(const char* name) {
  for (size_t i = 0; i < quern::kernel_count(); ++i)
    if (strcmp(name, quern::kernel_at(i).name) == 0) return quern::kernel_at(i);
  throw tools::stop{tools::failed, std::string("no kernel called ") + name};
}

// As it is done first: all tiles to the other domain, a GEMM of the library for each point, all tiles back.  NHWC,
// one image, whole vectors of channels; the transforms and the microkernel are those of the other arm.
class whole_image {
 public:
  whole_image(const std::shared_ptr<task>& t, const square_form& form)
      : task_(t),
        form_(form.f),
        row_(row_named(choice_of(*t, form.algorithm).kernel)),
        epilogue_(quern::epilogue_of(t->problem(), t->data().args(nullptr))) {
    for (size_t i = 0; i < row_.winograd->count; ++i)
      if (row_.winograd->rows[i].mr == tiling_.my && row_.winograd->rows[i].nr == tiling_.mx &&
          row_.winograd->rows[i].taps == form_.r)
        transforms_ = &row_.winograd->rows[i];
    v_ = tools::buffer(bytes(g_.c)), m_ = tools::buffer(bytes(g_.k));
    const quern_problem gemm = quern_gemm(QUERN_F32, tiling_.tiles, g_.k, g_.c);
    quern_wish wish = {};
    wish.size = sizeof wish, wish.kernel = row_.name;
    quern_error error = {};
    tools::need(quern_plan_make(&plan_, nullptr, &gemm, &wish, &error), error, "gemm");
    workspace_ = tools::buffer(plan_.workspace_bytes);
    pack();
  }

  uint64_t workspace_bytes() const { return bytes(g_.c) + bytes(g_.k) + plan_.workspace_bytes; }

  void run() const {
    const float* src = task_->data().src.floats();
    quern::winograd_input_f32 in = {};
    in.n = size_t(g_.c), in.src = src, in.matrix = size_t(tiling_.tiles * g_.c);
    in.row = g_.src[3], in.column = g_.src[4];
    in.points[0] = int(tiling_.ay), in.points[1] = int(tiling_.ax);
    for (int64_t i = 0; i < tiling_.tiles; ++i) {
      const driver::place at(tiling_, i);
      const int64_t y = tiling_.y.in_begin + at.output(tiling_, 0, tiling_.my),
                    x = tiling_.x.in_begin + at.output(tiling_, 1, tiling_.mx);
      in.rows = driver::on_image(tiling_.y, y, 1, tiling_.ay),
      in.columns = driver::on_image(tiling_.x, x, 1, tiling_.ax);
      in.origin = y * in.row + x * in.column, in.v = v_.floats() + i * g_.c;
      transforms_->winograd_input[1](in);
    }
    quern_exec exec = {};
    exec.size = sizeof exec, exec.workspace = workspace_.get(), exec.workspace_bytes = plan_.workspace_bytes;
    for (int64_t point = 0; point < tiling_.points(); ++point) {
      quern_args args = {};
      args.size = sizeof args;
      args.src = v_.floats() + point * tiling_.tiles * g_.c, args.dst = m_.floats() + point * tiling_.tiles * g_.k;
      args.weights = packed_[size_t(point)].get();
      quern_error error = {};
      tools::need(quern_run(&plan_, &args, &exec, &error), error, "gemm");
    }
    quern::winograd_output_f32 out = {};
    out.n = size_t(g_.k), out.matrix = size_t(tiling_.tiles * g_.k);
    out.out.epilogue = &epilogue_;
    out.out.ldc = size_t(g_.dst[4]), out.dst_row = size_t(g_.dst[3]);
    for (int64_t i = 0; i < tiling_.tiles; ++i) {
      const driver::place at(tiling_, i);
      const int64_t y = at.output(tiling_, 0, tiling_.my), x = at.output(tiling_, 1, tiling_.mx);
      out.rows = size_t(driver::outputs(tiling_.y, y, 1, tiling_.my));
      out.columns = size_t(driver::outputs(tiling_.x, x, 1, tiling_.mx));
      out.m = m_.floats() + i * g_.k, out.out.c = task_->data().dst.floats() + y * g_.dst[3] + x * g_.dst[4];
      transforms_->winograd_output[1](out);
    }
  }

 private:
  uint64_t bytes(int64_t channels) const {
    return uint64_t(tiling_.points() * tiling_.tiles * channels) * sizeof(float);
  }

  void pack() {
    const float* weights = task_->data().weights.floats();
    tools::buffer u(uint64_t(g_.c * g_.k) * sizeof(float));
    for (int64_t point = 0; point < tiling_.points(); ++point) {
      for (int64_t c = 0; c < g_.c; ++c)
        for (int64_t k = 0; k < g_.k; ++k) {
          double sum = 0;
          for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s)
              sum += form_.axis[0]->g[point / tiling_.ax][r] * form_.axis[1]->g[point % tiling_.ax][s] *
                     double(weights[k * g_.weights[0] + c * g_.weights[1] + r * g_.weights[3] + s * g_.weights[4]]);
          u.floats()[c * g_.k + k] = float(sum);
        }
      packed_.emplace_back(plan_.packed_bytes);
      quern_error error = {};
      tools::need(quern_pack(&plan_, u.get(), packed_.back().get(), plan_.packed_bytes, nullptr, &error), error,
                  "gemm");
    }
  }

  std::shared_ptr<task> task_;
  const driver::form& form_;
  const quern::kernel& row_;
  quern::epilogue_f32 epilogue_;
  const quern::kernel* transforms_ = nullptr;
  quern::geometry g_ = quern::geometry_of(task_->problem());
  driver::tiling tiling_ = driver::tiling_of(form_, g_);
  tools::buffer v_, m_, workspace_;
  std::vector<tools::buffer> packed_;
  quern_plan plan_;
};

}  // namespace

void winograd_tiled(ring& r) {
  const int64_t shapes[][2] = {{64, 224}, {32, 112}, {64, 112}, {64, 56}, {128, 56},
                               {128, 28}, {256, 28}, {256, 14}, {512, 14}};
  for (const square_form& form : forms)
    for (const auto& [c, image] : shapes) {
      if (c < form.f.least_square) continue;
      const std::string channels = std::to_string(c), side = std::to_string(image);
      const auto t = std::make_shared<task>("nhwc mb1ic" + channels + "ih" + side + "oc" + channels +
                                            "kh3ph1 bias act=relu accuracy=f32_loose");
      const auto whole = std::make_shared<whole_image>(t, form);
      const arm tiled = planned(t, "groups of tiles", form.algorithm, choice_of(*t, form.algorithm).kernel);
      if (image == 224 && tiled.workspace_bytes > whole->workspace_bytes() / 10)
        throw tools::stop{tools::failed, "groups of tiles take more than a tenth of the whole image's workspace"};
      r.play(std::string(form.name) + ", " + channels + " x " + side + "^2", t->flops(),
             {{"whole image", whole->workspace_bytes(), [whole] { whole->run(); }, [t] { return t->max_error(); }},
              tiled});
    }
}

void winograd_reduction(ring& r) {
  for (const tools::layer& l : tools::read_layers({QUERN_LAYERS}, "bias act=relu")) {
    const quern::geometry g = quern::geometry_of(l.problem);
    if (g.groups > 1 || g.c < 32 || g.filter[1] != 3 || g.filter[2] != 3 || g.stride[2] > 1) continue;
    const auto t = std::make_shared<task>("nhwc " + l.line + " accuracy=f32_loose");
    std::vector<arm> arms = {planned(t, "direct", "conv_direct")};
    for (const square_form& form : forms) arms.push_back(planned(t, form.name, form.algorithm));
    r.play(l.name, t->flops(), arms);
  }
}

}  // namespace compare
