// SPDX-License-Identifier: MIT
//
// A network that doubles pictures, as ncnn's converter writes it: <name>.param (text) and <name>.bin
// (weights in half precision).
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace upscale {

// What goes wrong, as one sentence for the user.
struct failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A convolution with stride 1, or (the last layer) a transposed one with stride 2.
struct model_layer {
  std::string name;
  bool transposed;
  int64_t c, k;         // input and output channels
  int64_t filter, pad;  // filter x filter
  bool relu;            // x < 0 ? slope * x : x
  float slope;
  std::vector<float> weights;  // k c r s, for both operators
  std::vector<float> bias;     // k
};

struct model {
  std::vector<model_layer> layers;
  // Pixels around a tile that its result depends on: (2 border + n) pixels in, 2 n pixels out.
  int64_t border;
};

// Reads folder/name.param and folder/name.bin; throws failure.
model read_model(const std::filesystem::path& folder, const std::string& name);

}  // namespace upscale
