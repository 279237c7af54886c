// SPDX-License-Identifier: MIT
//
// Packed weights that are missing, short, foreign, unsealed or damaged.
#include <algorithm>

#include "blob.h"
#include "candidates.h"
#include "refusals.h"

namespace quern {
namespace {

using Packed = on_a_kernel;

TEST_F(Packed, PackRefusesHostileArguments) {
  const prepared x(everything());
  const memory packed(x.plan.packed_bytes + 64);
  const std::string before = packed.copy();
  const uint64_t bytes = x.plan.packed_bytes;
  quern_error error = {};
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.queue = &exec;
  const float* w = x.weights.floats();
  expect(quern_pack(nullptr, w, packed.get(), bytes, nullptr, &error), error, QUERN_INVALID, "plan");
  expect(quern_pack(&x.plan, nullptr, packed.get(), bytes, nullptr, &error), error, QUERN_BUFFER, "weights");
  expect(quern_pack(&x.plan, shifted<float>(w, 1), packed.get(), bytes, nullptr, &error), error, QUERN_BUFFER,
         "weights");
  expect(quern_pack(&x.plan, w, nullptr, bytes, nullptr, &error), error, QUERN_BUFFER, "packed");
  expect(quern_pack(&x.plan, w, packed.get() + 4, bytes, nullptr, &error), error, QUERN_BUFFER, "packed");
  EXPECT_EQ(error.value, 4);
  EXPECT_EQ(error.limit, QUERN_ALIGN);
  expect(quern_pack(&x.plan, w, packed.get(), bytes - 1, nullptr, &error), error, QUERN_BUFFER, "packed_bytes");
  EXPECT_EQ(error.value, static_cast<int64_t>(bytes) - 1);
  EXPECT_EQ(error.limit, static_cast<int64_t>(bytes));
  expect(quern_pack(&x.plan, w, packed.get(), bytes, &exec, &error), error, QUERN_INVALID, "exec.queue");
  expect(quern_pack(&x.plan, packed.get() + 256, packed.get(), bytes, nullptr, &error), error, QUERN_BUFFER, "weights");

  // A part reads its own channels alone, which may lie right before the blob or behind it.
  const quern_tensor& plain_weights = x.plan.problem.weights;
  const uint64_t channel = 4 * static_cast<uint64_t>(plain_weights.stride[0]), part = 2 * channel;
  const memory room(bytes + 2 * 4096);
  char* const blob = room.get() + 4096;
  const auto pack_part = [&](const char* from) { return quern_pack_part(&x.plan, 5, 2, from, blob, bytes, &error); };
  for (const char* from : {blob - part + 4, blob, blob + 256, blob + bytes - 4})
    expect(pack_part(from), error, QUERN_BUFFER, "weights");
  for (const char* from : {blob - part, blob + bytes}) EXPECT_EQ(pack_part(from), QUERN_OK) << error.text;

  const quern_plan zero = {};
  expect(quern_pack(&zero, w, packed.get(), bytes, nullptr, &error), error, QUERN_MISMATCH, "plan");
  expect(quern_pack_seal(&zero, packed.get(), bytes, &error), error, QUERN_MISMATCH, "plan");
  expect(quern_packed_check(&zero, packed.get(), bytes, &error), error, QUERN_MISMATCH, "plan");
  expect(quern_pack_part(&zero, 0, 1, w, packed.get(), bytes, &error), error, QUERN_MISMATCH, "plan");
  expect(quern_pack_seal(&x.plan, packed.get(), bytes - 1, &error), error, QUERN_BUFFER, "packed_bytes");
  expect(quern_packed_check(&x.plan, packed.get(), bytes - 1, &error), error, QUERN_BUFFER, "packed_bytes");
  expect(quern_packed_check(&x.plan, nullptr, bytes, &error), error, QUERN_BUFFER, "packed");

  const struct {
    int64_t first, count;
    const char* field;
    int64_t limit;
  } ranges[] = {{-1, 1, "first", 24},        {25, 0, "first", 24}, {0, 25, "count", 24},       {24, 1, "count", 0},
                {INT64_MAX, 1, "first", 24}, {1, -1, "count", 23}, {3, INT64_MAX, "count", 21}};
  for (const auto& r : ranges) {
    expect(quern_pack_part(&x.plan, r.first, r.count, w, packed.get(), bytes, &error), error, QUERN_INVALID, r.field);
    EXPECT_EQ(error.limit, r.limit);
  }
  expect(quern_pack_part(&x.plan, 0, 1, nullptr, packed.get(), bytes, &error), error, QUERN_BUFFER, "weights");
  EXPECT_EQ(quern_pack_part(&x.plan, 24, 0, nullptr, packed.get(), bytes, &error), QUERN_OK);
  EXPECT_TRUE(packed.copy() == before) << "packed weights were written though refused";

  quern_wish wish = wish_of();
  wish.algorithm = "reference";
  const quern_plan plain = plan_of(everything(), wish);
  expect(quern_pack(&plain, w, packed.get(), bytes, nullptr, &error), error, QUERN_INVALID, "plan.packed_bytes");
}

TEST_F(Packed, RunRefusesForeignWeights) {
  quern_wish wish = wish_of();
  wish.algorithm = "conv_im2col", wish.kernel = a_gemm_kernel;
  prepared x(everything(), wish);
  quern_error error = {};
  const auto refused = [&](const prepared& other, const char* what) {
    SCOPED_TRACE(what);
    const memory blob(std::max(other.plan.packed_bytes, x.plan.packed_bytes));
    memcpy(blob.get(), other.packed.get(), other.plan.packed_bytes);
    const quern_args before = x.args;
    x.args.weights = blob.get();
    EXPECT_EQ(x.run(&error), QUERN_MISMATCH) << error.text;
    EXPECT_GT(strlen(error.text), 10u);
    EXPECT_EQ(quern_packed_check(&x.plan, blob.get(), blob.bytes(), &error), QUERN_MISMATCH);
    x.args = before;
  };
  quern_problem p = everything();
  refused(prepared(conv(QUERN_NCHW, 1, 4, 12, 24), wish), "other input channels");
  refused(prepared(conv(QUERN_NCHW, 1, 8, 12, 23), wish), "other output channels");
  refused(prepared(conv(QUERN_NCHW, 1, 8, 12, 24, 1), wish), "another filter");
  refused(prepared(conv(QUERN_NHWC, 1, 8, 12, 24), wish), "another order of the weights");
  p.src.size[1] = 16, p.groups = 2;
  refused(prepared(p, wish), "other groups");
  if (another_gemm_kernel) {
    wish.kernel = another_gemm_kernel;
    refused(prepared(everything(), wish), "another kernel");
  }
  EXPECT_EQ(x.run(&error), QUERN_OK) << error.text;
}

TEST_F(Packed, DamagedWeightsAreFound) {
  prepared x(everything());
  const uint64_t bytes = x.plan.packed_bytes;
  quern_error error = {};
  ASSERT_EQ(quern_packed_check(&x.plan, x.packed.get(), bytes, &error), QUERN_OK) << error.text;
  const std::string dst = x.dst.copy();
  for (uint64_t i = 0; i < sizeof(blob_header); ++i) {
    for (const int flip : {1, 0x80}) {
      x.packed.get()[i] = static_cast<char>(x.packed.get()[i] ^ flip);
      EXPECT_EQ(quern_packed_check(&x.plan, x.packed.get(), bytes, &error), QUERN_MISMATCH) << "header byte " << i;
      // The run recomputes no checksum, but any other byte of the header must be right.
      const bool checksum = i >= offsetof(blob_header, checksum) && i < offsetof(blob_header, checksum) + 8;
      if (!checksum) {
        EXPECT_EQ(x.run(&error), QUERN_MISMATCH) << "header byte " << i;
      }
      x.packed.get()[i] = static_cast<char>(x.packed.get()[i] ^ flip);
    }
  }
  EXPECT_TRUE(x.dst.copy() == dst) << "ran with damaged weights";
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const uint64_t at = sizeof(blob_header) + random() % (bytes - sizeof(blob_header));
    const int flip = 1 << random() % 8;
    x.packed.get()[at] = static_cast<char>(x.packed.get()[at] ^ flip);
    expect(quern_packed_check(&x.plan, x.packed.get(), bytes, &error), error, QUERN_MISMATCH, "packed.checksum");
    x.packed.get()[at] = static_cast<char>(x.packed.get()[at] ^ flip);
  }
  // Two words exchanged, as a lazy checksum would not see.
  float *a = x.packed.floats() + 64, *b = a + 8;
  ASSERT_NE(*a, *b);
  std::swap(*a, *b);
  expect(quern_packed_check(&x.plan, x.packed.get(), bytes, &error), error, QUERN_MISMATCH, "packed.checksum");
  std::swap(*a, *b);
  EXPECT_EQ(quern_packed_check(&x.plan, x.packed.get(), bytes, &error), QUERN_OK);
}

TEST_F(Packed, UnsealedWeightsAreRefused) {
  prepared x(everything());
  memset(x.packed.get(), 0, x.packed.bytes());
  quern_error error = {};
  ASSERT_EQ(quern_pack_part(&x.plan, 0, 24, x.weights.get(), x.packed.get(), x.packed.bytes(), &error), QUERN_OK);
  EXPECT_EQ(x.run(&error), QUERN_MISMATCH);
  EXPECT_NE(strstr(error.text, "seal"), nullptr) << error.text;
  ASSERT_EQ(quern_pack_seal(&x.plan, x.packed.get(), x.packed.bytes(), &error), QUERN_OK) << error.text;
  EXPECT_EQ(x.run(&error), QUERN_OK) << error.text;
}

// What a plan takes it would have packed itself, whatever else the problem says that the weights were packed for.
TEST_F(Packed, WeightsOfOtherProblemsAreTakenWhereTheyAreTheSame) {
  const std::vector<std::vector<const char*>> with_the_same_weights = {
      {"nhwc ic64id6ih3iw5oc40kd3kh1kw1pd1 accuracy=f32_loose",
       "nhwc ic64id6ih3iw5oc40kd3kh1kw1pd1 src_stride=6912x1x1152x384x64 accuracy=f32_loose",
       "nhwc ic64id6ih5iw5oc40kd3kh1kw1pd1sh2 accuracy=f32_loose",
       "nhwc:nchw ic64id6ih3iw5oc40kd3kh1kw1pd1 accuracy=f32_loose"},
      {"nchw:nc16hw16 ic3ih12iw20oc34kh3ph1", "nchw:nhwc ic3ih12iw20oc34kh3ph1", "nhwc ic3ih12iw20oc34kh3ph1",
       "nhwc ic3ih12iw20oc34kh3ph1 residual=after res=nc16hw16", "nc8hw8 ic3ih15iw9oc34kh3ph2 bias act=relu"},
      {"nhwc g4ic32ih9oc32kh3ph1", "nchw g4ic32ih12oc32kh3ph1", "nc8hw8 g4ic32ih9oc32kh3ph1",
       "nchw g4ic32ih9oc32kh3sh2"},
      {"nchw g24ic24ih9oc24kh5ph2", "nhwc g24ic24ih9oc24kh5ph2", "nc4hw4 g24ic24ih9oc24kh5sh2ph2"},
      {"nchw ic20ih11oc7kh5ph2 accuracy=f32_loose", "nhwc ic20ih11oc7kh5dh1ph2 accuracy=f32_loose",
       "nc16hw16 ic20ih11oc7kh5sh2 accuracy=f32_loose"}};
  std::mt19937 random(3);
  int taken = 0, refused = 0;
  for (const auto& texts : with_the_same_weights) {
    std::vector<quern_problem> problems;
    for (const char* text : texts) {
      quern_problem p;
      quern_error error = {};
      ASSERT_EQ(quern_problem_parse(text, &p, &error), QUERN_OK) << error.text;
      ASSERT_EQ(quern_problem_complete(&p, &p, &error), QUERN_OK) << error.text;
      problems.push_back(p);
    }
    const memory weights = random_floats(uint64_t(extent(problems[0].weights)), random);
    for (const quern_problem& p : problems) {
      quern_wish wish = wish_of(3);
      for (const quern_candidate& c : candidates(p, wish)) {
        if (c.verdict > QUERN_USABLE) continue;
        wish.algorithm = c.algorithm, wish.kernel = c.kernel;
        const quern_plan plan = plan_of(p, wish);
        if (plan.packed_bytes == 0) continue;
        const memory own(plan.packed_bytes), foreign(plan.packed_bytes);
        quern_error error = {};
        ASSERT_EQ(quern_pack(&plan, weights.get(), own.get(), own.bytes(), nullptr, &error), QUERN_OK)
            << error.text << ", " << wish.algorithm << ", " << text_of(p);
        for (const quern_problem& q : problems) {
          quern_plan other;
          if (quern_plan_make(&other, nullptr, &q, &wish, nullptr) || other.packed_bytes != plan.packed_bytes) continue;
          ASSERT_EQ(quern_pack(&other, weights.get(), foreign.get(), foreign.bytes(), nullptr, &error), QUERN_OK);
          if (quern_packed_check(&plan, foreign.get(), foreign.bytes(), nullptr)) {
            ++refused;
            continue;
          }
          ++taken;
          EXPECT_TRUE(own.copy() == foreign.copy())
              << wish.algorithm << " " << wish.kernel << ", packed for " << text_of(q) << ", taken by " << text_of(p);
        }
      }
    }
  }
  EXPECT_GT(taken, refused);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace quern
