// SPDX-License-Identifier: MIT
//
// The quern command: what the library would choose on this machine or another, and how fast and exact it is.
// Built on the public C ABI alone.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "commands.h"
#include "stop.h"
#include "table.h"

namespace tools {
namespace {

void add_wishes(CLI::App* app, wish_options& w, bool other_cpu) {
  app->add_option("--threads", w.threads, "threads that run() will have")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--algorithm", w.algorithm, "only this algorithm, e.g. conv_im2col");
  app->add_option("--kernel", w.kernel, "only this kernel, e.g. gemm_f32_14x32_avx512");
  app->add_option("--deny", w.deny, "algorithms, kernels and properties not wanted, with commas between");
  app->add_option("--allow", w.allow, "algorithms, kernels and properties that alone are wanted");
  app->add_option("--repeat", w.repeat, "how far results must repeat: 1 threads, 2 batch, 3 isa, 4 the reference")
      ->check(CLI::Range(0, 4));
  app->add_option("--src-limit", w.src_limit, "the largest magnitude in src, for kernels of a GPU that need to know");
  app->add_option("--workspace", w.workspace, "most workspace: bytes, or 64K, 2M");
  if (!other_cpu) return;
  app->add_option("--isa", w.isa,
                  "of the CPU to choose for: ref, avx2, avx512, amx, or neon (each with those before it)");
  app->add_option("--l1", w.l1, "L1 data cache of the CPU to choose for, e.g. 32K");
  app->add_option("--l2", w.l2, "L2 cache of the CPU to choose for, e.g. 1M");
  app->add_option("--l3", w.l3, "L3 cache of the CPU to choose for, e.g. 32M");
}

void add_device(CLI::App* app, std::string& device) {
  app->add_option("--device", device, "cuda: the first GPU of NVIDIA's")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

int run(int argc, char** argv) {
  CLI::App app("Which kernel the quern library chooses for a layer, why, and how fast it is.", "quern");
  app.set_version_flag("--version", version_text(quern_version()));
  app.require_subcommand(1);
  int (*simple)() = nullptr;

  app.add_subcommand("info", "this CPU, its caches and its measured peaks")->callback([&] { simple = run_info; });
  app.add_subcommand("kernels", "every kernel of the library")->callback([&] { simple = run_kernels; });

  explain_options explain;
  CLI::App* const explain_app = app.add_subcommand("explain", "every candidate for one layer, and why");
  explain_app->add_option("layer", explain.words, "a problem line, e.g. nhwc ic64ih56oc64kh3ph1 bias act=relu")
      ->required();
  explain_app->add_flag("--json", explain.json, "as JSON");
  explain_app->add_flag("--all", explain.all, "a row for every refused kernel");
  explain_app->add_flag("--front", explain.front, "only those that nothing beats in both time and workspace");
  explain_app->add_option("--file", explain.file, "a table of quern tune's, whose times count before predictions");
  add_device(explain_app, explain.device);
  add_wishes(explain_app, explain.wishes, true);

  bench_options bench;
  CLI::App* const bench_app = app.add_subcommand("bench", "times layers");
  bench_app->add_option("layers", bench.layers, "files of problem lines, problem lines, - for standard input")
      ->required();
  bench_app->add_flag("--all", bench.all, "every usable candidate, not only the chosen one");
  bench_app
      ->add_option("--layout", bench.layouts,
                   "nchw, nhwc, nc8hw8 ..., SRC:DST, or several with commas; default: as the line says")
      ->delimiter(',');
  bench_app->add_option("--accuracy", bench.accuracy, "worst error class: exact, f32, f32_fast, f32_loose, f16");
  bench_app->add_option("--epilogue", bench.epilogue, "for lines without one; '' for none")->capture_default_str();
  bench_app->add_option("--filter", bench.filter, "only layers whose name or line contains this");
  bench_app->add_option("--ms", bench.budget_ms, "time for each candidate, in milliseconds")
      ->check(CLI::Range(0.0, 3.6e6))
      ->capture_default_str();
  bench_app->add_option("--json", bench.json, "write the results here as JSON; - for standard output");
  bench_app->add_option("--csv", bench.csv, "write the results here as CSV; - for standard output");
  add_wishes(bench_app, bench.wishes, false);

  bench_app
      ->add_option("--tune", bench.tune, "beside them what these levels of tuning choose: fast, normal, wide, heavy")
      ->delimiter(',');

  tune_options tune;
  CLI::App* const tune_app = app.add_subcommand("tune", "measures which kernel is the fastest, and keeps it in a file");
  tune_app
      ->add_option("layers", tune.layers,
                   "files of problem lines, problem lines, - for standard input; with --merge: tables")
      ->required();
  tune_app->add_option("--file", tune.file, "the table: what it has is not measured again, what is found is added");
  tune_app->add_option("--level", tune.level, "none, fast, normal, wide or heavy")->capture_default_str();
  tune_app->add_option("--ms", tune.ms, "for each layer at most, in milliseconds; 0: the level's");
  tune_app->add_option("--launches", tune.launches, "runs of kernels for each layer at most; 0: no limit");
  tune_app->add_flag("--merge", tune.merge, "adds tables to --file instead of measuring; impossible rows are refused");
  tune_app->add_flag("--read-only", tune.read_only, "the file is not written");
  tune_app->add_option("--layout", tune.layouts, "as for bench")->delimiter(',');
  tune_app->add_option("--accuracy", tune.accuracy, "worst error class: exact, f32, f32_fast, f32_loose, f16");
  tune_app->add_option("--epilogue", tune.epilogue, "for lines without one; '' for none")->capture_default_str();
  tune_app->add_option("--filter", tune.filter, "only layers whose name or line contains this");
  tune_app->add_option("--type", tune.type, "of all operands that are f32: f16, bf16, s8, e4m3");
  add_device(tune_app, tune.device);
  add_wishes(tune_app, tune.wishes, false);

  selftest_options selftest;
  CLI::App* const selftest_app =
      app.add_subcommand("selftest", "every usable candidate of small problems against the float64 reference");
  selftest_app->add_option("layers", selftest.layers, "files or problem lines to test instead of the fixed ones");
  selftest_app->add_option("--threads", selftest.threads, "test with 1 thread and with this many; 0: all CPUs")
      ->check(CLI::Range(0, 1024));

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-')
      throw stop{bad_input, text("quern: '%s' is no subcommand; quern --help lists them", argv[1])};
    return app.exit(e) == 0 ? 0 : bad_input;
  }
  if (simple) return simple();
  if (explain_app->parsed()) return run_explain(explain);
  if (bench_app->parsed()) return run_bench(bench);
  if (tune_app->parsed()) return run_tune(tune);
  return run_selftest(selftest);
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  int status = tools::failed;
  try {
    status = tools::run(argc, argv);
  } catch (const tools::stop& s) {
    std::fprintf(stderr, "%s\n", s.text.c_str());
    return s.status;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "quern: no memory\n");
    return tools::failed;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fprintf(stderr, "quern: standard output cannot be written\n");
    return tools::failed;
  }
  return status;
}
