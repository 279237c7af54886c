// SPDX-License-Identifier: MIT
//
// quern_sgemm against float64: every way that matrices can lie, alpha and beta, threads, its memory.
#include <cmath>
#include <limits>

#include "allocations.h"
#include "prepared.h"

namespace quern {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct matrix {
  int64_t rows, columns, row_stride, column_stride;
  int64_t elements() const { return rows && columns ? (rows - 1) * row_stride + (columns - 1) * column_stride + 1 : 0; }
};

enum lie { row_major, column_major, rows_padded, columns_padded, both_strided, just_apart, kinds };

matrix lying(int how, int64_t rows, int64_t columns) {
  switch (how) {
    case row_major: return {rows, columns, columns, 1};
    case column_major: return {rows, columns, 1, rows};
    case rows_padded: return {rows, columns, columns + 3, 1};
    case columns_padded: return {rows, columns, 1, rows + 5};
    case both_strided: return {rows, columns, 2 * columns + 1, 2};
    default: return {rows, columns, 2 * columns - 1, 2};
  }
}

struct product {
  matrix a, b, c;
  memory a_data, b_data, c_data, expected, scale;  // scale: sum of |products| for the error model

  product(int64_t m, int64_t n, int64_t k, int how_a, int how_b, int how_c, float alpha, float beta)
      : a(lying(how_a, m, k)), b(lying(how_b, k, n)), c(lying(how_c, m, n)) {
    std::mt19937 random(static_cast<unsigned>(m * 1000 + n * 100 + k));
    a_data = random_floats(static_cast<uint64_t>(a.elements()), random);
    b_data = random_floats(static_cast<uint64_t>(b.elements()), random);
    c_data = random_floats(static_cast<uint64_t>(c.elements()), random);
    expected = memory(c_data.bytes()), scale = memory(c_data.bytes());
    memcpy(expected.get(), c_data.get(), c_data.bytes());  // what lies between the elements stays
    memset(scale.get(), 0, scale.bytes());
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = i * c.row_stride + j * c.column_stride;
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double x = static_cast<double>(a_data.floats()[i * a.row_stride + p * a.column_stride]) *
                           b_data.floats()[p * b.row_stride + j * b.column_stride];
          sum += x, magnitude += std::fabs(x);
        }
        const double old = beta == 0 ? 0 : static_cast<double>(beta) * c_data.floats()[at];
        expected.floats()[at] = static_cast<float>(alpha * sum + old);
        scale.floats()[at] =
            static_cast<float>(static_cast<double>(k + 3) * std::fabs(alpha) * magnitude + 3 * std::fabs(old) + 1e-30);
        if (beta == 0) c_data.floats()[at] = nan;
      }
  }

  quern_status run(float alpha, float beta, const quern_exec* exec, quern_error* error) const {
    return quern_sgemm(c.rows, c.columns, a.columns, alpha, a_data.floats(), a.row_stride, a.column_stride,
                       b_data.floats(), b.row_stride, b.column_stride, beta, c_data.floats(), c.row_stride,
                       c.column_stride, exec, error);
  }

  void check() const {
    for (int64_t i = 0; i < c.elements(); ++i) {
      const double limit = scale.floats()[i] * 0x1p-23;
      ASSERT_LE(std::fabs(static_cast<double>(c_data.floats()[i]) - expected.floats()[i]), limit) << "element " << i;
    }
  }
};

struct threads {
  static void run(void*, size_t count, void (*task)(void*, size_t), void* arg) {
    for (size_t i = count; i-- > 0;) task(arg, i);
  }
  static quern_exec exec(uint32_t n) {
    quern_exec e = {};
    e.size = sizeof e;
    e.threads = n, e.parallel_for = run;
    return e;
  }
};

class Sgemm : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  }
};

TEST_F(Sgemm, EveryLayout) {
  const int64_t sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {33, 1, 40}, {1, 50, 33}, {37, 65, 70}, {100, 97, 1}};
  for (const auto& s : sizes)
    for (int a = 0; a < kinds; ++a)
      for (int b = 0; b < kinds; ++b)
        for (int c = 0; c < kinds; ++c)
          for (const float beta : {0.0f, 1.0f, -0.5f}) {
            SCOPED_TRACE(testing::Message() << s[0] << "x" << s[1] << "x" << s[2] << " a " << a << " b " << b << " c "
                                            << c << " beta " << beta);
            const float alpha = beta == 0 ? 1.0f : 2.5f;
            const product p(s[0], s[1], s[2], a, b, c, alpha, beta);
            quern_error error = {};
            ASSERT_EQ(p.run(alpha, beta, nullptr, &error), QUERN_OK) << error.text;
            ASSERT_NO_FATAL_FAILURE(p.check());
          }
}

TEST_F(Sgemm, LongSums) {
  for (int c = 0; c < kinds; ++c)
    for (const int64_t k : {1023, 1024, 3000}) {
      const product p(17, 40, k, c % 2, 1 - c % 2, c, -1, 2);
      quern_error error = {};
      ASSERT_EQ(p.run(-1, 2, nullptr, &error), QUERN_OK) << error.text;
      ASSERT_NO_FATAL_FAILURE(p.check()) << "k " << k << " c " << c;
    }
}

TEST_F(Sgemm, NothingIsReadThatDoesNotCount) {
  float c[4] = {1, 2, 3, 4};
  quern_error error = {};
  // alpha 0 or k 0: neither A nor B is read; beta 0: nor is C.
  const float nans[4] = {nan, nan, nan, nan};
  ASSERT_EQ(quern_sgemm(2, 2, 2, 0, nans, 2, 1, nans, 2, 1, 2, c, 2, 1, nullptr, &error), QUERN_OK) << error.text;
  EXPECT_EQ(c[3], 8);
  ASSERT_EQ(quern_sgemm(2, 2, 0, 1, nullptr, 1, 1, nullptr, 2, 1, 0.5f, c, 2, 1, nullptr, &error), QUERN_OK);
  EXPECT_EQ(c[3], 4);
  c[0] = nan;
  ASSERT_EQ(quern_sgemm(2, 2, 2, 0, nullptr, 2, 1, nullptr, 2, 1, 0, c, 2, 1, nullptr, &error), QUERN_OK);
  for (const float x : c) EXPECT_EQ(x, 0);
  // No rows or no columns: nothing at all.
  c[0] = 5;
  EXPECT_EQ(quern_sgemm(0, 2, 2, 1, nullptr, 2, 1, nullptr, 2, 1, 0, nullptr, 2, 1, nullptr, &error), QUERN_OK);
  EXPECT_EQ(quern_sgemm(2, 0, 2, 1, nullptr, 2, 1, nullptr, 2, 1, 0, c, 2, 1, nullptr, &error), QUERN_OK);
  EXPECT_EQ(c[0], 5);
  // NaN in A counts.
  const float ones[4] = {1, 1, 1, 1};
  ASSERT_EQ(quern_sgemm(2, 2, 2, 1, nans, 2, 1, ones, 2, 1, 0, c, 2, 1, nullptr, &error), QUERN_OK) << error.text;
  EXPECT_TRUE(std::isnan(c[0]));
}

TEST_F(Sgemm, SameBitsOnAnyNumberOfThreads) {
  for (int how = 0; how < kinds; ++how) {
    std::string one;
    for (const uint32_t n : {1u, 2u, 3u, 8u}) {
      const product p(300, 200, 150, how, row_major, how, 1.5f, 0.25f);
      const quern_exec exec = threads::exec(n);
      quern_error error = {};
      ASSERT_EQ(p.run(1.5f, 0.25f, &exec, &error), QUERN_OK) << error.text;
      ASSERT_NO_FATAL_FAILURE(p.check());
      if (n == 1) one = p.c_data.copy();
      EXPECT_TRUE(p.c_data.copy() == one) << n << " threads, C " << how;
    }
  }
}

TEST_F(Sgemm, WorkspaceOfTheStatedSizeIsEnough) {
  const int64_t sizes[][3] = {{70, 130, 90}, {30, 50, 2000}, {130, 20, 600}, {1, 90, 700}, {90, 1, 700}};
  for (const auto& s : sizes)
    for (const uint32_t n : {1u, 4u})
      for (int a = 0; a < kinds; ++a)
        for (int c = 0; c < kinds; ++c)
          for (const float beta : {0.0f, 1.0f}) {
            SCOPED_TRACE(testing::Message() << s[0] << "x" << s[1] << "x" << s[2] << " threads " << n << " a " << a
                                            << " c " << c << " beta " << beta);
            const product p(s[0], s[1], s[2], a, c, c, 1, beta);
            quern_exec exec = threads::exec(n);
            const uint64_t bytes = quern_sgemm_workspace(s[0], s[1], s[2], &exec);
            ASSERT_GT(bytes, 0u);
            const memory workspace(bytes);
            exec.workspace = workspace.get(), exec.workspace_bytes = bytes;
            quern_error error = {};
            const uint64_t before = allocations();
            ASSERT_EQ(p.run(1, beta, &exec, &error), QUERN_OK) << error.text;
            EXPECT_EQ(allocations(), before) << "allocated in spite of its workspace";
            ASSERT_NO_FATAL_FAILURE(p.check());
          }
  // Too little of it: it allocates, and the result is the same.
  if (!allocations_counted) return;
  quern_exec exec = threads::exec(1);
  const uint64_t bytes = quern_sgemm_workspace(130, 260, 190, &exec);
  const memory workspace(bytes);
  exec.workspace = workspace.get();
  for (const uint64_t few : {bytes / 2, uint64_t{63}, uint64_t{0}}) {
    const product p(130, 260, 190, row_major, row_major, row_major, 1, 1);
    exec.workspace_bytes = few;
    const uint64_t before = allocations();
    ASSERT_EQ(p.run(1, 1, &exec, nullptr), QUERN_OK);
    EXPECT_GT(allocations(), before);
    ASSERT_NO_FATAL_FAILURE(p.check());
  }
}

TEST_F(Sgemm, RefusesHostileArguments) {
  float a[64], b[64], c[64];
  for (int i = 0; i < 64; ++i) a[i] = b[i] = c[i] = 1;
  const auto refused = [&](quern_status status, const char* field, auto call) {
    quern_error error = {};
    EXPECT_EQ(call(&error), status) << error.text;
    EXPECT_STREQ(error.field, field) << error.text;
    for (const float x : c) EXPECT_EQ(x, 1) << "touched";
  };
  const int64_t huge = INT64_MAX;
  const auto sgemm = [&](int64_t m, int64_t n, int64_t k, const float* x, int64_t rsa, int64_t csa, const float* y,
                         int64_t rsb, int64_t csb, float* z, int64_t rsc, int64_t csc) {
    return
        [=](quern_error* e) { return quern_sgemm(m, n, k, 2, x, rsa, csa, y, rsb, csb, 1, z, rsc, csc, nullptr, e); };
  };
  refused(QUERN_INVALID, "m", sgemm(-1, 4, 4, a, 4, 1, b, 4, 1, c, 4, 1));
  refused(QUERN_INVALID, "n", sgemm(4, huge, 4, a, 4, 1, b, 4, 1, c, 4, 1));
  refused(QUERN_INVALID, "k", sgemm(4, 4, INT64_MIN, a, 4, 1, b, 4, 1, c, 4, 1));
  refused(QUERN_INVALID, "rsa", sgemm(4, 4, 4, a, 0, 1, b, 4, 1, c, 4, 1));
  refused(QUERN_INVALID, "csa", sgemm(4, 4, 4, a, 4, -1, b, 4, 1, c, 4, 1));
  refused(QUERN_INVALID, "rsb", sgemm(4, 4, 4, a, 4, 1, b, huge, 1, c, 4, 1));
  refused(QUERN_INVALID, "csb", sgemm(4, 4, 4, a, 4, 1, b, 4, 0, c, 4, 1));
  refused(QUERN_INVALID, "rsc", sgemm(4, 4, 4, a, 4, 1, b, 4, 1, c, -4, 1));
  refused(QUERN_INVALID, "csc", sgemm(4, 4, 4, a, 4, 1, b, 4, 1, c, 4, huge));
  refused(QUERN_BUFFER, "a", sgemm(4, 4, 4, nullptr, 4, 1, b, 4, 1, c, 4, 1));
  refused(QUERN_BUFFER, "b", sgemm(4, 4, 4, a, 4, 1, nullptr, 4, 1, c, 4, 1));
  refused(QUERN_BUFFER, "c", sgemm(4, 4, 4, a, 4, 1, b, 4, 1, nullptr, 4, 1));
  refused(QUERN_BUFFER, "a", sgemm(4, 4, 4, c + 15, 4, 1, b, 4, 1, c, 4, 1));
  refused(QUERN_BUFFER, "b", sgemm(4, 4, 4, a, 4, 1, c, 4, 1, c + 15, 4, 1));
  const auto askew = [](float* p) { return reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(p) + 1); };
  refused(QUERN_BUFFER, "a", sgemm(4, 4, 4, askew(a), 4, 1, b, 4, 1, c, 4, 1));
  refused(QUERN_BUFFER, "b", sgemm(4, 4, 4, a, 4, 1, askew(b), 4, 1, c, 4, 1));
  refused(QUERN_BUFFER, "c", sgemm(4, 4, 4, a, 4, 1, b, 4, 1, askew(c), 4, 1));
  for (const float odd : {nan, -nan}) {
    refused(QUERN_INVALID, "alpha",
            [&](quern_error* e) { return quern_sgemm(4, 4, 4, odd, a, 4, 1, b, 4, 1, 1, c, 4, 1, nullptr, e); });
    // Whether A and B are read or not.
    for (const float alpha : {0.0f, 1.0f})
      refused(QUERN_INVALID, "beta",
              [&](quern_error* e) { return quern_sgemm(4, 4, 4, alpha, a, 4, 1, b, 4, 1, odd, c, 4, 1, nullptr, e); });
  }
  quern_error far = {};
  EXPECT_EQ(sgemm(4, 4, 4, a, 4, 1, b, huge, 1, c, 4, 1)(&far), QUERN_INVALID);
  EXPECT_EQ(far.value, huge);
  EXPECT_EQ(far.limit, INT64_C(1) << 51) << far.text;
  // Elements of C that would overlap.
  refused(QUERN_INVALID, "rsc", sgemm(4, 4, 4, a, 4, 1, b, 4, 1, c, 3, 1));
  refused(QUERN_INVALID, "csc", sgemm(4, 4, 4, a, 4, 1, b, 4, 1, c, 1, 3));
  refused(QUERN_INVALID, "rsc", sgemm(4, 4, 0, a, 4, 1, b, 4, 1, c, 3, 1));
  refused(QUERN_INVALID, "rsc", sgemm(4, 4, 4, a, 4, 1, b, 4, 1, c, 6, 2));
  quern_exec exec = {};
  refused(QUERN_INVALID, "exec.size",
          [&](quern_error* e) { return quern_sgemm(4, 4, 4, 1, a, 4, 1, b, 4, 1, 0, c, 4, 1, &exec, e); });
  // A workspace that is askew, as by quern_run; and one that lies in an operand, before anything is packed into it.
  const memory shared(1 << 20);
  const std::string before = shared.copy();
  exec.size = sizeof exec, exec.workspace = shared.get() + 4, exec.workspace_bytes = shared.bytes() - 4;
  refused(QUERN_BUFFER, "exec.workspace", [&](quern_error* e) {
    const quern_status s = quern_sgemm(4, 4, 4, 1, a, 4, 1, b, 4, 1, 0, c, 4, 1, &exec, e);
    EXPECT_EQ(e->value, 4);
    EXPECT_EQ(e->limit, QUERN_ALIGN);
    return s;
  });
  exec.workspace = shared.get();
  float* const inside = shared.floats() + 4096;
  // Whose end is beyond all addresses, too.
  for (const uint64_t bytes : {uint64_t(shared.bytes()), UINT64_MAX}) {
    exec.workspace_bytes = bytes;
    refused(QUERN_BUFFER, "exec.workspace",
            [&](quern_error* e) { return quern_sgemm(4, 4, 4, 1, inside, 4, 1, b, 4, 1, 0, c, 4, 1, &exec, e); });
    refused(QUERN_BUFFER, "exec.workspace",
            [&](quern_error* e) { return quern_sgemm(4, 4, 4, 1, a, 4, 1, inside, 4, 1, 0, c, 4, 1, &exec, e); });
    refused(QUERN_BUFFER, "exec.workspace",
            [&](quern_error* e) { return quern_sgemm(4, 4, 4, 1, a, 4, 1, b, 4, 1, 0, inside, 4, 1, &exec, e); });
  }
  EXPECT_TRUE(shared.copy() == before);
  EXPECT_EQ(quern_sgemm_workspace(-1, 4, 4, nullptr), 0u);
  EXPECT_EQ(quern_sgemm_workspace(4, huge, 4, nullptr), 0u);
  // Neighbours that do not overlap.
  quern_error error = {};
  EXPECT_EQ(quern_sgemm(4, 4, 4, 1, a, 4, 1, b, 4, 1, 0, c + 16, 4, 1, nullptr, &error), QUERN_OK) << error.text;
  EXPECT_EQ(c[15], 1);
  EXPECT_EQ(c[16], 4);
  EXPECT_EQ(c[32], 1);
}

}  // namespace
}  // namespace quern
