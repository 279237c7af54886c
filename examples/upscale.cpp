// SPDX-License-Identifier: MIT
//
// Doubles the size of a photograph with waifu2x's network for photographs, run by Quern.
//
// upscale/network.cpp is where the library is used: problem, plan, pack, run.  This file cuts the picture
// into tiles, for memory that does not grow with it, and reports.  A tile's border overlaps its
// neighbours as far as the network sees, so that no seam can show.
#include <quern/host.h>
#include <quern/quern.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "../tools/peak.h"
#include "../tools/stop.h"
#include "upscale/compare.h"
#include "upscale/model.h"
#include "upscale/network.h"
#include "upscale/picture.h"

namespace {

using namespace upscale;
using clock = std::chrono::steady_clock;

constexpr char model_name[] = "scale2.0x_model";

struct options {
  std::string photo, model = "model", output, layout = "auto", device = "cpu";
  int64_t tile = 256;
  uint32_t threads = 0;
  bool compare = false;
};

struct tiling {
  int64_t height, width;  // of every tile: all alike, so that a layer needs one plan
  std::vector<int64_t> y, x;
};

// As few tiles of at most `most` pixels as cover `size`, and alike as can be; the last one is moved back
// to end with the picture.
int64_t cut(int64_t size, int64_t most, std::vector<int64_t>& starts) {
  const int64_t count = (size + most - 1) / most;
  const int64_t tile = (size + count - 1) / count;
  for (int64_t i = 0; i < count; i++) starts.push_back(std::min(i * tile, size - tile));
  return tile;
}

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

class progress {
 public:
  explicit progress(size_t count) : count_(count), terminal_(isatty(STDERR_FILENO)) {}
  ~progress() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }
  void step() {
    done_++;
    const size_t percent = 100 * done_ / count_;
    if (terminal_) std::fprintf(stderr, "\rtile %zu of %zu, %zu %%", done_, count_, percent);
    // A log gets a line every quarter.
    else if (percent / 25 != 100 * (done_ - 1) / count_ / 25)
      std::fprintf(stderr, "tile %zu of %zu\n", done_, count_);
  }

 private:
  size_t count_, done_ = 0;
  bool terminal_;
};

// Both layouts are planned, which costs microseconds and no memory, and the one predicted to be faster
// gets the memory.
network choose(const model& model, const tiling& tiling, const std::string& layout, uint32_t threads, const gpu* gpu) {
  if (layout != "auto")
    return {model, layout == "nchw" ? QUERN_NCHW : QUERN_NHWC, tiling.height, tiling.width, threads, gpu};
  network nchw(model, QUERN_NCHW, tiling.height, tiling.width, threads, gpu);
  network nhwc(model, QUERN_NHWC, tiling.height, tiling.width, threads, gpu);
  return nchw.predicted_ns() < nhwc.predicted_ns() ? std::move(nchw) : std::move(nhwc);
}

void run_tiles(const picture& input, plane plane, const tiling& tiling, int64_t border, network& network,
               const quern_exec& exec, progress& progress, std::vector<difference>* errors, picture& output) {
  size_t tile = 0;
  const size_t middle = tiling.y.size() * tiling.x.size() / 2;
  for (const int64_t y : tiling.y)
    for (const int64_t x : tiling.x) {
      to_tensor(input, plane, x - border, y - border, network.input_tensor(), network.input());
      for (size_t i = 0; i < network.layers.size(); i++) {
        network.run(i, exec);
        if (errors && tile == middle) errors->push_back(against_reference(network.layers[i], network.host_args(i)));
      }
      from_tensor(network.output_tensor(), network.output(), output, plane, 2 * x, 2 * y);
      progress.step();
      tile++;
    }
}

// peak: of the CPU's multiply-adds; 0: of another device, nothing is said of it.
void print_table(const network& network, double runs, double peak, const std::vector<difference>& errors) {
  const auto of_peak = [=](double rate) {
    if (peak > 0) std::printf(" %5.1f%%", 100 * rate / peak);
  };
  std::printf("\n%-12s %-42s %-48s %9s %8s%s", "layer", "shape of one tile", "kernel", "ms", "GFLOP/s",
              peak > 0 ? "   peak" : "");
  std::printf(errors.empty() ? "\n" : " %10s %10s\n", "L2 error", "max error");
  double flops = 0;
  for (size_t i = 0; i < network.layers.size(); i++) {
    const layer& layer = network.layers[i];
    const quern_problem& problem = layer.plan.problem;
    char shape[80];
    std::snprintf(shape, sizeof shape, "%lldx%lldx%lld -> %lldx%lldx%lld, %lldx%lld%s",
                  static_cast<long long>(problem.src.size[1]), static_cast<long long>(problem.src.size[3]),
                  static_cast<long long>(problem.src.size[4]), static_cast<long long>(problem.dst.size[1]),
                  static_cast<long long>(problem.dst.size[3]), static_cast<long long>(problem.dst.size[4]),
                  static_cast<long long>(layer.model->filter), static_cast<long long>(layer.model->filter),
                  layer.model->transposed ? " /2" : "");
    const double rate = layer.flops * runs / layer.seconds * 1e-9;
    const std::string kernel = std::string(layer.plan.algorithm) + " " + layer.plan.kernel;
    std::printf("%-12s %-42s %-48s %9.2f %8.1f", layer.model->name.c_str(), shape, kernel.c_str(), layer.seconds * 1e3,
                rate);
    of_peak(rate);
    if (errors.empty())
      std::printf("\n");
    else
      std::printf(" %10.1e %10.1e\n", errors[i].relative_l2, errors[i].largest);
    flops += layer.flops * runs;
  }
  const double seconds = network.seconds(), rate = flops / seconds * 1e-9;
  std::printf("%-12s %-42s %-48s %9.2f %8.1f", "all", "", "", seconds * 1e3, rate);
  of_peak(rate);
  std::printf("\n");
}

// "3 tiles", "1 tile"
std::string count(uint64_t number, const char* what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

std::string size_text(int64_t width, int64_t height) { return std::to_string(width) + " x " + std::to_string(height); }

void compare_with_ncnn(const options& options, const model& model, const picture& input, const picture& output,
                       const tiling& tiling, uint32_t threads, double seconds) {
  const ncnn_result ncnn =
      against_ncnn(options.model, model_name, input, output, model.border, tiling.height, tiling.width, threads);
  if (ncnn.ran)
    std::printf("ncnn: %.2f ms for the colours (here %.2f); %lld of %lld pixels differ, by %d of 255 at most\n",
                ncnn.seconds * 1e3, seconds * 1e3, static_cast<long long>(ncnn.different),
                static_cast<long long>(output.width * output.height), ncnn.largest);
  else
    std::printf("ncnn: not compared: %s\n", ncnn.message.c_str());
}

void upscale_photo(const options& options) {
  quern_error error{};
  check(quern_check(QUERN_VERSION, &error), error, "libquern");

  const std::filesystem::path photo = options.photo;
  const std::filesystem::path output_path = options.output.empty() ? photo.stem().string() + "_2x.png" : options.output;
  picture input = read_picture(photo);
  check_output(output_path, photo);
  const model model = read_model(options.model, model_name);

  quern_host* pool = nullptr;
  check(quern_host_create(&pool, options.threads, 0, &error), error, "threads");
  const std::unique_ptr<quern_host, void (*)(quern_host*)> owner(pool, quern_host_destroy);
  quern_exec exec{};
  exec.size = sizeof exec;
  quern_host_attach(pool, &exec);

  tiling tiling{};
  tiling.height = cut(input.height, options.tile, tiling.y);
  tiling.width = cut(input.width, options.tile, tiling.x);
  const std::unique_ptr<gpu> there(options.device == "cuda" ? new gpu : nullptr);
  network network = choose(model, tiling, options.layout, exec.threads, there.get());
  network.prepare();

  const bool translucent = is_translucent(input);
  const size_t tiles = tiling.y.size() * tiling.x.size() * (translucent ? 2 : 1);
  picture output{2 * input.width, 2 * input.height, input.channels, {}};
  output.pixels.resize(4 * input.pixels.size(), 255);  // alpha of an opaque picture stays what it is
  std::printf("%s: %s, %s%s, %s of %s, %s, %s\n", photo.c_str(), size_text(input.width, input.height).c_str(),
              count(static_cast<uint64_t>(input.channels), "channel").c_str(),
              translucent ? " (alpha through the network too)" : "", count(tiles, "tile").c_str(),
              size_text(tiling.width, tiling.height).c_str(),
              network.input_tensor().layout == QUERN_NCHW ? "nchw" : "nhwc",
              there ? there->name().c_str() : count(exec.threads, "thread").c_str());
  std::printf("memory: packed weights %.1f MB, workspace %.1f MB, activations %.1f MB, pictures %.1f MB\n",
              megabytes(network.packed_bytes()), megabytes(network.workspace_bytes()),
              megabytes(network.activation_bytes()), megabytes(input.pixels.size() + output.pixels.size()));
  std::fflush(stdout);

  const double peak = there ? 0 : tools::fma_peak_gflops(static_cast<int>(exec.threads));
  std::vector<difference> errors;
  double colours = 0;  // seconds in the network
  const auto start = clock::now();
  {
    progress progress(tiles);
    if (translucent) spread_colours(input, model.border);
    run_tiles(input, plane::colours, tiling, model.border, network, exec, progress, options.compare ? &errors : nullptr,
              output);
    colours = network.seconds();
    if (translucent) run_tiles(input, plane::alpha, tiling, model.border, network, exec, progress, nullptr, output);
  }
  const double total = seconds_since(start);
  write_picture(output_path, output);

  print_table(network, static_cast<double>(tiles), peak, errors);
  std::printf("\n%s: %s, %.2f s%s", output_path.c_str(), size_text(output.width, output.height).c_str(), total,
              options.compare ? " with the reference" : "");
  if (!there) std::printf("; FMA peak of %s %.1f GFLOP/s", count(exec.threads, "thread").c_str(), peak);
  std::printf("\n");
  if (options.compare) compare_with_ncnn(options, model, input, output, tiling, exec.threads, colours);
}

}  // namespace

int main(int argc, char** argv) {
  options options;
  CLI::App app("Doubles the size of a photograph with waifu2x's upconv_7_photo network, run by Quern.");
  app.add_option("photo", options.photo, "PNG, JPEG or BMP file")->required();
  app.add_option("--model", options.model, "folder of scale2.0x_model.param and .bin (examples/fetch_model gets them)")
      ->capture_default_str();
  app.add_option("--output", options.output, "PNG file to write (default: the photo's name with _2x.png, here)");
  app.add_option("--tile", options.tile, "pixels of a tile in each direction, at most; less needs less memory")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads; 0 means all CPUs that this process may use")
      ->check(CLI::Range(0, QUERN_HOST_THREADS_MAX))
      ->capture_default_str();
  app.add_option("--layout", options.layout, "auto takes the one that Quern predicts to be faster")
      ->check(CLI::IsMember({"auto", "nchw", "nhwc"}))
      ->capture_default_str();
  app.add_option("--device", options.device, "cuda: the first GPU of NVIDIA's")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--compare", options.compare, "also compare with the float64 reference, and with ncnn (PyPI) if there");
  CLI11_PARSE(app, argc, argv);

  std::signal(SIGXFSZ, SIG_IGN);  // a file limit is an error like any other
  try {
    upscale_photo(options);
  } catch (const tools::stop& what) {
    std::fprintf(stderr, "upscale: %s\n", what.text.c_str());
    return 1;
  } catch (const failure& what) {
    std::fprintf(stderr, "upscale: %s\n", what.what());
    return 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "upscale: out of memory; a smaller --tile needs less\n");
    return 1;
  }
  return 0;
}
