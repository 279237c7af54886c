// SPDX-License-Identifier: MIT
//
// Packed weights as bytes: the same from any number of threads and in any parts, good for other plans, in
// files and in other processes; the header byte by byte.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "blob.h"
#include "fuzz.h"
#include "prepared.h"
#include "registry.h"

namespace quern {
namespace {

struct threads {
  static void run(void*, size_t count, void (*task)(void*, size_t), void* arg) {
    std::vector<std::thread> list;
    for (size_t i = 0; i < count; ++i) list.emplace_back(task, arg, i);
    for (std::thread& t : list) t.join();
  }
  static quern_exec exec(uint32_t n) {
    quern_exec e = {};
    e.size = sizeof e;
    e.threads = n, e.parallel_for = run;
    return e;
  }
};

std::vector<quern_problem> problems() {
  std::vector<quern_problem> list;
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    list.push_back(conv(layout, 1, 19, 9, 77));
    quern_problem p = conv(layout, 1, 24, 9, 36);
    p.groups = 3, p.weights.size[1] = 8;
    list.push_back(p);
    p = conv(layout, 1, 40, 9, 40);
    p.groups = 40, p.weights.size[1] = 1;
    list.push_back(p);
    p = quern_conv2d_transposed(QUERN_F32, layout, 1, 12, 7, 7, 10, 5, 4);
    p.groups = 2, p.window.stride[1] = 3, p.window.stride[2] = 2;
    list.push_back(p);
    p.weights.layout = QUERN_NHWC;
    list.push_back(p);
  }
  list.push_back(quern_gemm(QUERN_F32, 10, 100, 256));
  return list;
}

// Calls visit(plan) for every usable candidate that packs.
template <class Visit>
void for_each_plan(const quern_problem& p, Visit visit) {
  quern_candidate all[64] = {};
  all[0].size = sizeof all[0];
  size_t count = 0;
  ASSERT_EQ(quern_candidates(nullptr, &p, nullptr, all, 64, &count, nullptr), QUERN_OK);
  int plans = 0;
  for (size_t i = 0; i < std::min<size_t>(count, 64); ++i) {
    if (all[i].verdict > QUERN_USABLE) continue;
    quern_wish wish = wish_of();
    wish.algorithm = all[i].algorithm, wish.kernel = all[i].kernel;
    const quern_plan plan = plan_of(p, wish);
    SCOPED_TRACE(text_of(p) + " with " + plan.algorithm + " " + plan.kernel);
    visit(plan);
    ++plans;
  }
  EXPECT_GT(plans, 0);
}

class Blob : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  }
};

TEST_F(Blob, TheSameFromAnyThreadsAndInAnyParts) {
  for (const quern_problem& p : problems())
    for_each_plan(p, [](const quern_plan& plan) {
      const quern_tensor& w = plan.problem.weights;
      std::mt19937 random(3);
      const memory weights = random_floats(static_cast<uint64_t>(extent(w)), random);
      quern_error error = {};
      memory one(plan.packed_bytes);
      ASSERT_EQ(quern_pack(&plan, weights.get(), one.get(), one.bytes(), nullptr, &error), QUERN_OK) << error.text;
      for (const uint32_t n : {2u, 7u}) {
        const memory many(plan.packed_bytes);
        memset(many.get(), 0x77, many.bytes());  // other garbage than in `one`: every byte must be written
        const quern_exec exec = threads::exec(n);
        ASSERT_EQ(quern_pack(&plan, weights.get(), many.get(), many.bytes(), &exec, &error), QUERN_OK) << error.text;
        EXPECT_TRUE(one.copy() == many.copy()) << n << " threads";
      }

      // Channel by channel or in runs, in a random order.
      const bool gemm = plan.problem.op == QUERN_GEMM, transposed = plan.problem.op == QUERN_CONV_TRANSPOSED;
      const int64_t channels = gemm ? plan.problem.dst.size[4] : plan.problem.dst.size[1];
      const int64_t group = channels / plan.problem.groups;
      std::vector<int64_t> cuts = {0};
      while (cuts.back() < channels) cuts.push_back(std::min(channels, cuts.back() + 1 + int64_t(random() % 9)));
      std::vector<size_t> order(cuts.size() - 1);
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      const memory parts(plan.packed_bytes);
      memset(parts.get(), 0x33, parts.bytes());
      for (const size_t i : order) {
        const int64_t first = cuts[i], at = gemm ? first * w.stride[4]
                                            : transposed
                                                ? first / group * (w.size[0] / plan.problem.groups) * w.stride[0] +
                                                      first % group * w.stride[1]
                                                : first * w.stride[0];
        ASSERT_EQ(quern_pack_part(&plan, first, cuts[i + 1] - first, weights.floats() + at, parts.get(), parts.bytes(),
                                  &error),
                  QUERN_OK)
            << error.text;
      }
      ASSERT_EQ(quern_pack_seal(&plan, parts.get(), parts.bytes(), &error), QUERN_OK) << error.text;
      EXPECT_TRUE(one.copy() == parts.copy()) << "in parts";
      EXPECT_EQ(quern_packed_check(&plan, parts.get(), parts.bytes(), &error), QUERN_OK) << error.text;
    });
}

// Little-endian, at the offsets that blob.h states.
template <class T>
T at(const memory& m, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(static_cast<unsigned char>(m.get()[offset + i])) << 8 * i);
  return value;
}

TEST_F(Blob, HeaderIsAsDocumented) {
  quern_problem p = conv(QUERN_NHWC, 1, 24, 9, 36);
  p.groups = 3, p.weights.size[1] = 8;
  quern_wish wish = wish_of();
  wish.algorithm = "conv_im2col", wish.kernel = a_gemm_kernel;
  const prepared x(p, wish);
  const memory& b = x.packed;
  EXPECT_EQ(std::string(b.get(), 8), "QUERNPK\n");
  EXPECT_EQ(at<uint32_t>(b, 8), 1u) << "revision";
  EXPECT_EQ(at<uint32_t>(b, 12), 256u) << "header_bytes";
  EXPECT_EQ(at<uint64_t>(b, 16), x.plan.packed_bytes) << "total_bytes";
  EXPECT_NE(at<uint64_t>(b, 24), 0u) << "checksum";
  EXPECT_NE(at<uint64_t>(b, 32), 0u) << "fingerprint";
  EXPECT_STREQ(b.get() + 40, "conv_im2col");
  EXPECT_STREQ(b.get() + 72, a_gemm_kernel);
  EXPECT_EQ(at<uint32_t>(b, 120), uint32_t{QUERN_CONV});
  EXPECT_EQ(at<uint32_t>(b, 124), uint32_t{QUERN_F32});
  const uint64_t sizes[] = {36, 8, 1, 3, 3};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(at<uint64_t>(b, 128 + 8 * i), sizes[i]) << "weights_size " << i;
  EXPECT_EQ(at<uint64_t>(b, 168), 3u) << "groups";
  EXPECT_EQ(at<uint64_t>(b, 176), lowest_isa) << "isa";
  for (size_t i = 188; i < 256; ++i) EXPECT_EQ(b.get()[i], 0) << "reserved byte " << i;
  EXPECT_EQ(x.plan.packed_bytes % sizeof(float), 0u);
}

// The file of a blob, mapped read only.
class mapped {
 public:
  explicit mapped(const memory& blob) : bytes_(blob.bytes()) {
    char path[] = "/tmp/quern_blob_XXXXXX";
    const int file = mkstemp(path);
    unlink(path);
    EXPECT_EQ(write(file, blob.get(), bytes_), static_cast<ssize_t>(bytes_));
    data_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, 0);
    EXPECT_NE(data_, MAP_FAILED);
    close(file);
  }
  ~mapped() { munmap(data_, bytes_); }
  mapped(const mapped&) = delete;
  mapped& operator=(const mapped&) = delete;
  const void* get() const { return data_; }

 private:
  void* data_;
  uint64_t bytes_;
};

TEST_F(Blob, MappedFileServesOtherPlansAndProcesses) {
  for (const quern_problem& p : problems())
    for_each_plan(p, [&](const quern_plan& plan) {
      quern_wish wish = wish_of();
      wish.algorithm = plan.algorithm, wish.kernel = plan.kernel;
      const prepared x(p, wish);
      const mapped file(x.packed);

      // Another batch and, but for the transposed one, whose phases begin where dst does, another image.
      quern_problem q = p;
      q.src.size[0] = 3;
      if (q.op == QUERN_GEMM) {
        q.src.size[3] = 33;
      } else {
        q.src.size[3] += 6, q.src.size[4] += 3;
      }
      prepared y(q, wish);
      memcpy(y.weights.get(), x.weights.get(), x.weights.bytes());
      quern_error error = {};
      ASSERT_EQ(quern_pack(&y.plan, y.weights.get(), y.packed.get(), y.packed.bytes(), nullptr, &error), QUERN_OK);
      ASSERT_EQ(y.run(&error), QUERN_OK) << error.text;
      const std::string expected = y.dst.copy();
      memset(y.dst.get(), 0xff, y.dst.bytes());
      EXPECT_EQ(quern_packed_check(&y.plan, file.get(), x.packed.bytes(), &error), QUERN_OK) << error.text;
      y.args.weights = file.get();
      ASSERT_EQ(y.run(&error), QUERN_OK) << error.text;
      EXPECT_TRUE(y.dst.copy() == expected);

      // Another process, which makes a plan of its own.
      const pid_t child = fork();
      if (child == 0) {
        quern_plan own;
        memset(y.dst.get(), 0, y.dst.bytes());
        const bool good = quern_plan_make(&own, nullptr, &q, &wish, nullptr) == QUERN_OK &&
                          quern_run(&own, &y.args, &y.exec, nullptr) == QUERN_OK &&
                          memcmp(y.dst.get(), expected.data(), expected.size()) == 0;
        _exit(good ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0) << "the child's result differs";
    });
}

// The same weights, for another image, window and layout.
quern_problem with_weights_of(const quern_problem& p, test::dice& d) {
  for (;;) {
    quern_problem q = p;
    q.src.size[0] = d.from(1, 2);
    for (int i = 1; i < 3; ++i) {
      q.src.size[2 + i] = d.from(1, 14);
      q.window.stride[i] = d.one_in(2) ? 1 : d.from(2, 3), q.window.dilation[i] = d.one_in(3) ? d.from(2, 3) : 1;
      const int64_t reach = (q.window.filter[i] - 1) * q.window.dilation[i];
      q.window.pad_begin[i] = d.from(0, reach), q.window.pad_end[i] = d.from(0, reach);
    }
    q.src.layout = d.of(test::all_layouts), q.dst.layout = d.one_in(3) ? d.of(test::all_layouts) : q.src.layout;
    if (quern_problem_complete(&q, &q, nullptr) == QUERN_OK && !empty(q) && direct_flops(q) < 1e6) return q;
  }
}

// Of two problems with the same weights one's plan refuses the other's blob, or gives with it what it gives with its
// own.
TEST_F(Blob, AnyPlanThatTakesItIsServed) {
  test::dice d(1);
  int served = 0;
  for (int i = 0; i < (test::emulated ? 500 : 2000); ++i) {
    test::shape s = {.op = d.one_in(4) ? QUERN_CONV_TRANSPOSED : QUERN_CONV};
    if (d.one_in(2))
      s.groups = d.from(1, 9), s.k = d.one_in(4) ? 2 : 1;
    else
      s.groups = d.one_in(3) ? d.from(2, 4) : 1, s.c = d.from(1, 20), s.k = d.one_in(2) ? s.c : d.from(1, 40);
    for (int axis = 1; axis < 3; ++axis) s.filter[axis] = d.one_in(2) ? 3 : d.from(1, 6);
    quern_problem weights = test::problem_of(s, QUERN_NCHW, QUERN_NCHW);
    weights.accuracy = QUERN_ACCURACY_F32_LOOSE;
    const quern_problem p = with_weights_of(weights, d), q = with_weights_of(weights, d);
    for (const quern_candidate& c : test::usable_candidates(p)) {
      quern_wish wish = wish_of();
      wish.algorithm = c.algorithm, wish.kernel = c.kernel;
      quern_plan plan;
      if (c.packed_bytes == 0 || quern_plan_make(&plan, nullptr, &q, &wish, nullptr) != QUERN_OK) continue;
      prepared y(q, wish);
      const quern_plan other = plan_of(p, wish);
      const memory blob(std::max(other.packed_bytes, plan.packed_bytes));
      quern_error error = {};
      ASSERT_EQ(quern_pack(&other, y.weights.get(), blob.get(), blob.bytes(), nullptr, &error), QUERN_OK) << error.text;
      if (quern_packed_check(&plan, blob.get(), blob.bytes(), &error) != QUERN_OK) continue;
      ++served;
      ASSERT_EQ(y.run(&error), QUERN_OK) << error.text;
      const std::string expected = y.dst.copy();
      memset(y.dst.get(), 0xff, y.dst.bytes());
      y.args.weights = blob.get();
      ASSERT_EQ(y.run(&error), QUERN_OK) << error.text;
      ASSERT_TRUE(y.dst.copy() == expected)
          << c.algorithm << " " << c.kernel << "\npacked for " << text_of(p) << "\ntaken by " << text_of(q);
    }
  }
  EXPECT_GT(served, 500);
}

// A transposed convolution's order follows its stride and padding: a blob of another window is refused.
TEST_F(Blob, WindowOfTheTransposedOperatorCounts) {
  quern_problem p = quern_conv2d_transposed(QUERN_F32, QUERN_NHWC, 1, 8, 9, 9, 16, 4, 4);
  p.window.stride[1] = p.window.stride[2] = 2;
  const prepared x(p);
  quern_wish wish = wish_of();
  wish.algorithm = x.plan.algorithm, wish.kernel = x.plan.kernel;
  quern_error error = {};
  const auto check = [&](const quern_problem& q) {
    const quern_plan plan = plan_of(q, wish);
    if (plan.packed_bytes > x.packed.bytes()) return quern_status{QUERN_MISMATCH};
    return quern_packed_check(&plan, x.packed.get(), x.packed.bytes(), &error);
  };
  EXPECT_EQ(check(p), QUERN_OK);
  quern_problem q = p;
  q.window.stride[1] = 1;
  EXPECT_EQ(check(q), QUERN_MISMATCH) << "stride";
  q = p, q.window.pad_begin[2] = q.window.pad_end[2] = 1;
  EXPECT_EQ(check(q), QUERN_MISMATCH) << "padding";
  q = p, q.window.dilation[1] = 2;
  EXPECT_EQ(check(q), QUERN_MISMATCH) << "dilation";
  // Padding by a multiple of the stride leaves the phases as they are.
  q = p, q.window.pad_begin[1] = 2;
  EXPECT_EQ(check(q), QUERN_OK) << error.text;
}

}  // namespace
}  // namespace quern
