// SPDX-License-Identifier: MIT
//
// Devices without a GPU: opening one and what can go wrong, planning, and running through a driver that is
// none and runs the kernels on this CPU.
#include <dlfcn.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "candidates.h"
#include "compare.h"
#include "errors.h"
#include "fake_gpu.h"
#include "fuzz.h"

namespace quern::test {
namespace {

constexpr uintptr_t stream = 0x57;

class CudaDevice : public testing::Test {
 protected:
  CudaDevice() { fake = &gpu; }
  ~CudaDevice() override {
    for (quern_device* d : devices) quern_device_close(d);
    EXPECT_EQ(gpu.loaded, gpu.unloaded);
    EXPECT_EQ(current_context, nullptr);
    fake = nullptr;
  }
  quern_device* open(uintptr_t context = 1) {
    quern_device* device = nullptr;
    quern_error error = {};
    EXPECT_EQ(open_cuda(fake_driver(), reinterpret_cast<void*>(context), device, &error), QUERN_OK) << error.text;
    devices.push_back(device);
    return device;
  }
  void cannot_open(quern_status status, const char* field, const char* sentence) {
    quern_device* device = nullptr;
    quern_error error = {};
    EXPECT_EQ(open_cuda(fake_driver(), reinterpret_cast<void*>(1), device, &error), status);
    EXPECT_STREQ(error.field, field);
    EXPECT_NE(std::string(error.text).find(sentence), std::string::npos) << error.text;
    EXPECT_EQ(device, nullptr);
  }
  way on(const quern_device* device) {
    way how;
    how.device = device, how.queue = reinterpret_cast<void*>(stream);
    return how;
  }

  fake_gpu gpu;
  std::vector<quern_device*> devices;
};

// Whether there is a driver here or not, no context is current in this program.
TEST_F(CudaDevice, WithoutDriverOrContext) {
  quern_device* device = reinterpret_cast<quern_device*>(1);
  quern_error error = {};
  const quern_status status = quern_cuda_open(&device, nullptr, &error);
  EXPECT_EQ(device, nullptr);
  if (dlopen("libcuda.so.1", RTLD_NOW)) {
    EXPECT_TRUE(status == QUERN_INVALID || status == QUERN_UNSUPPORTED) << error.text;
  } else {
    EXPECT_EQ(status, QUERN_UNSUPPORTED);
    EXPECT_NE(strstr(error.text, "libcuda.so.1 cannot be loaded, is NVIDIA's driver installed?"), nullptr)
        << error.text;
  }
  EXPECT_EQ(quern_cuda_open(nullptr, nullptr, &error), QUERN_INVALID);
  quern_device_close(nullptr);
}

TEST_F(CudaDevice, Describes) {
  quern_gpu found = {};
  found.size = sizeof found;
  quern_error error = {};
  ASSERT_EQ(quern_gpu_get(open(), &found, &error), QUERN_OK) << error.text;
  EXPECT_EQ(found.capability, 90u);
  EXPECT_EQ(found.multiprocessors, 132u);
  EXPECT_EQ(found.clock_mhz, 1980u);
  EXPECT_EQ(found.l2_bytes, uint64_t{60} << 20);
  EXPECT_EQ(found.shared_bytes, uint64_t{227} << 10);
  EXPECT_EQ(found.bandwidth, 4'916'736'000'000u);
  found.size = 3;
  EXPECT_EQ(quern_gpu_get(devices[0], &found, &error), QUERN_INVALID);
  EXPECT_EQ(quern_gpu_get(nullptr, &found, &error), QUERN_INVALID);
}

TEST_F(CudaDevice, TakesTheCurrentContext) {
  quern_device* device = nullptr;
  quern_error error = {};
  EXPECT_EQ(open_cuda(fake_driver(), nullptr, device, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "context");
  current_context = reinterpret_cast<void*>(7);
  EXPECT_EQ(open_cuda(fake_driver(), nullptr, device, &error), QUERN_OK) << error.text;
  EXPECT_EQ(current_context, reinterpret_cast<void*>(7));
  EXPECT_EQ(device->context, current_context);
  quern_device_close(device);
  current_context = nullptr;
}

TEST_F(CudaDevice, RefusesWhatCannotWork) {
  gpu.version = 11080;
  cannot_open(QUERN_UNSUPPORTED, "libcuda.so.1", "the driver is of CUDA 11.8");
  gpu.version = 13000, gpu.capability = 70;
  cannot_open(QUERN_UNSUPPORTED, "gpu.capability", "compute capability 7.0, must be at least 7.5");
  gpu.capability = 90, gpu.fails = 201;
  cannot_open(QUERN_DRIVER, "cuCtxPushCurrent", "CUDA_ERROR_FAKE, made up");
}

// ---- Choosing ---------------------------------------------------------------------------------------------

TEST_F(CudaDevice, CandidatesAreTheGpusAlone) {
  const quern_device* device = open();
  for (const quern_problem& p : problems()) {
    const auto all = all_candidates(p, "reference_cuda", device);
    ASSERT_FALSE(all.empty());
    for (const quern_candidate& c : all) {
      EXPECT_EQ(c.backend, QUERN_BACKEND_CUDA) << c.kernel;
      EXPECT_LE(c.floor_percent, 100) << c.kernel;
    }
    for (const quern_candidate& c : all_candidates(p)) EXPECT_NE(c.backend, QUERN_BACKEND_CUDA) << c.kernel;
  }
  EXPECT_EQ(gpu.loaded, 0) << "asking loads nothing";
}

// A GPU that is not there is a value: it can be chosen for, not run on.
TEST_F(CudaDevice, GpusAsValues) {
  const quern_problem p = conv(QUERN_NHWC, 1, 8, 12, 24);
  quern_gpu value = {};
  value.size = sizeof value, value.capability = 75;
  quern_wish wish = wish_of();
  wish.gpu = &value, wish.algorithm = "reference_cuda";
  prepared x(p, wish);
  EXPECT_STREQ(x.plan.kernel, "reference_f32_sm75");
  quern_error error = {};
  EXPECT_EQ(x.run(&error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, "to run it, make it with a device"), nullptr) << error.text;

  value.capability = 70;
  const auto all = candidates(p, wish);
  for (const quern_candidate& c : all) {
    EXPECT_EQ(c.verdict, QUERN_UNAVAILABLE);
    const char* least = strstr(c.kernel, "_sm90a")  ? "9.0"
                        : strstr(c.kernel, "_sm80") ? "8.0"
                        : strstr(c.kernel, "_sm89") ? "8.9"
                                                    : "7.5";
    EXPECT_EQ(explained(c), std::string("needs compute capability ") + least + ", this GPU has 7.0");
  }
  // Some instructions went as they came.
  value.capability = 100, value.shared_bytes = 227 << 10;
  wish.algorithm = nullptr;
  for (const quern_candidate& c : candidates(p, wish))
    EXPECT_EQ(c.verdict == QUERN_UNAVAILABLE, strstr(c.kernel, "_sm90a") != nullptr) << c.kernel;
  value.capability = 9;
  quern_plan plan;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "wish.gpu.capability");
  EXPECT_EQ(error.limit, 10);
  value.capability = 90, value.reserved = 1;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "wish.gpu.reserved");
  value.capability = 91, value.reserved = 0;
  EXPECT_EQ(quern_plan_make(&plan, open(), &p, &wish, &error), QUERN_INVALID) << "more than the device has";
  value.capability = 80;
  EXPECT_EQ(quern_plan_make(&plan, devices[0], &p, &wish, &error), QUERN_OK) << error.text;
  // A CPU has no say in what a GPU does.
  const quern_cpu cpu = cpu_of(all_isas);
  wish.gpu = nullptr, wish.cpu = &cpu;
  EXPECT_EQ(quern_plan_make(&plan, devices[0], &p, &wish, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "wish.cpu");
}

TEST_F(CudaDevice, ChoosesForNothing) {
  for (const uint32_t capability : {75u, 80u, 90u})
    for (const types& t : product_types)
      for (const quern_problem& f32 : problems_of_nothing()) {
        const quern_problem p = of_types(f32, t);
        quern_gpu value = {};
        value.size = sizeof value, value.capability = capability, value.shared_bytes = capability == 90 ? 227 << 10 : 0;
        quern_wish wish = wish_of();
        wish.gpu = &value;
        EXPECT_FALSE(candidates(p, wish).empty()) << text_of(p);
      }
}

// What an H200 is best at with, measured; there is nothing that no kernel takes.
TEST_F(CudaDevice, KnownChoices) {
  const struct {
    const char* line;
    const char* kernel;
    const char* deny = nullptr;
  } choices[] = {
      {"nhwc mb16ic256ih56oc256oh56kh3ph1", "tma_f32_128x128_sm90a"},
      {"nhwc mb16ic512ih28oc512oh28kh3ph1", "tma_f32_128x128_sm90a"},
      {"nhwc mb32ic64ih56oc64oh56kh3ph1", "tma_f32_192x64_sm90a"},
      {"nhwc mb32ic256ih14oc256oh14kh3ph1", "tma_f32_192x64_sm90a"},
      {"nhwc mb32ic512ih7oc512oh7kh3ph1", "tma_f32_128x64_sm90a"},
      {"nhwc mb1ic128ih28oc128oh28kh3ph1", "tma_f32_128x64_sm90a"},
      {"nhwc mb32ic64ih56oc256oh56kh1", "tma_f32_192x64_sm90a"},
      {"nhwc mb32ic512ih7oc2048oh7kh1", "tma_f32_128x128_sm90a"},
      {"nhwc mb8ic32ih112oc192oh112kh1", "tma_f32_192x64_sm90a"},
      {"nhwc mb16ic256ih56oc256oh56kh3ph1", "tensor_f32_128x64_sm80", "conv_tma"},
      {"nhwc mb32ic64ih56oc64oh56kh3ph1", "tensor_f32_128x64_sm80", "conv_tma"},
      {"nhwc mb16ic256ih56oc256oh56kh3ph1", "implicit_f32_128x128_sm75", "conv_tma,conv_tensor"},
      {"nhwc mb16ic512ih28oc512oh28kh3ph1", "implicit_f32_128x128_sm75", "conv_tma,conv_tensor"},
      {"nhwc mb32ic64ih56oc64oh56kh3ph1", "implicit_f32_128x64_sm75", "conv_tma,conv_tensor"},
      {"nhwc mb32ic64ih56oc256oh56kh1", "implicit_f32_128x128_sm75", "conv_tma,conv_tensor"},
      {"nhwc mb1ic128ih28oc128oh28kh3ph1", "implicit_f32_64x64_sm75", "conv_tma,conv_tensor"},
      {"f16 nhwc mb16ic256ih56oc256oh56kh3ph1", "tma_f16_256x128_sm90a"},
      {"f16 nhwc mb32ic64ih56oc64oh56kh3ph1", "tma_f16_208x64_halo_sm90a"},
      {"f16 nhwc mb32ic128ih28oc128oh28kh3ph1", "tma_f16_192x128_sm90a"},
      {"bf16 nhwc mb32ic256ih14oc256oh14kh3ph1", "tma_bf16_96x128_sm90a"},
      {"bf16 nhwc mb1ic64ih360iw640oc64oh360ow640kh3ph1", "tma_bf16_208x64_halo_sm90a"},
      {"f16 nhwc mb32ic64ih56oc256oh56kh1", "tma_f16_256x128_sm90a"},
      {"f16 nhwc mb2ic320ih64oc320oh64kh3ph1", "tma_f16_176x64_w3_sm90a"},
      {"f16 nhwc mb2ic1280ih16oc1280oh16kh3ph1", "tma_f16_96x64_w3_sm90a"},
      {"f16 nhwc mb1ic128ih28oc128oh28kh3ph1", "tma_f16_64x64_k4_sm90a"},
      {"f16 nhwc mb1ic256ih14oc256oh14kh3ph1", "tma_f16_64x64_k4_sm90a"},
      {"f16 nhwc mb1ic512ih7oc512oh7kh3ph1", "tma_f16_64x64_k8_sm90a"},
      {"nhwc mb32ic3ih224oc64oh112kh7sh2ph3", "first_box_f32_64_sm90a"},
      {"nhwc mb32ic3ih224oc64oh112kh7sh2ph3", "tma_f32_192x64_sm90a", "conv_first_box"},
      {"nhwc mb32ic3ih224oc64oh112kh7sh2ph3", "first_f32_32_sm80", "conv_tma,conv_first_box"},
      {"nhwc mb32ic3ih224oc64oh112kh7sh2ph3", "tensor_f32_128x64_any_sm80", "conv_tma,conv_first_layer,conv_first_box"},
      {"nhwc mb16ic3ih224oc64oh224kh3ph1", "first_box_f32_64_sm90a"},
      {"nhwc mb16ic3ih224oc64oh224kh3ph1", "first_f32_32_sm80", "conv_first_box"},
      {"nhwc mb32ic3ih224oc32oh112kh3sh2ph1", "first_box_f32_32_sm90a"},
      {"nhwc mb32ic3ih224oc32oh112kh3sh2ph1", "first_f32_32_sm80", "conv_first_box"},
      {"f16 nhwc mb32ic3ih224oc64oh112kh7sh2ph3", "first_box_f16_64_sm90a"},
      {"f16 nhwc mb32ic3ih224oc64oh112kh7sh2ph3", "first_f16_64_sm80", "conv_first_box"},
      {"f16 nhwc mb32ic3ih224oc32oh112kh3sh2ph1", "first_box_f16_32_sm90a"},
      {"f16 nhwc mb32ic3ih224oc32oh112kh3sh2ph1", "first_f16_32_sm80", "conv_first_box"},
      {"bf16 nhwc mb1ic1ih272iw480oc64oh272ow480kh5ph2", "first_box_bf16_64_sm90a"},
      {"bf16 nhwc mb1ic1ih272iw480oc64oh272ow480kh5ph2", "first_bf16_64_sm80", "conv_first_box"},
      {"nchw mb32ic128ih28oc128oh28kh3ph1", "tma_f32_192x64_sm90a"},
      {"nchw mb32ic128ih28oc128oh28kh3ph1", "tensor_f32_128x64_any_sm80", "conv_tma"},
      {"nhwc g96mb32ic96ih56oc96oh56kh7ph3", "depthwise_box_f32_7x7_sm90a"},
      {"nhwc g96mb32ic96ih56oc96oh56kh7ph3", "walk_f32_c1_7x7_sm80", "conv_depthwise_box"},
      {"nhwc g768ic768ih7oc768oh7kh7ph3", "walk_f32_c1_7x7_sm80"},
      {"nhwc g768mb32ic768ih7oc768oh7kh7ph3", "walk_f32_c1_7x7_sm80"},
      {"nhwc g384ic384ih14oc384oh14kh7ph3", "walk_f32_c1_7x7_sm80"},
      {"nhwc g384mb8ic384ih14oc384oh14kh7ph3", "depthwise_box_f32_7x7_sm90a"},
      {"nhwc g96ic96ih56oc96oh56kh7ph3", "depthwise_box_f32_7x7_sm90a"},
      {"nhwc g672mb32ic672ih14oc672oh14kh5ph2", "depthwise_box_f32_5x5_sm90a"},
      {"nhwc g672ic672ih14oc672oh14kh5ph2", "depthwise_box_f32_5x5_sm90a"},
      {"nhwc g1152ic1152ih7oc1152oh7kh5ph2", "depthwise_box_f32_5x5_sm90a"},
      {"nhwc g144mb32ic144ih56oc144oh56kh3ph1", "depthwise_box_f32_3x3_sm90a"},
      {"nhwc g144mb32ic144ih56oc144oh56kh3ph1", "walk_f32_c2_3x3_sm80", "conv_depthwise_box"},
      {"nhwc g96mb32ic96ih112oc96oh56kh3sh2ph1", "depthwise_box_f32_3x3s2_sm90a"},
      {"nhwc g576mb16ic576ih14oc576oh7kh3sh2ph1", "depthwise_box_f32_3x3s2_sm90a"},
      {"nhwc g384mb32ic384ih14oc384oh14kh31ph15", "depthwise_image_f32_14x14_sm80"},
      {"nhwc g1024mb16ic1024ih14oc1024oh14kh9ph4", "depthwise_image_f32_14x14_sm80"},
      {"nhwc g384mb32ic384ih14oc384oh14kh31ph15", "few_f32_line14_sm75", "conv_depthwise_image"},
      {"nhwc g384mb32ic384ih14oc384oh14kh31ph15 accuracy=f32", "few_f32_line14_sm75"},
      {"f16 nhwc g384mb32ic384ih14oc384oh14kh31ph15", "toeplitz_f16_14x16_sm80"},
      {"f16 nhwc g384mb32ic384ih14oc384oh14kh31ph15", "few_f16_line14_sm75", "conv_toeplitz"},
      {"bf16 nhwc g768mb32ic768ih7oc768oh7kh7ph3", "toeplitz_bf16_14x16_sm80"},
      {"f16 nhwc g384mb32ic384ih14oc384oh14kh7ph3", "group_f16_d8_7x7_sm80"},
      {"f16 nhwc g672mb32ic672ih14oc672oh14kh5ph2", "walk_f16_c1_5x5_sm80"},
      {"bf16 nhwc g1152mb32ic1152ih7oc1152oh7kh5ph2", "walk_bf16_c1_5x5_sm80"},
      {"f16 nhwc g768ic768ih7oc768oh7kh7ph3", "group_f16_d8_7x7_sm80"},
      {"f16 nhwc g1152ic1152ih7oc1152oh7kh5ph2", "walk_f16_c1_5x5_sm80"},
      {"f16 nhwc g576ic576ih14oc576oh7kh3sh2ph1", "walk_f16_c2_3x3s2_sm80"},
      {"f16 nhwc g384ic384ih14oc384oh14kh3ph1", "group_box_f16_c8_sm90a"},
      {"nhwc g32mb32ic256ih28oc256oh28kh3ph1", "group_box_f32_c8_14_sm90a"},
      {"nhwc g32mb32ic256ih56oc256oh56kh3ph1", "group_box_f32_c8_14_sm90a"},
      {"nhwc g32ic256ih56oc256oh56kh3ph1", "group_box_f32_c8_sm90a"},
      {"nhwc g384ic384ih14oc384oh14kh3ph1", "depthwise_box_f32_3x3_sm90a"},
      {"nhwc g64mb32ic512ih7oc512oh7kh3ph1", "group_box_f32_c8_sm90a"},
      {"nhwc g32mb32ic256ih28oc256oh28kh3ph1", "walk_f32_c8_3x3_sm80", "splits"},
      {"f16 nhwc g32mb32ic256ih28oc256oh28kh3ph1", "group_box_f16_c8_sm90a"},
      {"f16 nhwc g32mb32ic256ih28oc256oh28kh3ph1", "group_f16_d16_sm80", "conv_group_box"},
      {"bf16 nhwc g32mb32ic512ih14oc512oh14kh3ph1", "group_box_bf16_c16_sm90a"},
      {"f16 nhwc g144mb32ic144ih56oc144oh56kh3ph1", "group_box_f16_c8_sm90a"},
      {"f16 nhwc g96mb32ic96ih56oc96oh56kh7ph3", "group_f16_d8_7x7_sm80"},
      {"bf16 nhwc g384mb32ic384ih14oc384oh14kh7ph3", "group_bf16_d8_7x7_sm80"},
      {"nhwc g32mb32ic512ih14oc512oh14kh3ph1", "group_box_f32_c16_sm90a"},
      {"nhwc g32mb32ic512ih14oc512oh14kh3ph1", "walk_f32_c16_3x3_sm80", "conv_group_box"},
      {"nhwc mb32ic3ih224oc96oh56kh4sh4", "first_box_f32_64_sm90a"},
      {"nhwc mb32ic3ih224oc96oh56kh4sh4", "first_f32_32_sm80", "conv_first_box"},
      {"s8 nhwc mb16ic256ih56oc256oh56kh3ph1", "tma_s8_256x128_sm90a"},
      {"s8 nhwc mb16ic512ih28oc512oh28kh3ph1", "tma_s8_192x128_sm90a"},
      {"s8 nhwc mb1ic256ih14oc256oh14kh3ph1", "tma_s8_64x64_k4_sm90a"},
      {"e4m3 nhwc mb1ic512ih7oc512oh7kh3ph1", "tma_e4m3_64x64_k8_sm90a"},
      {"s8 nhwc mb32ic3ih224oc32oh112kh3sh2ph1", "first_box_s8_32_sm90a"},
      {"e4m3 nhwc mb32ic3ih224oc64oh112kh7sh2ph3", "first_box_e4m3_64_sm90a"},
      {"s8 nhwc mb32ic256ih14oc256oh14kh3ph1", "tma_s8_128x128_sm90a"},
      {"s8 nhwc mb32ic64ih56oc64oh56kh3ph1", "tma_s8_208x64_w3_sm90a"},
      {"s8 nhwc mb32ic128ih28oc128oh28kh3ph1", "tensor_s8_128x64_sm80", "conv_tma"},
      {"s8 nhwc mb1ic64ih360iw640oc64oh360ow640kh3ph1", "tma_s8_256x64_w3_sm90a"},
      {"f16 nhwc mb1ic128ih512oc128oh512kh3ph1", "tma_f16_256x64_w3_sm90a"},
      {"e4m3 nhwc mb16ic256ih56oc256oh56kh3ph1", "tma_e4m3_192x128_sm90a"},
      {"nhwc mb16ic256ih56oc256oh56kh3ph1 accuracy=f32_loose", "tma_f16x3_f32_128x128_sm90a"},
      {"nhwc mb32ic256ih14oc256oh14kh3ph1 accuracy=f32_loose", "tma_f16x3_f32_192x64_sm90a"},
      {"nhwc mb32ic128ih56oc128oh28kh3sh2ph1 accuracy=f32_loose", "tma_f16x3_f32_192x64_sm90a"},
      {"nhwc mb1ic64ih360iw640oc64oh360ow640kh3ph1 accuracy=f32_loose", "tma_f16x3_f32_128x64_w3_sm90a"},
      {"nhwc mb32ic3ih224oc64oh112kh7sh2ph3 accuracy=f32_loose", "first_box_f32_64_sm90a"},
      {"e4m3 nhwc mb32ic64ih56oc64oh56kh3ph1", "tma_e4m3_128x64_w3_sm90a"},
  };
  const quern_device* device = open();
  for (const auto& c : choices) {
    quern_wish wish = wish_of();
    wish.deny = c.deny, wish.src_limit = 1;
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(c.line, &p, &error), QUERN_OK) << error.text;
    quern_plan plan;
    ASSERT_EQ(quern_plan_make(&plan, device, &p, &wish, &error), QUERN_OK) << error.text;
    EXPECT_STREQ(plan.kernel, c.kernel) << c.line;
  }
}

// ---- Running ----------------------------------------------------------------------------------------------

TEST_F(CudaDevice, RunsOnTheStreamAndCallsNothingElse) {
  const quern_device* device = open(5);
  quern_problem p = conv(QUERN_NHWC, 1, 8, 12, 24);
  quern_wish wish = wish_of();
  wish.algorithm = "reference_cuda";
  quern_plan plan;
  quern_error error = {};
  ASSERT_EQ(quern_plan_make(&plan, device, &p, &wish, &error), QUERN_OK) << error.text;
  EXPECT_EQ(gpu.loaded, 1);
  dice d(1);
  const operands in = small_integers(plan.problem, edge::back, d);
  std::vector<float> dst(static_cast<size_t>(extent(plan.problem.dst)));
  quern_args args = in.args();
  args.dst = dst.data();
  quern_exec exec = {};
  exec.size = sizeof exec;
  EXPECT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_INVALID) << "the default stream, unasked";
  EXPECT_STREQ(error.field, "exec.queue");
  exec.queue = reinterpret_cast<void*>(stream);
  const int others = gpu.others;
  current_context = reinterpret_cast<void*>(77);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_OK) << error.text;
    EXPECT_EQ(gpu.launches, i);
  }
  EXPECT_EQ(current_context, reinterpret_cast<void*>(77)) << "is as it was";
  current_context = nullptr;
  EXPECT_EQ(gpu.others, others);
  EXPECT_EQ(gpu.loaded, 1);
  EXPECT_EQ(gpu.stream, exec.queue);
  EXPECT_EQ(gpu.context, reinterpret_cast<void*>(5));

  gpu.fails = 700;
  EXPECT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_DRIVER);
  EXPECT_EQ(error.value, 700);
  gpu.fails = 0;
  args.dst = nullptr;
  EXPECT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_BUFFER) << "arguments are checked as the CPU's are";
  EXPECT_EQ(gpu.launches, 3);
}

// Code of an earlier GPU has no instruction to wait for what precedes it, and a wish may be against it.
TEST_F(CudaDevice, StartsEarlyWhatCanWait) {
  way how = on(open());
  const quern_problem p = completed(conv(QUERN_NHWC, 1, 3, 9, 8));
  dice d(1);
  const operands in = small_integers(p, edge::back, d);
  for (const int version : {90, 80}) {
    gpu.ptx_version = version;
    for (const char* algorithm : {"conv_tma", "conv_first_layer", "conv_implicit"})
      for (how.overlap = QUERN_OVERLAP_START; how.overlap <= QUERN_OVERLAP_NONE; ++how.overlap) {
        const solution got = solve(p, in, algorithm, nullptr, how);
        ASSERT_EQ(got.failure, "");
        EXPECT_EQ(gpu.early,
                  version >= 90 && strcmp(algorithm, "conv_first_layer") == 0 && how.overlap != QUERN_OVERLAP_NONE)
            << algorithm;
      }
  }
  gpu.ptx_version = 90;
  const quern_problem half = completed(of_type(conv(QUERN_NHWC, 1, 16, 9, 16), QUERN_F16));
  const operands halves = small_integers(half, edge::back, d);
  const solution want = solve(half, halves, "reference", nullptr);
  for (const char* kernel : {"tma_f16_64x64_sm90a", "tma_f16_208x64_halo_sm90a"})
    for (how.overlap = QUERN_OVERLAP_START; how.overlap <= QUERN_OVERLAP_NONE; ++how.overlap) {
      EXPECT_TRUE(agree(half, want, solve(half, halves, "conv_tma", kernel, how)));
      EXPECT_EQ(gpu.early, how.overlap != QUERN_OVERLAP_NONE);
      EXPECT_EQ(gpu.ahead, how.overlap == QUERN_OVERLAP_WEIGHTS);
    }
  // The copy that turns pixels round does, too.
  const quern_problem first = completed(of_type(conv(QUERN_NCHW, 1, 16, 9, 16), QUERN_F16));
  const operands planes = small_integers(first, edge::back, d);
  for (how.overlap = QUERN_OVERLAP_START; how.overlap <= QUERN_OVERLAP_NONE; ++how.overlap) {
    gpu.early_launches = 0;
    EXPECT_EQ(solve(first, planes, "conv_tma", "tma_f16_64x64_sm90a", how).failure, "");
    EXPECT_EQ(gpu.early_launches, how.overlap == QUERN_OVERLAP_NONE ? 0 : 2);
  }
}

TEST_F(CudaDevice, SeveralGpusEachWithItsKernels) {
  const quern_problem p = conv(QUERN_NCHW, 1, 8, 12, 24);
  quern_wish wish = wish_of();
  wish.algorithm = "reference_cuda";
  const quern_device* pair[] = {open(1), open(2)};
  for (int round = 0; round < 2; ++round)
    for (const quern_device* device : pair) {
      quern_plan plan;
      ASSERT_EQ(quern_plan_make(&plan, device, &p, &wish, nullptr), QUERN_OK);
    }
  EXPECT_EQ(gpu.loaded, 2);
}

TEST_F(CudaDevice, ThreadsPlanAtTheSameTime) {
  const quern_problem p = conv(QUERN_NCHW, 1, 8, 12, 24);
  const quern_device* device = open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      quern_wish wish = wish_of();
      wish.algorithm = "reference_cuda";
      quern_plan plan;
      for (int k = 0; k < 100; ++k) EXPECT_EQ(quern_plan_make(&plan, device, &p, &wish, nullptr), QUERN_OK);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(gpu.loaded - gpu.unloaded, 1);
}

// ---- The kernels' source on this CPU ------------------------------------------------------------------------

// Candidates of a problem, one in so many, against the reference: those of any class.
testing::AssertionResult kernels_agree(quern_problem p, dice& d, way how, int64_t one_in = 1) {
  how.side = d.one_in(3) ? edge::front : edge::back, how.src_limit = 4;
  if (p.src.type == QUERN_F32) p.accuracy = QUERN_ACCURACY_F32_LOOSE;
  const operands in = small_integers(p, how.side, d);
  const solution want = solve(p, in, "reference", nullptr);
  for (const char* asked : {static_cast<const char*>(nullptr), "reference_cuda"})
    for (const quern_candidate& c : all_candidates(p, asked, how.device, how.src_limit)) {
      if (c.verdict > QUERN_USABLE || !d.one_in(one_in)) continue;
      if (auto same = agree_by_class(p, c, want, solve(p, in, c.algorithm, c.kernel, how)); !same) return same;
    }
  return testing::AssertionSuccess();
}

TEST_F(CudaDevice, FixedShapesOnTheCpu) {
  dice d(11);
  const way how = on(open());
  int which = 0;
  for (const shape& s : fixed_shapes)
    for (quern_layout src : all_layouts)
      for (quern_layout dst : all_layouts) {
        quern_problem p = problem_of(s, src, dst);
        p.weights.layout = d.of(layouts);
        set_epilogue(p, which += 7);
        ASSERT_TRUE(kernels_agree(completed(of_types(p, d.of(product_types))), d, how, 4));
      }
}

TEST_F(CudaDevice, RandomProblemsOnTheCpu) {
  const uint32_t first = seed();
  const way how = on(open());
  for (uint32_t i = 0; i < 200; ++i) {
    dice d(first + i);
    const quern_problem p = random_problem(d);
    ASSERT_TRUE(kernels_agree(completed(of_types(p, d.of(product_types))), d, how)) << "QUERN_TEST_SEED=" << first + i;
  }
}

// Planes of 16 bytes' multiples, of 4 and of neither, whose lines follow each other or do not; tiles go on from one
// image to the next, and channels end within a tile.  The last one's lines are as long in the copy, but padded.
TEST_F(CudaDevice, PlanesOnTheCpu) {
  dice d(14);
  const way how = on(open());
  for (const char* line :
       {"nchw mb3ic40ih6iw16oc72oh6ow16kh1 bias act=relu", "nchw mb5ic24ih6iw6oc40oh6ow6kh3ph1 bias act=relu",
        "nchw mb9ic72ih5oc33oh5kh3ph1 bias act=relu", "nchw mb2ic5ih3iw11oc4oh3ow3kh1kw3sw4pw1 bias act=relu"})
    for (const quern_type type : {QUERN_F32, QUERN_F16, QUERN_BF16, QUERN_S8, QUERN_E4M3})
      for (const int64_t apart : {0, 16, 4, 1}) {
        quern_problem p;
        quern_error error = {};
        ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
        p = completed(of_types(p, {type, type}));
        if (apart > 0)
          for (quern_tensor* t : {&p.src, &p.dst}) {
            t->stride[4] = 1, t->stride[3] = t->size[4] + apart;
            t->stride[1] = t->size[3] * t->stride[3], t->stride[0] = t->size[1] * t->stride[1];
          }
        ASSERT_TRUE(kernels_agree(completed(p), d, how, 2)) << line << ", lines " << apart << " apart";
      }
}

// Every row of 8-bit elements, into every type.
TEST_F(CudaDevice, EightBitsOnTheCpu) {
  dice d(12);
  const way how = on(open());
  std::set<std::string> left;
  for (size_t i = 0; i < kernel_count(); ++i)
    if (kernel_at(i).type == QUERN_S8 || kernel_at(i).type == QUERN_E4M3) left.insert(kernel_at(i).name);
  EXPECT_FALSE(left.empty());
  int which = 0;
  for (const shape& s : shapes_of_eight_bits)
    for (quern_layout src : layouts)
      for (const types& t : product_types) {
        if (type_bytes(t.src) != 1) continue;
        quern_problem p = problem_of(s, src, d.of(layouts));
        p.weights.layout = d.of(layouts);
        set_epilogue(p, which += 7);
        p = completed(of_types(p, t));
        ASSERT_TRUE(kernels_agree(p, d, how));
        for (const char* asked : {static_cast<const char*>(nullptr), "reference_cuda"})
          for (const quern_candidate& c : all_candidates(p, asked, how.device))
            if (c.verdict <= QUERN_USABLE) {
              left.erase(c.kernel);
              const bool chained = asked || c.algorithm == std::string_view("conv_few_channels");
              EXPECT_EQ(c.accuracy, t.src == QUERN_S8 ? QUERN_ACCURACY_EXACT
                                    : chained         ? QUERN_ACCURACY_F32
                                                      : QUERN_ACCURACY_F16);
            }
      }
  EXPECT_TRUE(left.empty()) << *left.begin() << " takes none of these problems";
}

// What would be NaN is 0 in s8, whatever way sums are rounded.
TEST_F(CudaDevice, EightBitsOfScalesThatAreNotFinite) {
  const way how = on(open());
  const float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f};
  const shape shapes[] = {{.c = 64, .k = 64, .image = {1, 5, 6}, .filter = {1, 3, 3}},
                          {.c = 3, .k = 64, .image = {1, 5, 32}, .filter = {1, 3, 3}}};
  for (const shape& s : shapes)
    for (const int32_t activation : {QUERN_IDENTITY, QUERN_RELU}) {
      dice d(31);
      quern_problem p = problem_of(s, QUERN_NHWC, QUERN_NHWC);
      p.epilogue.scale = p.epilogue.bias = 1, p.epilogue.activation = activation;
      p = completed(of_types(p, {QUERN_S8, QUERN_S8}));
      const operands in(
          p, edge::back, [&] { return d.one_in(30) ? d.of(special) : d.integer(-4, 4); }, [] { return 0.0f; });
      const solution want = solve(p, in, "reference", nullptr);
      for (const quern_candidate& c : all_candidates(p, nullptr, how.device)) {
        if (c.verdict > QUERN_USABLE) continue;
        ASSERT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel, how)));
      }
    }
}

// Operators without products: those that round, and every row of their kernels.
TEST_F(CudaDevice, FriendsOnTheCpu) {
  const uint32_t first = seed();
  const way how = on(open());
  std::set<std::string> left;
  for (size_t i = 0; i < kernel_count(); ++i)
    for (const kind k : {kind::pooling, kind::slices, kind::elementwise})
      if (kernel_at(i).kind == k) left.insert(kernel_at(i).name);
  EXPECT_FALSE(left.empty());
  for (uint32_t i = 0; i < 1500; ++i) {
    dice d(first + i);
    const quern_problem p = of_type(random_friendly(d), d.of(gpu_types));
    const operands in = small_integers(p, d.one_in(3) ? edge::front : edge::back, d);
    const solution want = solve(p, in, "reference", nullptr);
    for (const char* asked : {static_cast<const char*>(nullptr), "reference_cuda"})
      for (const quern_candidate& c : all_candidates(p, asked, how.device)) {
        if (c.verdict > QUERN_USABLE) continue;
        left.erase(c.kernel);
        ASSERT_TRUE(agree_as_friends(p, want, solve(p, in, c.algorithm, c.kernel, how)))
            << "QUERN_TEST_SEED=" << first + i;
      }
  }
  EXPECT_TRUE(left.empty()) << *left.begin() << " takes none of these problems";
}

// Infinities and NaN come out as the reference has them.
TEST_F(CudaDevice, FriendsOfWhatIsNotFinite) {
  const uint32_t first = seed();
  const way how = on(open());
  const float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f};
  for (uint32_t i = 0; i < 600; ++i) {
    dice d(first + i);
    const quern_problem p = of_type(random_friendly(d), d.of(gpu_types));
    const int64_t often = d.one_in(2) ? 3 : 40;
    const operands in(
        p, edge::back, [&] { return d.one_in(often) ? d.of(special) : d.integer(-4, 4); },
        [&] { return d.integer(0, 2); });
    const solution want = solve(p, in, "reference", nullptr);
    for (const quern_candidate& c : all_candidates(p, nullptr, how.device)) {
      if (c.verdict > QUERN_USABLE) continue;
      ASSERT_TRUE(agree_as_friends(p, want, solve(p, in, c.algorithm, c.kernel, how)))
          << "QUERN_TEST_SEED=" << first + i;
    }
  }
}

// One slice of random numbers, around zero and far from it: what error_bound of quern.h says of each operator.
TEST_F(CudaDevice, SlicesStayWithinTheirBounds) {
  const way how = on(open());
  for (quern_op op = QUERN_REDUCE_SUM; op <= QUERN_LOG_SOFTMAX; ++op)
    for (const int64_t length : {7, 100, 1000, 5000, 9000})
      for (const float middle : {0.0f, 1000.0f}) {
        if (op == QUERN_REDUCE_PROD && length > 100) continue;
        quern_problem p = quern_over_axes(op, QUERN_F32, QUERN_NCHW, 1, 1, 1, length, QUERN_AXIS_W);
        p = completed(p);
        dice d(static_cast<uint32_t>(length));
        std::normal_distribution<float> normal(op == QUERN_REDUCE_PROD ? 1.0f : middle);
        const operands in(
            p, edge::back, [&] { return normal(d.engine()); }, [] { return 0.0f; });
        double sum = 0, squares = 0, largest = 0, top = -1e30, apart = 0, variance = 0;
        for (const float f : in.src) {
          const double x = static_cast<double>(f);
          sum += std::abs(x), squares += x * x, largest = std::max(largest, std::abs(x)), top = std::max(top, x);
        }
        const double n = static_cast<double>(length), mean = middle == 0 ? 0 : sum / n;  // near enough
        for (const float f : in.src)
          variance += (static_cast<double>(f) - mean) * (static_cast<double>(f) - mean) / n,
              apart = std::max(apart, top - static_cast<double>(f));
        const solution want = solve(p, in, "reference", nullptr), got = solve(p, in, "slices_cuda", nullptr, how);
        ASSERT_EQ(got.failure, "");
        for (size_t i = 0; i < want.dst.size(); ++i) {
          const double is = static_cast<double>(got.dst[i]), must = static_cast<double>(want.dst[i]);
          const double scale = op == QUERN_REDUCE_SUM || op == QUERN_REDUCE_L1 ? sum
                               : op == QUERN_REDUCE_MEAN                       ? sum / n
                               : op == QUERN_REDUCE_SUM_SQUARE                 ? squares
                               : op == QUERN_NORM                              ? largest / std::sqrt(variance)
                               : op == QUERN_RMS_NORM                          ? largest / std::sqrt(squares / n)
                               : op == QUERN_LOG_SOFTMAX                       ? 1 + apart
                                                                               : std::abs(must);
          ASSERT_LE(std::abs(is - must), got.plan.error_bound * scale + 0x1p-23 * std::abs(must) + 0x1p-126)
              << text(p) << " around " << middle << " at " << i;
        }
      }
}

const kernel& kernel_called(const char* name) {
  size_t i = 0;
  while (strcmp(kernel_at(i).name, name) != 0) ++i;
  return kernel_at(i);
}

bool for_few_channels(kind k) {
  return k == kind::few_channels || k == kind::quads || k == kind::walk || k == kind::group || k == kind::group_box ||
         k == kind::depthwise_box || k == kind::depthwise_image || k == kind::toeplitz || k == kind::first_layer ||
         k == kind::first_box;
}

// Every row of those for few channels a group and of both algorithms for first layers, often.
TEST_F(CudaDevice, FewChannelsOnTheCpu) {
  const uint32_t first = seed();
  const way how = on(open());
  std::set<std::string> left;
  for (size_t i = 0; i < kernel_count(); ++i)
    if (for_few_channels(kernel_at(i).kind)) left.insert(kernel_at(i).name);
  EXPECT_FALSE(left.empty());
  // Many for all of them, then more for those that had none.
  constexpr uint32_t many = 120;
  for (uint32_t i = 0; i < many || !left.empty(); ++i) {
    ASSERT_LT(i, 100000u) << *left.begin() << " takes none of these problems";
    dice d(first + i);
    const quern_problem p = completed(of_types(random_few_channels(d), d.of(product_types)));
    std::vector<quern_candidate> takes = all_candidates(p, nullptr, how.device);
    std::erase_if(takes, [&](const quern_candidate& c) {
      return c.verdict > QUERN_USABLE || !for_few_channels(kernel_called(c.kernel).kind) ||
             (i >= many && !left.count(c.kernel));
    });
    if (takes.empty()) continue;
    const operands in = small_integers(p, d.one_in(3) ? edge::front : edge::back, d);
    const solution want = solve(p, in, "reference", nullptr);
    for (const quern_candidate& c : takes) {
      left.erase(c.kernel);
      ASSERT_TRUE(agree_by_class(p, c, want, solve(p, in, c.algorithm, c.kernel, how)))
          << "QUERN_TEST_SEED=" << first + i;
    }
  }
}

// Sigmoid and its kind: the reference's own formulas, of this machine's libm.
TEST_F(CudaDevice, EveryActivationOnTheCpu) {
  const way how = on(open());
  for (int32_t activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation) {
    quern_problem p = conv(QUERN_NHWC, 1, 3, 9, 5);
    p.epilogue.activation = activation;
    if (activation == QUERN_CLAMP || activation == QUERN_LEAKY_RELU) p.epilogue.activation_alpha = 0.1f;
    if (activation == QUERN_CLAMP) p.epilogue.activation_beta = 0.7f;
    p = completed(p);
    dice d(static_cast<uint32_t>(activation));
    const operands in(
        p, edge::back, [&] { return d.uniform(-3, 3); }, [&] { return d.uniform(-1, 1); });
    EXPECT_TRUE(agree(p, solve(p, in, "reference", nullptr), solve(p, in, "reference_cuda", nullptr, how),
                      [](float a, float b, size_t) { return std::abs(a - b) <= std::abs(a) * 0x1p-23f; }));
  }
}

// Every epilogue on random numbers: the bits of the CPU's kernels, or close to them.
TEST_F(CudaDevice, SumsAndActivationsHaveTheBitsOfTheCpu) {
  if (!can_run(avx2)) GTEST_SKIP() << "no kernel of this CPU to compare with";
  const way how = on(open());
  for (const quern_layout layout : layouts)
    for (int32_t activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation) {
      quern_problem p = conv(layout, 2, 20, 9, 37);
      p.epilogue.scale = p.epilogue.bias = 1;
      p.epilogue.residual = activation % 3;
      p.epilogue.activation = activation;
      if (activation == QUERN_CLAMP || activation == QUERN_LEAKY_RELU) p.epilogue.activation_alpha = 0.1f;
      if (activation == QUERN_CLAMP) p.epilogue.activation_beta = 0.7f;
      p = completed(p);
      dice d(static_cast<uint32_t>(activation));
      const operands in(
          p, edge::back, [&] { return d.uniform(-2, 2); }, [&] { return d.uniform(-1, 1); });
      const solution want = solve(p, in, "conv_im2col", nullptr);
      int compared = 0;
      for (const quern_candidate& c : all_candidates(p, nullptr, how.device)) {
        if (c.verdict > QUERN_USABLE) continue;
        ++compared;
        const solution got = solve(p, in, c.algorithm, c.kernel, how);
        ASSERT_TRUE(c.repeat >= QUERN_REPEAT_ISA ? agree_in_bits(p, want, got) : agree_closely(p, want, got));
      }
      EXPECT_GE(compared, layout == QUERN_NHWC ? 8 : 3);
    }
}

// Few channels a group, by filters, steps and layouts: bits of the CPU.
TEST_F(CudaDevice, FewChannelsHaveTheBitsOfTheCpu) {
  if (!can_run(avx2)) GTEST_SKIP() << "no kernel of this CPU to compare with";
  const way how = on(open());
  for (const char* line :
       {"nhwc g36ic36ih9oc36oh9kh3ph1 bias act=relu", "nchw g36ic36ih9oc36oh5kh3sh2ph1 bias act=silu",
        "nhwc g36ic36ih12oc36oh12kh7ph3 bias", "nhwc g8ic8ih12oc24oh12kh5ph2 act=gelu",
        "nhwc g40ic40ih14oc40oh14kh13ph6", "nhwc g5ic20ih9oc20oh9kh3ph1", "nhwc g4ic32ih9oc32oh9kh3ph1 bias",
        "nhwc g2ic32ih9oc32oh9kh3ph1"}) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
    p = completed(p);
    dice d(3);
    const operands in(
        p, edge::back, [&] { return d.uniform(-2, 2); }, [&] { return d.uniform(-1, 1); });
    const solution want = solve(p, in, "conv_im2col", nullptr);
    int compared = 0;
    for (const quern_candidate& c : all_candidates(p, nullptr, how.device)) {
      if (c.verdict > QUERN_USABLE || c.repeat < QUERN_REPEAT_ISA || !for_few_channels(kernel_called(c.kernel).kind))
        continue;
      ++compared;
      ASSERT_TRUE(agree_in_bits(p, want, solve(p, in, c.algorithm, c.kernel, how))) << c.kernel << " " << line;
    }
    EXPECT_GE(compared, 2) << line;
  }
}

// Those of the next kernel start beside them.
TEST_F(CudaDevice, NoMultiprocessorHasMoreBlocksThanItsShare) {
  const way how = on(open());
  const struct {
    const char *line, *algorithm;
  } cases[] = {{"nhwc g32ic32ih20oc32oh20kh3ph1", "conv_walk"},
               {"nhwc g96mb7ic96ih28oc96oh28kh3ph1", "conv_walk"},
               {"f16 nhwc g64mb2ic64ih20oc64oh20kh7ph3", "conv_group"},
               {"bf16 nhwc g16mb3ic64ih20oc64oh20kh3ph1", "conv_group"},
               {"nhwc g96mb4ic96ih28oc96oh28kh5ph2", "conv_depthwise_box"},
               {"nhwc g64mb17ic64ih28oc64oh28kh7ph3", "conv_depthwise_box"},
               {"f16 nhwc g16mb4ic128ih28oc128oh28kh3ph1", "conv_group_box"},
               {"bf16 nhwc g64mb17ic64ih28oc64oh28kh3ph1", "conv_group_box"},
               {"nhwc g8mb9ic64ih28oc64oh28kh3ph1", "conv_group_box"}};
  for (const auto& [line, algorithm] : cases) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
    p = completed(p);
    dice d(5);
    const operands in = small_integers(p, edge::back, d);
    ASSERT_TRUE(agree(p, solve(p, in, "reference", nullptr), solve(p, in, algorithm, nullptr, how))) << line;
    const unsigned all = 132, share = (fake->blocks + all - 1) / all;
    EXPECT_EQ((227u << 10) / (fake->shared_bytes + 1024), share) << line;
  }
}

// ---- The copy engine and tensor cores -----------------------------------------------------------------------

// Of the line's candidates so many have `kernel` in their names, and all of those are refused with the sentence.
void expect_refusals(const quern_device* device, const char* line, const char* sentence, const char* kernel,
                     int kernels) {
  quern_problem p;
  quern_error error = {};
  ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
  int seen = 0;
  for (const quern_candidate& candidate : all_candidates(p, nullptr, device)) {
    if (!strstr(candidate.kernel, kernel)) continue;
    ++seen;
    EXPECT_EQ(explained(candidate), sentence) << line;
  }
  EXPECT_EQ(seen, kernels) << line;
}

TEST_F(CudaDevice, TheCopyEngineSaysWhatItCannotTake) {
  const quern_device* device = open();
  const struct {
    const char* line;
    const char* sentence;
    const char* kernel = "tma_f32";
    int kernels = 3;
  } cases[] = {
      {"nhwc:nc8hw8 ic64ih8oc8oh8kh1", "dst.layout is nc8hw8, it takes nchw and nhwc"},
      {"nhwc g2ic96ih8oc8oh8kh1", "src.size[1] / groups modulo 32 is 16, it takes 0"},
      {"nhwc ic4id3ih3oc4od3oh3kd1kh3ph1", "src.size[2] or window along d is 3, it takes 1"},
      {"nhwc ic4ih300iw9oc4oh173ow9kh200kw1ph36",
       "inputs before or behind the last window along h is -163, it takes 127"},
      {"nhwc ic4ih100iw1oc4oh12ow1kh1kw1sh9", "window.stride[1] is 9, it takes 8"},
      {"nhwc ic4ih300iw9oc4oh284ow9kh257kw1ph100", "reach of the filter along h is 256, it takes 255"},
      {"nhwc ic4ih9iw9oc4oh271ow9kh1kw1ph131", "window.pad_begin[1] is 131, it takes 127"},
      {"f16 nhwc ic4ih9iw9oc4oh271ow9kh1kw1ph131", "window.pad_begin[1] is 131, it takes 127", "tma_f16_256x128", 1},
      {"bf16 nhwc g2ic96ih8oc8oh8kh1", "src.size[1] / groups modulo 64 is 48, it takes 0", "tma_bf16", 18},
      {"nhwc ic8ih8oc8oh8kh1", "its error class is 40, the problem accepts 30 at most", "tma_f16x3_f32_192x64_sm", 1},
      {"nhwc ic8ih8oc8oh8kh1 accuracy=f32_loose", "needs wish.src_limit, the largest magnitude in src",
       "tma_f16x3_f32_192x64_sm", 1},
      {"nhwc ic8ih8oc8oh8kh1 accuracy=f32_loose", "window.filter[2] is 1, it takes 3", "tma_f16x3_f32_128x64_w3", 1},
      {"bf16 nhwc ic8ih8oc8oh8kh1", "src.type is bf16, it computes f16", "tma_f16_", 18},
      {"f16 nhwc ic16ih8oc8oh4kh3sh2ph1", "window.stride[2] is 2, it takes 1", "tma_f16_256x64_w3_", 1},
      {"f16 nhwc ic16ih8oc8oh8kh3ph2dh1", "window.dilation[2] is 2, it takes 1", "tma_f16_256x64_w3_", 1},
      // Without outputs, but not without weights.
      {"conv_transposed bf16 nhwc:nchw ic129ih9iw5oc2oh7ow0kh1kw11ph1pw5", "window.filter[2] is 11, it takes 3",
       "tma_bf16_208x64_w3_", 1},
      {"f16 nhwc ic16ih8oc65oh8kh3ph1", "dst.size[1] is 65, it takes 64", "tma_f16_208x64_halo", 1},
      {"f16 nhwc ic72ih8oc8oh8kh3ph1", "src.size[1] is 72, it takes 64", "tma_f16_208x64_halo", 1},
      {"f16 nhwc ic16ih8oc8oh8kh5kw3ph2pw1", "taps is 15, it takes 9", "tma_f16_208x64_halo", 1},
      {"f16 nhwc g2ic128ih8oc8oh8kh3ph1", "groups is 2, it takes 1", "tma_f16_208x64_halo", 1},
      {"f16 nhwc ic16ih8oc8oh4kh3sh2ph1", "window.stride[1] is 2, it takes 1", "tma_f16_208x64_halo", 1},
      {"f16 nhwc ic16ih900iw8oc8oh492ow8kh9kw1dh50", "reach of the filter is 408, it takes 96", "tma_f16_208x64_halo",
       1},
      {"conv_transposed f16 nhwc ic16ih8oc8oh15kh1sh2", "taps is 0, it takes 1", "tma_f16_208x64_halo", 1},
      {"f16 nhwc ic16ih8oc8oh8kh5ph2", "window.filter[2] is 5, it takes 3", "tma_f16_208x64_w3_", 1},
      {"nhwc g8ic8ih15oc8oh15kh3ph1", "lines of src or dst is 15, it takes 14", "depthwise_image_f32", 1},
      {"nhwc g8ic8ih9iw15oc8oh9ow15kh3ph1", "pixels of a line of src or dst is 15, it takes 14", "depthwise_image_f32",
       1},
      {"nhwc g8ic8ih9oc8oh9kh1", "product of window.filter is 1, it takes 4", "depthwise_image_f32", 1},
      {"conv_transposed nhwc g8ic8ih6oc8oh13kh3sh2", "product of window.stride is 4, it takes 1", "depthwise_image_f32",
       1},
  };
  for (const auto& c : cases) expect_refusals(device, c.line, c.sentence, c.kernel, c.kernels);
}

TEST_F(CudaDevice, FirstLayersSayWhatTheyCannotTake) {
  const quern_device* device = open();
  const struct {
    const char* line;
    const char* sentence;
    const char* kernel = "first_f16_64";
  } cases[] = {
      {"f16 nhwc ic5ih8oc8oh8kh3ph1", "src.size[1] is 5, it takes 4", "box_f16_64"},
      {"f16 nhwc ic3ih8oc8oh8kh3ph2dh1", "window.dilation[2] is 2, it takes 1", "box_f16_64"},
      {"f16 nchw ic3ih8oc8oh8kh3ph1", "src.stride[1] is 64, it takes 1", "box_f16_64"},
      {"bf16 nhwc ic3ih9oc8oh9kh3ph1", "elements of a line modulo 16 bytes is 3, it takes 0", "box_bf16_64"},
      {"nhwc ic4ih8iw400oc8oh8ow151kh3kw250ph1pw0", "words of a line under eight outputs is 1032, it takes 256",
       "box_f32_32"},
      {"f16 nhwc ic1ih300iw8oc8oh41ow8kh260kw3ph0pw1", "lines under a filter is 260, it takes 256", "box_f16_32"},
      {"nhwc ic3ih64oc32oh17kh48", "bytes of a panel's weights and a window is 2001336, it takes 232448", "box_f32_32"},
      {"f16 nhwc ic5ih8oc8oh8kh3ph1", "src.size[1] is 5, it takes 4"},
      {"f16 nhwc g2ic4ih8oc8oh8kh3ph1", "groups is 2, it takes 1"},
      {"f16 nhwc ic3ih8oc8oh8kh3ph2dh1", "window.dilation[2] is 2, it takes 1"},
      {"f16 nhwc:nc8hw8 ic3ih8oc8oh8kh3ph1", "dst.layout is nc8hw8, it takes nchw and nhwc"},
      {"f16 nhwc ic3id3ih3oc4od3oh3kd1kh3ph1", "src.size[2] or window along d is 3, it takes 1"},
      {"nhwc ic3ih64oc32oh49kh16", "bytes of a panel's weights and a window is 212480, it takes 74752", "first_f32_32"},
      {"f16 nhwc ic1ih1000001iw1000000oc8oh1ow1kh2kw1000000dh999999dw0",
       "bytes of a panel's weights and a window is 4294967296, it takes 56320"},
  };
  for (const auto& c : cases) expect_refusals(device, c.line, c.sentence, c.kernel, 1);
}

TEST_F(CudaDevice, TheCopyEngineReadsAlignedImages) {
  const quern_problem p = conv(QUERN_NHWC, 1, 8, 12, 24);
  quern_wish wish = wish_of();
  wish.algorithm = "conv_tma";
  quern_plan plan;
  quern_error error = {};
  ASSERT_EQ(quern_plan_make(&plan, open(), &p, &wish, &error), QUERN_OK) << error.text;
  const guarded<float> src(8 * 12 * 12 + 1, edge::front), dst(24 * 12 * 12, edge::front);
  const guarded<char> packed(plan.packed_bytes, edge::front, QUERN_ALIGN);
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.data() + 1, args.weights = packed.data(), args.dst = dst.data();
  quern_exec exec = {};
  exec.size = sizeof exec, exec.queue = reinterpret_cast<void*>(stream);
  EXPECT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_BUFFER);
  EXPECT_STREQ(error.text, "args.src is not aligned to 16 bytes");
}

// What an infinite or NaN input or weight meets is not finite, and nothing else is touched; nor is what an input meets
// that is beyond the limit.
TEST_F(CudaDevice, NothingFiniteComesOfWhatIsNot) {
  way how = on(open());
  how.src_limit = 1;
  const float infinity = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
  const struct { int channels, groups, outputs; } cases[] = {{36, 1, 5}, {3, 1, 5}, {16, 2, 16}, {32, 2, 32}};
  for (const auto& [channels, groups, outputs] : cases) {
    const int of_group = channels / groups;
    quern_problem p = conv(QUERN_NHWC, 1, channels, 7, outputs);
    p.groups = groups, p.weights.size[1] = of_group;
    p.window.pad_begin[1] = p.window.pad_begin[2] = p.window.pad_end[1] = p.window.pad_end[2] = 0;
    p.accuracy = QUERN_ACCURACY_F32_LOOSE;
    p = completed(p);
    for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), largest})
      for (const bool in_src : {true, false}) {
        dice d(3);
        // A pixel in the middle, or a weight of channel 2.
        int left = in_src ? channels * 27 + 1 : channels * 49 + of_group * (9 * 2 + 3) + 1;
        const operands in(
            p, edge::back, [&] { return left-- == 0 ? bad : d.uniform(0.5f, 1); }, [] { return 0.0f; });
        const solution want = solve(p, in, "reference", nullptr);
        for (const quern_candidate& c : all_candidates(p, nullptr, how.device, how.src_limit)) {
          if (c.verdict > QUERN_USABLE || c.repeat >= QUERN_REPEAT_ISA) continue;
          EXPECT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel, how), [&](float a, float b, size_t) {
            const bool close = std::isfinite(a) && std::abs(a - b) <= 1e-5f * std::abs(a);
            return close || (!(std::abs(a) < 1e6f) && !std::isfinite(b));
          }));
        }
      }
  }
}

// Blocks of 8.6 have less shared memory than those of 8.0.
TEST_F(CudaDevice, KernelsFindTheirSharedMemory) {
  quern_problem p;
  ASSERT_EQ(quern_problem_parse("f16 nhwc g384mb32ic384ih14oc384oh14kh31ph15", &p, nullptr), QUERN_OK);
  for (const bool enough : {true, false}) {
    quern_gpu asked = {};
    asked.size = sizeof asked, asked.capability = enough ? 80 : 86, asked.shared_bytes = (enough ? 163 : 99) << 10;
    quern_wish wish = wish_of();
    wish.gpu = &asked;
    quern_plan plan;
    quern_error error = {};
    ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << error.text;
    EXPECT_STREQ(plan.kernel, enough ? "toeplitz_f16_14x16_sm80" : "few_f16_line14_sm75");
    wish.kernel = "toeplitz_f16_14x16_sm80";
    EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error) == QUERN_OK, enough);
    EXPECT_EQ(strstr(error.text, "bytes of shared memory, a block of this GPU has 101376") != nullptr, !enough)
        << error.text;
  }
}

// conv_toeplitz multiplies all of a line by zero, conv_depthwise_image all of an image's channel: what is not finite
// stays there.
TEST_F(CudaDevice, MatricesOfLinesLoseLinesAlone) {
  const way how = on(open());
  const struct {
    const char *problem, *algorithm;
    size_t together;  // outputs that are lost as one
    int most;         // times
    float error;      // of those that are not
  } cases[] = {{"f16 nhwc g16mb2ic16ih9oc16oh9kh3ph1", "conv_toeplitz", 9, 3, 0},
               {"f32 nhwc g16mb2ic16ih9oc16oh9kh3ph1", "conv_depthwise_image", 81, 1, 1e-3f}};
  for (const auto& [problem, algorithm, together, most, error] : cases)
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      quern_problem p;
      ASSERT_EQ(quern_problem_parse(problem, &p, nullptr), QUERN_OK);
      p = completed(p);
      dice d(3);
      int left = 700;
      const auto number = [&] { return static_cast<float>(d.from(-2, 2)); };
      const operands in(
          p, edge::back, [&] { return left-- == 0 ? bad : number(); }, [] { return 0.0f; });
      const solution want = solve(p, in, "reference", nullptr), got = solve(p, in, algorithm, nullptr, how);
      ASSERT_EQ(got.failure, "") << algorithm;
      int lost = 0;
      for (size_t first = 0; first < want.dst.size(); first += together) {
        bool meets = false;
        for (size_t i = first; i < first + together; ++i) meets |= !std::isfinite(want.dst[i]);
        lost += meets;
        for (size_t i = first; i < first + together; ++i) {
          const bool lost_too = meets && std::isnan(got.dst[i]);
          const bool same = got.dst[i] == want.dst[i] || std::abs(got.dst[i] - want.dst[i]) <= error ||
                            (std::isnan(want.dst[i]) && std::isnan(got.dst[i]));
          EXPECT_TRUE(same || lost_too) << algorithm << " around " << bad << " at " << i;
          EXPECT_FALSE(std::isfinite(got.dst[i]) && !std::isfinite(want.dst[i])) << algorithm << " at " << i;
        }
      }
      EXPECT_GE(lost, 1);
      EXPECT_LE(lost, most);
    }
}

// A weight that is not finite may take its channel with it, and no other.
TEST_F(CudaDevice, SpectraLoseTheChannelOfAWeight) {
  const way how = on(open());
  quern_problem p;
  ASSERT_EQ(quern_problem_parse("f32 nhwc g16mb2ic16ih9oc16oh9kh3ph1", &p, nullptr), QUERN_OK);
  p = completed(p);
  constexpr int images = 2, channels = 16, of_image = 81, bad_channel = 5;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    dice d(3);
    int left = images * channels * of_image + 9 * bad_channel + 4;
    const operands in(
        p, edge::back, [&] { return left-- == 0 ? bad : static_cast<float>(d.from(1, 3)); }, [] { return 0.0f; });
    const solution want = solve(p, in, "reference", nullptr), got = solve(p, in, "conv_depthwise_image", nullptr, how);
    ASSERT_EQ(got.failure, "");
    for (size_t i = 0; i < want.dst.size(); ++i) {
      const bool of_it = i / of_image % channels == bad_channel;
      EXPECT_EQ(std::isfinite(want.dst[i]), !of_it);
      EXPECT_TRUE(of_it ? !std::isfinite(got.dst[i]) : std::abs(got.dst[i] - want.dst[i]) < 1e-3f)
          << bad << " at " << i;
    }
  }
}

// F32_FAST: at most four times the error of a chain of multiply-adds on the same data, and within the plan's bound.
TEST_F(CudaDevice, SpectraRoundAsTheirClassDoes) {
  const way how = on(open());
  const auto normal = [](dice& d) { return std::normal_distribution<float>()(d.engine()); };
  const auto positive = [](dice& d) { return d.uniform(0, 1); };
  const auto wide = [](dice& d) { return std::ldexp(d.uniform(-1, 1), -d.from(0, 30)); };
  const struct {
    float (*src)(dice&);
    float (*weights)(dice&);
  } kinds[] = {{normal, normal}, {positive, positive}, {positive, normal}, {wide, wide}};
  for (const char* line :
       {"nhwc g32mb2ic32ih14oc32oh14kh31ph15", "nhwc g32mb2ic32ih14oc32oh14kh13ph6",
        "nhwc g32mb2ic32ih14oc32oh14kh3ph1", "nhwc g32mb2ic32ih14oc32oh13kh2", "nhwc g32mb2ic32ih7oc32oh7kh7ph3",
        "nhwc g32mb2ic32ih14oc32oh14kh1kw31pw15", "conv_transposed nhwc g32mb2ic32ih12oc32oh14kh3"})
    for (const auto& kind : kinds) {
      quern_problem p;
      ASSERT_EQ(quern_problem_parse(line, &p, nullptr), QUERN_OK) << line;
      p = completed(p);
      dice d(11);
      int64_t left = extent(p.src);
      const operands in(
          p, edge::back, [&] { return left-- > 0 ? kind.src(d) : kind.weights(d); }, [] { return 0.0f; });
      const std::vector<double> want = in_double(p, in);
      const quern_candidate spectra = all_candidates(p, "conv_depthwise_image", how.device)[0];
      quern_candidate chain = {};
      chain.algorithm = "conv_few_channels";
      const errors got = errors_of(p, in, want, spectra, how);
      EXPECT_LE(got.relative, 4 * errors_of(p, in, want, chain, how).relative) << line;
      EXPECT_EQ(spectra.accuracy, QUERN_ACCURACY_F32_FAST);
      EXPECT_GT(got.largest, 0);
      EXPECT_LE(got.largest, spectra.error_bound) << line;
      EXPECT_LE(spectra.error_bound, 1200 * 0x1p-24) << line;
    }
}

// ---- f32 by products of F16 -----------------------------------------------------------------------------------

struct limited {
  const char* name;
  float src, weights;  // what they are scaled by
  float (*draw)(dice&);
};
constexpr limited limited_numbers[] = {
    {"normal", 1, 1, [](dice& d) { return std::normal_distribution<float>()(d.engine()); }},
    {"positive", 1, 1, [](dice& d) { return d.uniform(0, 1); }},
    {"of many magnitudes", 1, 1, [](dice& d) { return std::ldexp(d.uniform(-1, 1), -d.from(0, 30)); }},
    {"large by small", 0x1p100f, 0x1p-100f, [](dice& d) { return d.uniform(-1, 1); }},
    {"small by large", 0x1p-100f, 0x1p110f, [](dice& d) { return d.uniform(-1, 1); }},
    {"denormal by large", 0x1p-130f, 0x1p120f, [](dice& d) { return d.uniform(-1, 1); }},
};

// Each output within the plan's bound, of channels whose weights differ by much; numbers like those of networks are
// nearly as exact as by multiply-adds.
TEST_F(CudaDevice, LimitedInputsStayWithinTheBound) {
  way how = on(open());
  for (const int64_t channels : {64, 256, 512})
    for (const limited& numbers : limited_numbers) {
      quern_problem p = conv(QUERN_NHWC, 1, channels, 3, 5);
      p.accuracy = QUERN_ACCURACY_F32_LOOSE;
      p = completed(p);
      dice d(static_cast<uint32_t>(channels));
      int64_t drawn = 0;
      const int64_t inputs = channels * 9;
      const operands in(
          p, edge::back,
          [&] {
            const int64_t of_weights = drawn++ - inputs;
            const float x = numbers.draw(d);
            if (of_weights < 0) return x * numbers.src;
            return x * numbers.weights * std::ldexp(1.0f, static_cast<int>(of_weights / inputs) * -7);
          },
          [] { return 0.0f; });
      double limit = 0, error = 0, norm = 0;
      for (const float x : in.src) limit = std::max(limit, std::abs(static_cast<double>(x)));
      how.src_limit = static_cast<float>(limit);
      const solution want = solve(p, in, "reference", nullptr);
      for (const char* kernel : {"tma_f16x3_f32_128x128_sm90a", "tma_f16x3_f32_128x64_w3_sm90a"}) {
        const solution got = solve(p, in, "conv_tma_f16x3", kernel, how);
        ASSERT_EQ(got.failure, "");
        EXPECT_EQ(got.plan.accuracy, QUERN_ACCURACY_F32_LOOSE);
        for (size_t i = 0; i < want.dst.size(); ++i) {
          const double is = static_cast<double>(got.dst[i]), must = static_cast<double>(want.dst[i]);
          double weights = 0;
          for (size_t k = 0; k < static_cast<size_t>(inputs); ++k)
            weights += std::abs(static_cast<double>(in.weights[i / 9 * static_cast<size_t>(inputs) + k]));
          ASSERT_LE(std::abs(is - must), got.plan.error_bound * limit * weights + 0x1p-24 * std::abs(must) + 0x1p-149)
              << numbers.name << " " << channels << " at " << i;
          if (i < 9) error += (is - must) * (is - must), norm += must * must;
        }
        EXPECT_LE(std::sqrt(error / norm), 1e-6) << numbers.name << " " << channels;
      }
    }
}

TEST_F(CudaDevice, LimitsMustBePromised) {
  quern_problem p = conv(QUERN_NHWC, 1, 64, 7, 64);
  p.accuracy = QUERN_ACCURACY_F32_LOOSE;
  quern_wish wish = wish_of();
  wish.algorithm = "conv_tma_f16x3";
  quern_plan plan;
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, open(), &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "wish.src_limit");
  EXPECT_NE(strstr(error.text, "needs wish.src_limit, the largest magnitude in src"), nullptr) << error.text;
  wish.src_limit = 1;
  EXPECT_EQ(quern_plan_make(&plan, open(), &p, &wish, &error), QUERN_OK) << error.text;
}

// What is beyond the limit is never silently wrong: outputs that meet it are right still, or not finite.
TEST_F(CudaDevice, NothingWrongComesOfABrokenPromise) {
  way how = on(open());
  quern_problem p = conv(QUERN_NHWC, 1, 36, 7, 5);
  p.accuracy = QUERN_ACCURACY_F32_LOOSE;
  p = completed(p);
  for (const float limit : {1.0f, 0x1.fffffep0f, 3.0f, 0x1p-140f, 0x1p120f})
    for (const float times : {1.0f, 1.5f, 1.99f, 2.5f, 4.0f, 9.0f}) {
      const auto with = [&](float bad) {
        dice d(3);
        int drawn = 0;
        return operands(
            p, edge::back,
            [&] {
              const float x = d.uniform(0.5f, 1);
              return drawn++ == 36 * 27 ? bad : drawn <= 36 * 49 ? x * limit : x;
            },
            [] { return 0.0f; });
      };
      const operands in = with(limit * times);
      const solution want = solve(p, in, "reference", nullptr);
      const solution met = solve(p, with(std::numeric_limits<float>::quiet_NaN()), "reference", nullptr);
      how.src_limit = limit;
      for (const quern_candidate& c : all_candidates(p, "conv_tma_f16x3", how.device, limit)) {
        if (c.verdict > QUERN_USABLE) continue;
        EXPECT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel, how),
                          [&](float a, float b, size_t i) {
                            const bool close = std::abs(a - b) <= 1e-5f * std::abs(a) + 0x1p-148f;
                            if (!std::isnan(met.dst[i]) || times <= 1) return close;
                            return !std::isfinite(b) || close;
                          }))
            << limit << " times " << times;
      }
    }
}

}  // namespace
}  // namespace quern::test
