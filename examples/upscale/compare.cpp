// SPDX-License-Identifier: MIT
#include "compare.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

extern char** environ;

namespace upscale {
namespace {

constexpr int64_t window = 16;  // pixels of dst, about, that the reference computes in each direction

// The element of image 0 and channel 0 at y, x.
int64_t offset(const quern_tensor& tensor, int64_t y, int64_t x) { return y * tensor.stride[3] + x * tensor.stride[4]; }

// A folder that goes when this does.
struct scratch_folder {
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "upscale-XXXXXX").string();
    if (!mkdtemp(name.data())) throw failure("cannot make a folder " + name + " for the comparison");
    path = name;
  }
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  std::filesystem::path path;
};

// Runs python3 with these arguments, its output into a file; returns its exit status.
int run_python(const std::vector<std::string>& arguments, const std::filesystem::path& output) {
  std::vector<char*> argv;
  std::string program = "python3";
  argv.push_back(program.data());
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed || waitpid(child, &status, 0) != child) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

difference against_reference(const layer& layer, quern_args args) {
  const quern_problem& whole = layer.plan.problem;
  const bool transposed = whole.op == QUERN_CONV_TRANSPOSED;
  const int64_t scale = transposed ? 2 : 1;

  // The middle of src as a problem of its own: sizes shrink, strides stay, dst is derived anew.  Without
  // padding its result is a piece of the whole one's; and with the padding of a transposed convolution,
  // which leaves out what pixels beyond the window would add to.
  quern_problem problem = whole;
  int64_t start[2];
  for (int i = 0; i < 2; i++) {
    int64_t& size = problem.src.size[3 + i];
    const int64_t all = size;
    size = std::min(all, transposed ? window / 2 + 2 : window + layer.model->filter - 1);
    start[i] = (all - size) / 2;
  }
  problem.dst = quern_tensor{};
  problem.residual = quern_tensor{};

  quern_wish wish{};
  wish.size = sizeof wish;
  wish.algorithm = "reference";
  wish.verbose = -1;
  quern_plan plan;
  quern_error error{};
  check(quern_plan_make(&plan, nullptr, &problem, &wish, &error), error, "reference");

  const quern_tensor& dst = plan.problem.dst;
  buffer result = allocate(static_cast<uint64_t>(dst.size[1] * dst.size[3] * dst.size[4]) * sizeof(float));
  buffer workspace = allocate(plan.workspace_bytes);
  quern_exec exec{};
  exec.size = sizeof exec;
  exec.workspace = workspace.get();
  exec.workspace_bytes = plan.workspace_bytes;
  const float* y = static_cast<const float*>(args.dst) + offset(whole.dst, scale * start[0], scale * start[1]);
  args.src = static_cast<const float*>(args.src) + offset(whole.src, start[0], start[1]);
  args.weights = layer.model->weights.data();
  args.dst = result.get();
  check(quern_run(&plan, &args, &exec, &error), error, "reference");

  const float* reference = reinterpret_cast<const float*>(result.get());
  double error_squares = 0, squares = 0, largest = 0;
  for (int64_t k = 0; k < dst.size[1]; k++)
    for (int64_t p = 0; p < dst.size[3]; p++)
      for (int64_t q = 0; q < dst.size[4]; q++) {
        const double exact = reference[k * dst.stride[1] + offset(dst, p, q)];
        const double wrong = std::fabs(y[k * whole.dst.stride[1] + offset(whole.dst, p, q)] - exact);
        error_squares += wrong * wrong;
        squares += exact * exact;
        largest = wrong <= largest ? largest : wrong;  // a NaN stays
      }
  return {squares > 0 ? std::sqrt(error_squares / squares) : std::sqrt(error_squares), largest};
}

ncnn_result against_ncnn(const std::filesystem::path& model, const std::string& name, const picture& input,
                         const picture& output, int64_t border, int64_t tile_height, int64_t tile_width,
                         uint32_t threads) {
  const scratch_folder scratch;
  const auto colours = [](const picture& picture, int64_t pixel, int c) {
    return picture.pixels[static_cast<size_t>(pixel * picture.channels + (picture.channels >= 3 ? c : 0))];
  };
  {
    std::ofstream file(scratch.path / "input", std::ios::binary);
    for (int64_t i = 0; i < input.width * input.height; i++)
      for (int c = 0; c < 3; c++) file.put(static_cast<char>(colours(input, i, c)));
    if (!file.flush()) return {false, "cannot write to " + scratch.path.string(), 0, 0, 0};
  }
  std::vector<std::string> arguments = {UPSCALE_COMPARE_NCNN, (model / (name + ".param")).string(),
                                        (model / (name + ".bin")).string(), scratch.path / "input",
                                        scratch.path / "output"};
  for (const int64_t number :
       {input.width, input.height, border, tile_height, tile_width, static_cast<int64_t>(threads)})
    arguments.push_back(std::to_string(number));
  const int status = run_python(arguments, scratch.path / "log");

  std::string text;
  std::ifstream log(scratch.path / "log");
  if (status != 0) {
    for (std::string line; std::getline(log, line);) text = line;
    return {false, text.empty() ? "python3 does not run" : text, 0, 0, 0};
  }
  ncnn_result result{true, {}, 0, 0, 0};
  while (log >> text) result.seconds = std::strtod(text.c_str(), nullptr);

  std::ifstream file(scratch.path / "output", std::ios::binary);
  std::vector<uint8_t> theirs(static_cast<size_t>(3 * output.width * output.height));
  if (!file.read(reinterpret_cast<char*>(theirs.data()), static_cast<std::streamsize>(theirs.size())))
    return {false, "ncnn's picture is too short", 0, 0, 0};
  for (int64_t i = 0; i < output.width * output.height; i++) {
    const uint8_t* rgb = &theirs[static_cast<size_t>(3 * i)];
    int largest = 0;
    if (output.channels >= 3)
      for (int c = 0; c < 3; c++) largest = std::max(largest, std::abs(colours(output, i, c) - rgb[c]));
    else  // this program's grey is the mean, unrounded until the end
      largest = std::max(0, std::abs(3 * colours(output, i, 0) - rgb[0] - rgb[1] - rgb[2]) / 3);
    result.different += largest != 0;
    result.largest = std::max(result.largest, largest);
  }
  return result;
}

}  // namespace upscale
