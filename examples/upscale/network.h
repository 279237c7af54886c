// SPDX-License-Identifier: MIT
//
// The network as Quern runs it: every layer a problem, a plan and packed weights; memory and threads are
// this program's own.  On a GPU the same, but that what a layer reads and writes is there.
#pragma once

#include <quern/quern.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "../../tools/gpu.h"
#include "model.h"

namespace upscale {

using tools::gpu;

// Throws failure with the error's sentence unless `status` is QUERN_OK.
void check(quern_status status, const quern_error& error, const char* what);

struct free_memory {
  void operator()(void* memory) const { std::free(memory); }
};
using buffer = std::unique_ptr<char, free_memory>;

// `bytes` bytes for tensors, packed weights or workspace; throws failure when there are none.
buffer allocate(uint64_t bytes);

struct layer {
  const model_layer* model;
  quern_plan plan;
  buffer packed;
  gpu::memory packed_there, bias_there;
  quern_args args;  // where everything is
  double flops;     // two for every multiply-add of the formula, whatever the kernel does
  double seconds;   // spent so far
};

// For tiles of height x width pixels, with a border around them.
class network {
 public:
  // Plans every layer.  `model` and `gpu`, which is NULL for the CPU, must live as long as this.
  network(const model& model, quern_layout layout, int64_t height, int64_t width, uint32_t threads, const gpu* gpu);

  double predicted_ns() const;  // for one tile
  double seconds() const;       // all layers, so far

  // Takes the memory and packs the weights; once, before the first run.
  void prepare();

  // The image that layer 0 reads and the one that the last layer writes, and their tensors.
  float* input() const { return reinterpret_cast<float*>(activations_[0].get()); }
  const float* output() const { return reinterpret_cast<const float*>(activations_[layers.size() % 2].get()); }
  const quern_tensor& input_tensor() const { return layers.front().plan.problem.src; }
  const quern_tensor& output_tensor() const { return layers.back().plan.problem.dst; }

  // One layer of one tile; exec brings the threads, the rest is put in here.  To a GPU layer 0 brings its image, and
  // the last one brings its own back.
  void run(size_t layer, quern_exec exec);
  // What the layer that has just run read and wrote, where the CPU can read it.
  quern_args host_args(size_t layer) const;

  // Bytes; the rest of the memory is the pictures'.
  uint64_t packed_bytes() const, workspace_bytes() const, activation_bytes() const;

  std::vector<layer> layers;

 private:
  const gpu* gpu_;
  buffer activations_[2];  // layer i reads number i % 2 and writes the other
  uint64_t bytes_[2] = {}, workspace_bytes_ = 0;
  buffer workspace_;
  gpu::memory activations_there_[2], workspace_there_;
};

}  // namespace upscale
