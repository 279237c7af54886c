// SPDX-License-Identifier: MIT
//
// The rows of a type on this CPU.  Each type is a file of its own: one for all would keep one core for minutes.
#pragma once

#include <string>

#include "fake_depthwise_box.h"
#include "fake_depthwise_image.h"
#include "fake_first.h"
#include "fake_friends.h"
#include "fake_gpu.h"
#include "fake_group_box.h"
#include "fake_implicit.h"
#include "fake_lines.h"
#include "fake_tma.h"
#include "fake_toeplitz.h"

namespace quern::test {
namespace {

template <class Wide, class Narrow>
void run_first_layers(const kernel& row, const std::string& type, unsigned blocks, void** parameters) {
  const auto first = [&](const char* columns, auto run) {
    if ("first_" + type + columns + "_sm80" == row.name) run(*static_cast<const first_conv*>(parameters[0]), blocks);
  };
  first("_64", run_first<Wide>);
  first("_32", run_first<Narrow>);
}

template <class Wide, class Narrow>
void run_first_boxes(const kernel& row, const std::string& type, unsigned blocks, void** parameters) {
  const auto box = [&](const char* columns, auto run) {
    if ("first_box_" + type + columns + "_sm90a" == row.name)
      run(*static_cast<const first_box*>(parameters[0]), blocks);
  };
  box("_64", run_boxes<Wide>);
  box("_32", run_boxes<Narrow>);
}

void run_tensor(const kernel& row, const std::string& name,
                void (*run)(const implicit_conv&, const implicit_tap*, unsigned), unsigned blocks, void** parameters) {
  if ("tensor_" + name == row.name) run(*static_cast<const implicit_conv*>(parameters[0]), nullptr, blocks);
}

template <class T>
void run_few_rows(const kernel& row, const std::string& type, const char* least, unsigned blocks, void** parameters) {
  const auto few = [&](const char* name, auto run) {
    if ("few_" + type + "_" + name + least == row.name) run(*static_cast<const few_conv*>(parameters[0]), blocks);
  };
  few("any", run_few<typename few_kernels<T>::any, few_conv>);
  few("any_step", run_few<typename few_kernels<T>::any_step, few_conv>);
  if constexpr (sizeof(T) > 1) {
    few("anys2", run_few<typename few_kernels<T>::anys2, few_conv>);
    few("line14", run_few<typename few_kernels<T>::line14, few_conv>);
  }
}

template <class T>
void run_of_type(const kernel& row, const std::string& type, unsigned blocks, void** parameters) {
  if (row.kind == kind::reference_cuda && row.op.has(QUERN_CONV))
    run_reference<T>(*static_cast<const reference_cuda*>(parameters[0]), int64_t{blocks} * row.threads);
  if (row.kind == kind::reference_cuda && !row.op.has(QUERN_CONV))
    run_reference<T>(*static_cast<const reference_friend*>(parameters[0]), int64_t{blocks} * row.threads);
  if (row.kind == kind::elementwise) run_elementwise<T>(*static_cast<const elementwise*>(parameters[0]), blocks);
  if (row.kind == kind::slices) {
    const slices& a = *static_cast<const slices*>(parameters[0]);
    a.wide ? run_slices<T, whole<T>>(a, blocks) : run_slices<T, 1>(a, blocks);
  }
  if (row.kind == kind::pooling) run_pooling<T>(*static_cast<const pooling*>(parameters[0]), blocks);
  const auto tensor = [&](const char* name, auto run) {
    run_tensor(row, type + "_" + name + "_sm80", run, blocks, parameters);
  };
  tensor("128x128", run_tiles<tensor_128x128<T>>);
  tensor("128x64", run_tiles<tensor_128x64<T>>);
  tensor("64x64", run_tiles<tensor_64x64<T>>);
  tensor("128x64_any", run_tiles<tensor_128x64_any<T>>);
  tensor("64x64_any", run_tiles<tensor_64x64_any<T>>);
  run_few_rows<T>(row, type, "_sm75", blocks, parameters);
  const auto lines = [&](const char* what, const char* name, auto run) {
    if (what + ("_" + type + "_") + name + "_sm80" == row.name)
      run(*static_cast<const lines_conv*>(parameters[0]), blocks);
  };
  using walks = walk_kernels<T>;
  lines("walk", "c1_3x3", run_lines<typename walks::c1_3x3>);
  lines("walk", "c1_3x3s2", run_lines<typename walks::c1_3x3s2>);
  lines("walk", "c1_5x5", run_lines<typename walks::c1_5x5>);
  lines("walk", "c1_5x5s2", run_lines<typename walks::c1_5x5s2>);
  lines("walk", "c1_7x7", run_lines<typename walks::c1_7x7>);
  lines("walk", "c1_7x7s2", run_lines<typename walks::c1_7x7s2>);
  lines("walk", "c2_3x3", run_lines<typename walks::c2_3x3>);
  lines("walk", "c2_3x3s2", run_lines<typename walks::c2_3x3s2>);
  if constexpr (sizeof(T) >= 2) {
    const auto boxes = [&](const char* name, auto run) {
      if ("group_box_" + type + "_" + name + "_sm90a" == row.name)
        run(*static_cast<const group_box*>(parameters[0]), blocks);
    };
    boxes("c8", run_group_boxes<typename group_tiles<T>::c8>);
    boxes("c16", run_group_boxes<typename group_tiles<T>::c16>);
    boxes("c8_14", run_group_boxes<typename group_tiles<T>::c8_14>);
  }
  if constexpr (sizeof(T) == 4) {
    lines("walk", "c4_3x3", run_lines<typename walks::c4_3x3>);
    lines("walk", "c4_3x3s2", run_lines<typename walks::c4_3x3s2>);
    lines("walk", "c8_3x3", run_lines<typename walks::c8_3x3>);
    lines("walk", "c8_3x3s2", run_lines<typename walks::c8_3x3s2>);
    lines("walk", "c16_3x3", run_lines<typename walks::c16_3x3>);
  }
  if constexpr (sizeof(T) == 2) {
    using groups = group_kernels<T>;
    lines("group", "d8_7x7", run_lines<typename groups::d8_7x7>);
    lines("group", "d16", run_lines<typename groups::d16>);
    lines("group", "d16s2", run_lines<typename groups::d16s2>);
    lines("group", "d32", run_lines<typename groups::d32>);
    lines("group", "d32s2", run_lines<typename groups::d32s2>);
    if ("toeplitz_" + type + "_14x16_sm80" == row.name)
      run_toeplitz<T>(*static_cast<const toeplitz_conv*>(parameters[0]), blocks);
    run_tma<tma_half_256x128<T>>(row, (type + "_256x128").c_str(), blocks, parameters);
    run_tma<tma_half_208x128<T>>(row, (type + "_208x128").c_str(), blocks, parameters);
    run_tma<tma_half_192x128<T>>(row, (type + "_192x128").c_str(), blocks, parameters);
    run_tma<tma_half_128x128<T>>(row, (type + "_128x128").c_str(), blocks, parameters);
    run_tma<tma_half_96x128<T>>(row, (type + "_96x128").c_str(), blocks, parameters);
    run_tma<tma_half_256x64<T>>(row, (type + "_256x64").c_str(), blocks, parameters);
    run_tma<tma_half_128x64<T>>(row, (type + "_128x64").c_str(), blocks, parameters);
    run_tma<tma_half_64x64<T>>(row, (type + "_64x64").c_str(), blocks, parameters);
    run_tma<tma_half_256x64_w3<T>>(row, (type + "_256x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_208x64_w3<T>>(row, (type + "_208x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_176x64_w3<T>>(row, (type + "_176x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_128x64_w3<T>>(row, (type + "_128x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_96x64_w3<T>>(row, (type + "_96x64_w3").c_str(), blocks, parameters);
    run_halo<tma_half_208x64_halo<T>>(row, type + "_208x64_halo", blocks, parameters);
    run_tma<tma_half_192x128_k4<T>>(row, (type + "_192x128_k4").c_str(), blocks, parameters);
    run_tma<tma_half_128x128_k2<T>>(row, (type + "_128x128_k2").c_str(), blocks, parameters);
    run_tma<tma_half_64x64_k4<T>>(row, (type + "_64x64_k4").c_str(), blocks, parameters);
    run_tma<tma_half_64x64_k8<T>>(row, (type + "_64x64_k8").c_str(), blocks, parameters);
  }
}

}  // namespace
}  // namespace quern::test
