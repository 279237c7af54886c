// SPDX-License-Identifier: MIT
//
// Packed weights that are missing, short, foreign, unsealed or damaged.
#include <algorithm>

#include "blob.h"
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

}  // namespace
}  // namespace quern
