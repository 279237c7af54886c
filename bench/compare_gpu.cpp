// SPDX-License-Identifier: MIT
//
// Techniques of a GPU, in the graphs and the memory in which tuning measures (tune_stand.h): index schemes of implicit
// GEMM, and how many threads add up a slice.
#include "compare.h"
#include "gpu.h"
#include "lines.h"
#include "stop.h"
#include "tune_stand.h"

namespace compare {
namespace {

using namespace quern;

// Some candidates of a problem, side by side.
class trials {
 public:
  // The candidate of this kernel; with other blocks.
  struct way {
    std::string kernel;
    void (*edit)(blocking&, int64_t elements) = nullptr;
    int64_t elements = 0;
  };

  trials(const std::shared_ptr<tools::gpu>& there, const std::string& line, const std::vector<way>& ways)
      : there_(there), problem_(tools::read_layer({line}).problem) {
    quern_wish wish = {};
    wish.size = sizeof wish;
    tools::need(resolve(there->device(), &wish, wish_, &error_), error_, line);
    std::vector<option> all(64);
    all.resize(usable_options(problem_, wish_, all.data(), all.size()));
    for (const way& w : ways) {
      const auto found = std::find_if(all.begin(), all.end(), [&](const option& o) { return w.kernel == o.row->name; });
      if (found == all.end()) throw tools::stop{tools::failed, line + ": " + w.kernel + " does not solve it"};
      options_.push_back(*found);
      if (w.edit) w.edit(options_.back().blocks, w.elements);
    }
    const race_size size = {options_.data(), static_cast<int>(options_.size()), false, 1};
    exec_.size = sizeof exec_;
    exec_.workspace_bytes = gpu_stand::bytes(problem_, wish_, size);
    memory_ = there->allocate(exec_.workspace_bytes);
    exec_.workspace = memory_.get(), exec_.queue = there->stream();
    stand_ = std::make_unique<gpu_stand>(problem_, wish_, exec_, *there->device(), &error_);
    trial_ = stand_->begin(size);
    check();
    for (size_t i = 0; i < options_.size(); ++i) {
      trial_[i].o = options_[i];
      stand_->make_ready(trial_[i], trial_, 0);
      check();
      const double one = time(i, 3);
      trial_[i].runs = static_cast<int>(std::clamp(200e3 / one, 1.0, 100.0));
    }
  }
  double ms(size_t i) { return time(i, trial_[i].runs) * 1e-6; }
  double flops() const { return direct_flops(problem_); }

 private:
  double time(size_t i, int runs) {
    const double ns = stand_->time(trial_[i], runs);
    check();
    return ns;
  }
  void check() const { tools::need(stand_->status(), error_, "the GPU"); }

  const std::shared_ptr<tools::gpu> there_;
  const full_problem problem_;
  quern_error error_ = {};
  resolved_wish wish_ = {};
  std::vector<option> options_;
  quern_exec exec_ = {};
  tools::gpu::memory memory_;
  std::unique_ptr<gpu_stand> stand_;
  trial* trial_ = nullptr;
};

arm timed(const std::string& name, const std::shared_ptr<trials>& all, size_t i, uint64_t workspace_bytes = 0) {
  arm a = {name, workspace_bytes, nullptr, nullptr};
  a.sample = [=] { return all->ms(i); };
  return a;
}

// Words of slices_cuda: lanes, parts, across, wide, held.
template <int Lanes>
void lanes_of(blocking& b, int64_t elements) {
  const bool wide = elements >= 64;
  const int64_t chunks = wide ? elements / 4 : elements;
  b.word[0] = Lanes, b.word[1] = Lanes == 256 ? 16 : Lanes == 32 ? 4 : 1, b.word[2] = 0, b.word[3] = wide;
  b.word[4] = chunks <= Lanes * (wide ? 4 : 16);
}

}  // namespace

// 3x3 layers of ResNet-50 in f32, by one tile; and the GEMM that is left when somebody else has made the matrix.
void gpu_indices(ring& r) {
  const auto there = std::make_shared<tools::gpu>();
  r.on(there->name());
  for (const int64_t images : {1, 8, 32})
    for (const auto& [channels, side] : {std::pair<int64_t, int64_t>{64, 56}, {128, 28}, {256, 14}, {512, 7}}) {
      const auto text = [](int64_t x) { return std::to_string(x); };
      const std::string c = text(channels), hw = text(side), head = "nhwc mb" + text(images) + "ic";
      const auto of = std::make_shared<trials>(there, head + c + "ih" + hw + "oc" + c + "kh3ph1",
                                               std::vector<trials::way>{{"implicit_f32_128x128_division_sm75"},
                                                                        {"implicit_f32_128x128_table_sm75"},
                                                                        {"implicit_f32_128x128_sm75"}});
      const auto gemm = std::make_shared<trials>(there, head + text(9 * channels) + "ih" + hw + "oc" + c + "kh1",
                                                 std::vector<trials::way>{{"implicit_f32_128x128_sm75"}});
      const uint64_t matrix = static_cast<uint64_t>(images * side * side * 9 * channels) * sizeof(float);
      r.play(text(images) + " images, " + c + ", " + hw + "x" + hw, of->flops(),
             {timed("division", of, 0), timed("table", of, 1), timed("increments", of, 2),
              timed("GEMM of a ready matrix", gemm, 0, matrix)});
    }
}

// Sums of 64 MB in slices: by a thread each, by a warp, by a block.
void gpu_reduction(ring& r) {
  const auto there = std::make_shared<tools::gpu>();
  r.on(there->name());
  constexpr int64_t all = int64_t{1} << 24;
  for (int64_t elements = 4; elements <= int64_t{1} << 20; elements *= 4) {
    const std::string kernel = "slices_f32_sm75", n = std::to_string(elements);
    const auto of =
        std::make_shared<trials>(there, "reduce_sum nchw " + std::to_string(all / elements) + "x" + n + "x1x1 axes=c",
                                 std::vector<trials::way>{{kernel, lanes_of<1>, elements},
                                                          {kernel, lanes_of<32>, elements},
                                                          {kernel, lanes_of<256>, elements},
                                                          {kernel}});
    r.play(n + " elements", double(all),
           {timed("one thread", of, 0), timed("a warp", of, 1), timed("a block", of, 2), timed("chosen", of, 3)});
  }
}

}  // namespace compare
