// SPDX-License-Identifier: MIT
#include "fake_rows.h"

namespace quern::test {
namespace {

template <class T>
void run_of_bytes(const kernel& row, const std::string& type, const char* least, unsigned blocks, void** parameters) {
  if (row.kind == kind::reference_cuda)
    run_reference<T>(*static_cast<const reference_cuda*>(parameters[0]), int64_t{blocks} * row.threads);
  const auto tensor = [&](const char* name, auto run) {
    run_tensor(row, type + "_" + name + least, run, blocks, parameters);
  };
  tensor("128x64", run_tiles<tensor_128x64<T>>);
  tensor("64x64_any", run_tiles<tensor_64x64_any<T>>);
  run_few_rows<T>(row, type, std::is_same_v<T, s8> ? "_sm75" : least, blocks, parameters);
  run_tma<tma_half_192x128<T>>(row, (type + "_192x128").c_str(), blocks, parameters);
  run_tma<tma_half_128x128<T>>(row, (type + "_128x128").c_str(), blocks, parameters);
  run_tma<tma_half_128x64<T>>(row, (type + "_128x64").c_str(), blocks, parameters);
  run_tma<tma_half_128x64_w3<T>>(row, (type + "_128x64_w3").c_str(), blocks, parameters);
  run_tma<tma_half_64x64_k4<T>>(row, (type + "_64x64_k4").c_str(), blocks, parameters);
  run_tma<tma_half_64x64_k8<T>>(row, (type + "_64x64_k8").c_str(), blocks, parameters);
  if constexpr (std::is_same_v<T, s8>) {
    run_tma<tma_half_256x128<s8>>(row, "s8_256x128", blocks, parameters);
    run_tma<tma_half_256x64_w3<s8>>(row, "s8_256x64_w3", blocks, parameters);
    run_tma<tma_half_208x64_w3<s8>>(row, "s8_208x64_w3", blocks, parameters);
    const auto quads = [&](const char* name, auto run) {
      if (name + std::string("_sm80") == row.name) run(*static_cast<const quads_conv*>(parameters[0]), blocks);
    };
    quads("quads_s8_any", run_few<quads_any, quads_conv>);
    quads("quads_s8_any_step", run_few<quads_any_step, quads_conv>);
  }
}

}  // namespace

void run_bytes(const kernel& row, unsigned blocks, void** parameters) {
  if (row.type == QUERN_S8) {
    run_first_boxes<box_s8_64, box_s8_32>(row, "s8", blocks, parameters);
    run_of_bytes<s8>(row, "s8", "_sm80", blocks, parameters);
  } else {
    run_first_boxes<box_e4m3_64, box_e4m3_32>(row, "e4m3", blocks, parameters);
    run_of_bytes<e4m3>(row, "e4m3", "_sm89", blocks, parameters);
  }
}

}  // namespace quern::test
