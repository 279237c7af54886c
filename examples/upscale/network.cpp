// SPDX-License-Identifier: MIT
#include "network.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace upscale {
namespace {

// The bytes that a tensor's elements span.
uint64_t bytes_of(const quern_tensor& tensor) {
  int64_t last = 0;
  for (int i = 0; i < 5; i++) last += (tensor.size[i] - 1) * tensor.stride[i];
  return static_cast<uint64_t>(last + 1) * sizeof(float);
}

quern_problem problem_of(const model_layer& layer, quern_layout layout, int64_t height, int64_t width) {
  quern_problem problem;
  if (layer.transposed) {
    problem =
        quern_conv2d_transposed(QUERN_F32, layout, 1, layer.c, height, width, layer.k, layer.filter, layer.filter);
    problem.window.stride[1] = problem.window.stride[2] = 2;
    problem.window.pad_begin[1] = problem.window.pad_begin[2] = layer.pad;
    problem.window.pad_end[1] = problem.window.pad_end[2] = layer.pad;
  } else {
    problem = quern_conv2d(QUERN_F32, layout, 1, layer.c, height, width, layer.k, layer.filter, layer.filter);
  }

  // The file holds k c r s.  Quern counts a convolution's weights as k c r s too, but a transposed one's
  // as c k r s (it is the gradient of a convolution from k to c): strides say so, nothing is copied.
  const int64_t area = layer.filter * layer.filter;
  const int64_t per_k = layer.c * area;
  int64_t* stride = problem.weights.stride;
  problem.weights.layout = QUERN_NCHW;
  stride[0] = layer.transposed ? area : per_k;
  stride[1] = layer.transposed ? per_k : area;
  stride[2] = area;
  stride[3] = layer.filter;
  stride[4] = 1;

  problem.epilogue.bias = 1;
  if (layer.relu) {
    problem.epilogue.activation = QUERN_LEAKY_RELU;
    problem.epilogue.activation_alpha = layer.slope;
  }
  return problem;
}

// Every weight meets every pixel of dst once; of src, where the operator is transposed.
double flops_of(const quern_problem& problem) {
  const quern_tensor& image = problem.op == QUERN_CONV_TRANSPOSED ? problem.src : problem.dst;
  double flops = 2.0 * static_cast<double>(image.size[3] * image.size[4]);
  for (const int64_t size : problem.weights.size) flops *= static_cast<double>(size);
  return flops;
}

}  // namespace

void check(quern_status status, const quern_error& error, const char* what) {
  if (status != QUERN_OK) throw failure(std::string(what) + ": " + error.text);
}

buffer allocate(uint64_t bytes) {
  const size_t rounded = (static_cast<size_t>(bytes) + QUERN_ALIGN) / QUERN_ALIGN * QUERN_ALIGN;
  buffer memory(static_cast<char*>(std::aligned_alloc(QUERN_ALIGN, rounded)));
  if (!memory) throw failure("out of memory: " + std::to_string(bytes >> 20) + " MB; a smaller --tile needs less");
  return memory;
}

network::network(const model& model, quern_layout layout, int64_t height, int64_t width, uint32_t threads,
                 const gpu* gpu)
    : gpu_(gpu) {
  quern_wish wish{};
  wish.size = sizeof wish;
  wish.threads = threads;
  height += 2 * model.border;
  width += 2 * model.border;
  for (const model_layer& from : model.layers) {
    layer layer{};
    layer.model = &from;
    const quern_problem problem = problem_of(from, layout, height, width);
    quern_error error{};
    check(quern_plan_make(&layer.plan, gpu ? gpu->device() : nullptr, &problem, &wish, &error), error,
          from.name.c_str());
    const quern_tensor& dst = layer.plan.problem.dst;  // the plan knows what the problem left to be derived
    layer.flops = flops_of(layer.plan.problem);
    height = dst.size[3];
    width = dst.size[4];

    const size_t reads = layers.size() % 2;
    bytes_[reads] = std::max(bytes_[reads], bytes_of(layer.plan.problem.src));
    bytes_[1 - reads] = std::max(bytes_[1 - reads], bytes_of(dst));
    workspace_bytes_ = std::max(workspace_bytes_, layer.plan.workspace_bytes);
    layers.push_back(std::move(layer));
  }
}

double network::predicted_ns() const {
  double sum = 0;
  for (const layer& layer : layers) sum += layer.plan.predicted_ns;
  return sum;
}

double network::seconds() const {
  double sum = 0;
  for (const layer& layer : layers) sum += layer.seconds;
  return sum;
}

void network::prepare() {
  for (int i = 0; i < 2; i++) activations_[i] = allocate(bytes_[i]);
  const char* at[] = {activations_[0].get(), activations_[1].get()};
  if (gpu_) {
    for (int i = 0; i < 2; i++) activations_there_[i] = gpu_->allocate(bytes_[i]), at[i] = activations_there_[i].get();
    workspace_there_ = gpu_->allocate(workspace_bytes_);
  } else {
    workspace_ = allocate(workspace_bytes_);
  }
  for (size_t i = 0; i < layers.size(); i++) {
    layer& layer = layers[i];
    layer.args.size = sizeof layer.args;
    layer.args.src = at[i % 2];
    layer.args.dst = const_cast<char*>(at[1 - i % 2]);
    layer.args.bias = layer.model->bias.data();
    const void* weights = layer.model->weights.data();
    uint64_t bytes = layer.model->weights.size() * sizeof(float);
    if (layer.plan.packed_bytes != 0) {  // else this kernel reads them as they are
      quern_error error{};
      bytes = layer.plan.packed_bytes;
      layer.packed = allocate(bytes);
      check(quern_pack(&layer.plan, weights, layer.packed.get(), bytes, nullptr, &error), error,
            layer.model->name.c_str());
      weights = layer.packed.get();
    }
    layer.args.weights = weights;
    if (!gpu_) continue;
    layer.packed_there = gpu_->copy_of(weights, bytes);
    layer.bias_there = gpu_->copy_of(layer.model->bias.data(), layer.model->bias.size() * sizeof(float));
    layer.args.weights = layer.packed_there.get();
    layer.args.bias = reinterpret_cast<const float*>(layer.bias_there.get());
  }
}

void network::run(size_t index, quern_exec exec) {
  layer& layer = layers[index];
  exec.workspace = gpu_ ? workspace_there_.get() : workspace_.get();
  exec.workspace_bytes = workspace_bytes_;
  if (gpu_) exec.queue = gpu_->stream();
  if (gpu_ && index == 0) gpu_->copy_there(activations_there_[0].get(), activations_[0].get(), bytes_[0]);
  quern_error error{};
  const auto start = std::chrono::steady_clock::now();
  check(quern_run(&layer.plan, &layer.args, &exec, &error), error, layer.model->name.c_str());
  if (gpu_) gpu_->wait();
  layer.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const size_t last = layers.size() % 2;
  if (gpu_ && index + 1 == layers.size())
    gpu_->copy_back(activations_[last].get(), activations_there_[last].get(), bytes_[last]);
}

quern_args network::host_args(size_t index) const {
  quern_args args = layers[index].args;
  if (!gpu_) return args;
  for (int i = 0; i < 2; i++) gpu_->copy_back(activations_[i].get(), activations_there_[i].get(), bytes_[i]);
  args.src = activations_[index % 2].get(), args.dst = activations_[1 - index % 2].get();
  args.bias = layers[index].model->bias.data();
  return args;
}

uint64_t network::packed_bytes() const {
  uint64_t sum = 0;
  for (const layer& layer : layers) sum += layer.plan.packed_bytes;
  return sum;
}

uint64_t network::workspace_bytes() const { return workspace_bytes_; }

uint64_t network::activation_bytes() const { return bytes_[0] + bytes_[1]; }

}  // namespace upscale
