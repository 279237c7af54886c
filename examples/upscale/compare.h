// SPDX-License-Identifier: MIT
//
// What --compare adds: each layer against Quern's float64 reference, and the whole against ncnn.
#pragma once

#include <cstdint>
#include <filesystem>

#include "network.h"
#include "picture.h"

namespace upscale {

struct difference {
  double relative_l2;  // |y - reference| / |reference|
  double largest;      // max |y - reference|
};

// Runs the layer's reference on a window of the image that it has just read, and compares the window of
// its dst; `args` say where they are.  A window because the reference takes its time.
difference against_reference(const layer& layer, quern_args args);

struct ncnn_result {
  bool ran;
  std::string message;  // why not
  double seconds;       // all tiles, the network alone
  int largest;          // of all pixels' differences, in 255ths
  int64_t different;    // pixels that are not the same
};

// The same tiles through the PyPI package ncnn, in a python3 of its own.
ncnn_result against_ncnn(const std::filesystem::path& model, const std::string& name, const picture& input,
                         const picture& output, int64_t border, int64_t tile_height, int64_t tile_width,
                         uint32_t threads);

}  // namespace upscale
