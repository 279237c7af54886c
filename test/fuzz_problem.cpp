// SPDX-License-Identifier: MIT
//
// quern_problem_complete, print and parse on hostile structs and hostile lines.  Whatever is accepted must
// complete to itself and survive the way through text.  The first byte says how to read the others:
// a line, the bytes of a struct of any version, or changes to the fields of a valid problem.
#include <quern/quern.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "problem.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

std::string print(const quern_problem& p) {
  char line[2048];
  size_t length = 0;
  require(quern_problem_print(&p, line, sizeof line, &length, nullptr) == QUERN_OK, "a complete problem prints");
  require(length == std::strlen(line), "length");
  return line;
}

void check_error(quern_status status, const quern_error& error) {
  require(status == error.status, "the error has the status");
  require(error.text[0] != 0 && std::memchr(error.text, 0, sizeof error.text), "the error has a sentence");
  require(std::memchr(error.field, 0, sizeof error.field), "the field's name ends");
}

// `p` is complete.
void check(const quern_problem& p) {
  quern_problem again = {};
  require(quern_problem_complete(&p, &again, nullptr) == QUERN_OK, "a complete problem is valid");
  require(std::memcmp(&p, &again, sizeof p) == 0, "completing twice changes nothing");
  for (const quern_tensor* t : {&p.src, &p.weights, &p.dst}) {
    require(quern::extent(*t) <= int64_t{1} << 56, "a tensor stays within its limit");
  }
  require(quern::direct_flops(p) <= std::ldexp(1.0, 63), "the work stays within its limit");
  require(quern::sum_length(p) >= 0, "sums have a length");

  quern_problem parsed = {};
  require(quern_problem_parse(print(p).c_str(), &parsed, nullptr) == QUERN_OK, "what was printed parses");
  require(quern_problem_complete(&parsed, &parsed, nullptr) == QUERN_OK, "what was parsed is valid");
  require(std::memcmp(&p, &parsed, sizeof p) == 0, "the way through text changes nothing");
}

void fuzz_line(const std::string& text) {
  quern_problem p = {};
  quern_error error = {};
  const quern_status status = quern_problem_parse(text.c_str(), &p, &error);
  if (status != QUERN_OK) {
    check_error(status, error);
    require(error.value >= 1 && error.value <= static_cast<int64_t>(text.size()) + 1, "the column is on the line");
    return;
  }
  require(quern_problem_complete(&p, &p, nullptr) == QUERN_OK, "what was parsed is valid");
  check(p);
}

// A struct in memory that ends where its size says.
void fuzz_struct(const uint8_t* data, size_t bytes) {
  if (bytes < sizeof(uint32_t)) return;
  auto* given = static_cast<quern_problem*>(std::aligned_alloc(8, (bytes + 7) / 8 * 8));
  std::memcpy(static_cast<void*>(given), data, bytes);
  given->size = static_cast<uint32_t>(bytes);
  quern_error error = {};
  const quern_status status = quern_problem_complete(given, given, &error);
  if (status != QUERN_OK) {
    check_error(status, error);
  } else {
    quern_problem p = {};
    require(quern::complete(given, p, nullptr) == QUERN_OK, "a complete problem of any version is valid");
    check(p);
  }
  std::free(given);
}

void fuzz_fields(const uint8_t* data, size_t bytes) {
  if (bytes < 1) return;
  quern_problem p = {};
  switch (data[0] % 8) {
    case 5: p = quern_pool2d(QUERN_POOL_AVG, QUERN_F32, QUERN_NHWC, 2, 4, 9, 7, 3, 2); break;
    case 6: p = quern_over_axes(QUERN_NORM, QUERN_F16, QUERN_NC8HW8, 2, 9, 3, 5, QUERN_AXIS_C | QUERN_AXIS_W); break;
    case 7: p = quern_elementwise(QUERN_ADD, QUERN_F32, QUERN_NC4HW4, 2, 9, 3, 5); break;
    case 4: p = quern_reorder(QUERN_F32, QUERN_NHWC, QUERN_NC4HW4, 2, 9, 3, 5); break;
    case 0: p = quern_conv2d(QUERN_F32, QUERN_NHWC, 2, 4, 9, 7, 6, 3, 2); break;
    case 1:
      p = quern_conv2d(QUERN_F32, QUERN_NC8HW8, 2, 19, 5, 4, 33, 2, 2);
      p.dst.layout = QUERN_NC16HW16;
      break;
    case 2: p = quern_conv2d_transposed(QUERN_F64, QUERN_NCHW, 1, 4, 5, 6, 2, 4, 3); break;
    default: p = quern_gemm(QUERN_F32, 5, 6, 7);
  }
  if (data[0] & 8) p.epilogue.residual = QUERN_RESIDUAL_BEFORE;
  if (data[0] & 16) quern_problem_complete(&p, &p, nullptr);
  // Pairs of a field (in words of four bytes) and its value: one byte, or with the length bit four.
  for (size_t i = 1; i + 2 <= bytes;) {
    const size_t at = 4 + data[i] % ((sizeof p - 4) / 4) * 4;
    const bool wide = data[i] == 255 || (data[i + 1] & 0x80);
    uint32_t value = data[i + 1];
    i += 2;
    if (wide) {
      if (i + 4 > bytes) break;
      std::memcpy(&value, data + i, 4);
      i += 4;
    }
    std::memcpy(reinterpret_cast<char*>(&p) + at, &value, sizeof value);
  }
  quern_error error = {};
  const quern_status status = quern_problem_complete(&p, &p, &error);
  if (status != QUERN_OK) return check_error(status, error);
  check(p);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  switch (data[0] % 4) {
    case 0: fuzz_struct(data + 1, bytes - 1); break;
    case 1: fuzz_fields(data + 1, bytes - 1); break;
    default: fuzz_line(std::string(reinterpret_cast<const char*>(data + 1), bytes - 1).c_str());
  }
  return 0;
}
