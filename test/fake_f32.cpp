// SPDX-License-Identifier: MIT
#include "fake_rows.h"

void quern::test::run_f32(const kernel& row, unsigned blocks, void** parameters) {
  const auto depthwise = [&](const char* name, auto run) {
    if (std::string("depthwise_box_f32_") + name + "_sm90a" == row.name)
      run(*static_cast<const depthwise_box*>(parameters[0]), blocks);
  };
  depthwise("3x3", run_depthwise_boxes<depthwise_3x3>);
  depthwise("3x3s2", run_depthwise_boxes<depthwise_3x3s2>);
  depthwise("5x5", run_depthwise_boxes<depthwise_5x5>);
  depthwise("7x7", run_depthwise_boxes<depthwise_7x7>);
  if (row.kind == kind::depthwise_image)
    run_depthwise_images(*static_cast<const depthwise_image*>(parameters[0]), blocks);
  run_first_layers<first_f32_64, first_f32_32>(row, "f32", blocks, parameters);
  run_first_boxes<box_f32_64, box_f32_32>(row, "f32", blocks, parameters);
  run_of_type<float>(row, "f32", blocks, parameters);
  run_tma<tma_f32_128x128>(row, "f32_128x128", blocks, parameters);
  run_tma<tma_f32_192x64>(row, "f32_192x64", blocks, parameters);
  run_tma<tma_f32_128x64>(row, "f32_128x64", blocks, parameters);
  run_tma<tma_f16x3_128x128>(row, "f16x3_f32_128x128", blocks, parameters);
  run_tma<tma_f16x3_192x64>(row, "f16x3_f32_192x64", blocks, parameters);
  run_tma<tma_f16x3_128x64>(row, "f16x3_f32_128x64", blocks, parameters);
  run_tma<tma_f16x3_128x64_w3>(row, "f16x3_f32_128x64_w3", blocks, parameters);
  const auto tiles = [&](const char* name, auto run, const implicit_tap* taps = nullptr) {
    if (std::string("implicit_f32_") + name + "_sm75" == row.name)
      run(*static_cast<const implicit_conv*>(parameters[0]), taps, blocks);
  };
  tiles("128x128", run_tiles<implicit_128x128>);
  tiles("128x64", run_tiles<implicit_128x64>);
  tiles("64x64", run_tiles<implicit_64x64>);
  tiles("128x128_division", run_tiles<implicit_128x128_division>);
  tiles("128x128_table", run_tiles<implicit_128x128_table>, static_cast<const implicit_table*>(parameters[0])->tap);
  tiles("128x128_any", run_tiles<implicit_128x128_any>);
  tiles("128x64_any", run_tiles<implicit_128x64_any>);
  tiles("64x64_any", run_tiles<implicit_64x64_any>);
}
