// SPDX-License-Identifier: MIT
//
// Tables of tuning results: written, found, checked, merged.
#include "tuning.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "error.h"
#include "hash.h"
#include "problem.h"
#include "registry.h"

namespace quern {
namespace {

// Raised when drivers or kernels become faster or slower than what was measured says.
constexpr unsigned revision = 4;

constexpr size_t key_digits = 16, row_prefix = 2 * (key_digits + 1);
constexpr uint64_t longest_ns = 3'600'000'000'000;  // an hour

struct text {
  char* out;
  size_t capacity, length = 0;
  bool fits = true;

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(out + length, capacity - length, format, list);
    va_end(list);
    fits = fits && n >= 0 && static_cast<size_t>(n) < capacity - length;
    if (fits) length += static_cast<size_t>(n);
  }
};

// The names of all pairs that could be measured: with another set, other candidates would have been.  Kept from query
// to query; 0: not known yet.
uint64_t build_of(quern_op op, bool gpu) {
  static std::atomic<uint64_t> kept[op_set::most][2];
  if (const uint64_t known = kept[op][gpu].load(std::memory_order_relaxed)) return known;
  uint64_t all = revision;
  for_each_pair(gpu, op, [&](const algorithm& a, const kernel& row, quern_backend) {
    if (a.on_request) return;
    for (const char* name : {a.name, row.name}) all = hash(name, strlen(name), all);
  });
  kept[op][gpu].store(all, std::memory_order_relaxed);
  return all;
}

uint64_t demands_of(const quern_wish& w) {
  const uint64_t number[] = {w.workspace_limit, static_cast<uint64_t>(w.repeat)};
  uint64_t all = hash(number, sizeof number, 0);
  for (const char* words : {w.algorithm, w.kernel, w.deny, w.allow})
    all = words ? hash(words, strlen(words) + 1, all) : all * 31 + 1;
  return all;
}

// A cursor over one line, without its newline; every reader says whether it found what it wants.
struct reader {
  const char *at, *end;

  bool word(const char* w) {
    const size_t n = strlen(w);
    if (static_cast<size_t>(end - at) < n || memcmp(at, w, n) != 0) return false;
    at += n;
    return true;
  }
  template <class Integer>
  bool number(Integer& out, int64_t least, int64_t most) {
    const bool negative = at < end && *at == '-';
    int64_t value = 0;
    const char* p = at + negative;
    const char* const first = p;
    for (; p < end && *p >= '0' && *p <= '9' && p - first < 18; ++p) value = value * 10 + (*p - '0');
    if (negative) value = -value;
    if (p == first || value < least || value > most) return false;
    out = static_cast<Integer>(value), at = p;
    return true;
  }
  bool hex(uint64_t& out) {
    if (static_cast<size_t>(end - at) < key_digits) return false;
    out = 0;
    for (size_t i = 0; i < key_digits; ++i, ++at) {
      const char c = *at;
      if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
      out = out << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
  }
  bool name(const char*& out, uint32_t& length) {
    out = at;
    while (at < end && *at != ' ' && *at != '|') ++at;
    length = static_cast<uint32_t>(at - out);
    return length > 0 && length < 100;
  }
};

// Behind the second '|': "level=2 ms=0 | ALGORITHM KERNEL ...".
bool read_results(reader r, tuned_row& out) {
  out.count = 0;
  if (!r.word("level=") || !r.number(out.level, QUERN_TUNE_FAST, QUERN_TUNE_HEAVY) || !r.word(" ms=") ||
      !r.number(out.ms, 0, UINT32_MAX))
    return false;
  while (r.at < r.end) {
    if (out.count == most_tuned) return false;
    tuned_candidate& c = out.candidate[out.count++];
    if (!r.word(" | ") || !r.name(c.algorithm, c.algorithm_length) || !r.word(" ") ||
        !r.name(c.kernel, c.kernel_length) || !r.word(" ") || !r.number(c.median_ns, 1, longest_ns) || !r.word(" ") ||
        !r.number(c.min_ns, 1, longest_ns) || !r.word(" ") || !r.number(c.samples, 1, INT32_MAX) || !r.word(" ") ||
        !r.number(c.as.l1, -most_shift, most_shift) || !r.word(" ") || !r.number(c.as.l2, -most_shift, most_shift) ||
        !r.word(" ") || !r.number(c.as.threads, 1, UINT32_MAX))
      return false;
    if (c.min_ns > c.median_ns) return false;
  }
  return out.count > 0;
}

// One line of a table, without its newline.
struct line {
  const char* begin;
  size_t length;
};

enum class fault { none, digits, checksum, parts, key, figures, problem, machine, impossible };

const char* sentence_of(fault f) {
  switch (f) {
    case fault::none: return "is whole";
    case fault::digits: return "does not begin with a key and a checksum";
    case fault::checksum: return "is damaged or cut short: its checksum does not fit";
    case fault::parts: return "lacks its parts: problem, machine, level, candidates";
    case fault::key: return "has a key that is not its problem's and machine's";
    case fault::figures: return "has figures that are none, or a least time above the median";
    case fault::problem: return "is for something that is no problem";
    case fault::machine: return "is for something that is no machine";
    case fault::impossible: return "has a time that no such machine can reach";
  }
  return "";
}

// A row whose digits and checksum are right; `key_length` is that of "PROBLEM | MACHINE" at begin + row_prefix.
fault read_row(line l, uint64_t& key, size_t& key_length, tuned_row& out) {
  reader r = {l.begin, l.begin + l.length};
  uint64_t sum = 0;
  if (!r.hex(key) || !r.word(" ") || !r.hex(sum) || !r.word(" ")) return fault::digits;
  if (hash(r.at, static_cast<uint64_t>(r.end - r.at), key) != sum) return fault::checksum;
  const char* const first = r.at;
  const char* bar = first;
  for (int bars = 0; bar < r.end; ++bar)
    if (r.end - bar > 3 && memcmp(bar, " | ", 3) == 0 && ++bars == 2) break;
  if (bar >= r.end) return fault::parts;
  key_length = static_cast<size_t>(bar - first);
  r.at = bar + 3;
  return read_results(r, out) ? fault::none : fault::figures;
}

// The part of the machine that says how fast it can be at most, from "x86 avx2 avx512 model=... threads=N", or
// "gpu=90 multiprocessors=N mhz=N ... ".
bool read_machine(reader r, machine& m, uint32_t& threads) {
  m = {};
  threads = 0;
  const struct {
    const char* word;
    uint32_t& value;
  } numbers[] = {{"threads=", threads},
                 {"gpu=", m.gpu.capability},
                 {"multiprocessors=", m.gpu.multiprocessors},
                 {"mhz=", m.gpu.clock_mhz}};
  while (r.at < r.end) {
    const char* name = nullptr;
    uint32_t length = 0;
    reader w = r;
    if (!r.name(name, length)) return false;
    for (const auto& n : numbers)
      if (w.word(n.word) && !w.number(n.value, 1, UINT32_MAX)) return false;
    for (int bit = 0; bit < 64; ++bit)
      if (const char* isa = quern_isa_name(uint64_t{1} << bit);
          isa && strlen(isa) == length && memcmp(isa, name, length) == 0)
        m.isa |= uint64_t{1} << bit;
    if (!r.word(" ")) break;
  }
  return is_gpu(m) ? m.gpu.multiprocessors > 0 && m.gpu.clock_mhz > 0 : threads > 0;
}

// What a checksum cannot tell: whether such times can be.
fault check_row(line l, uint64_t key, size_t key_length, const tuned_row& row) {
  const char* const text = l.begin + row_prefix;
  if (hash(text, key_length, 0) != key) return fault::key;
  const char* const bar = static_cast<const char*>(memmem(text, key_length, " | ", 3));
  char words[most_key];
  if (!bar || static_cast<size_t>(bar - text) >= sizeof words) return fault::parts;
  const size_t n = static_cast<size_t>(bar - text);
  memcpy(words, text, n), words[n] = 0;
  quern_problem p;
  if (quern_problem_parse(words, &p, nullptr) != QUERN_OK || quern_problem_complete(&p, &p, nullptr) != QUERN_OK)
    return fault::problem;
  machine m;
  uint32_t threads;
  if (!read_machine({bar + 3, text + key_length}, m, threads)) return fault::machine;
  for (int i = 0; i < row.count; ++i)
    if (double(row.candidate[i].min_ns) < least_ns(p, m, threads)) return fault::impossible;
  return fault::none;
}

// The lines of a table, in turn; without its first line, a prefix of which may be all there is.
struct lines {
  const char *at, *end;

  lines(const void* table, size_t bytes) : at(static_cast<const char*>(table)), end(at + bytes) {
    at += std::min(bytes, tuning_header_bytes);
  }
  // False at the end.  A last line without newline is one that was cut short.
  bool next(line& out) {
    if (at == end) return false;
    const char* const newline = static_cast<const char*>(memchr(at, '\n', static_cast<size_t>(end - at)));
    const char* const stop = newline ? newline : end;
    out = {at, static_cast<size_t>(stop - at)};
    at = newline ? newline + 1 : end;
    return true;
  }
};

bool is_comment(line l) { return l.length == 0 || l.begin[0] == '#'; }

// Whether the bytes are a table of this version, or the beginning of one.
quern_status check_header(const void* table, size_t bytes, const char* name, quern_error* error) {
  if (bytes && !table) return fail(error, QUERN_INVALID, name, 0, 0, "%s is NULL while its length is %zu", name, bytes);
  if (bytes == 0 || memcmp(table, tuning_header, std::min(bytes, tuning_header_bytes)) == 0) return QUERN_OK;
  constexpr size_t word = sizeof "# quern tuning " - 1;
  if (bytes > word && memcmp(table, tuning_header, word) == 0)
    return fail(error, QUERN_MISMATCH, name, 1, 1, "line 1 of %s is of another version of tuning tables than 1", name);
  return fail(error, QUERN_MISMATCH, name, 1, 1, "line 1 of %s is not '# quern tuning 1': it is no tuning table", name);
}

// Rows that are whole and possible, in the order of their keys.
struct good_rows {
  lines rest;
  line row = {};
  uint64_t key = 0;
  size_t key_length = 0;
  int32_t level = 0;
  bool found = false;

  good_rows(const void* table, size_t bytes) : rest(table, bytes) { step(); }
  void step() {
    tuned_row read;
    for (found = false; !found && rest.next(row);)
      found = !is_comment(row) && read_row(row, key, key_length, read) == fault::none &&
              check_row(row, key, key_length, read) == fault::none;
    level = found ? read.level : 0;
  }
};

// A table that grows row by row; most come in order.
struct writer {
  char* out;
  size_t capacity, length;

  // Where the first row is whose key is not less.
  size_t place_of(const char* digits) const {
    size_t low = tuning_header_bytes, high = length;
    if (length == low || memcmp(out + line_of(length - 1), digits, key_digits) < 0) return length;
    while (low < high) {
      const size_t middle = line_of((low + high) / 2);
      if (memcmp(out + middle, digits, key_digits) < 0)
        low = end_of(middle);
      else
        high = middle;
    }
    return low;
  }
  size_t line_of(size_t at) const {
    while (at > tuning_header_bytes && out[at - 1] != '\n') --at;
    return at;
  }
  size_t end_of(size_t at) const {
    while (out[at] != '\n') ++at;
    return at + 1;
  }
  bool add(const good_rows& from) {
    size_t at = place_of(from.row.begin), old = 0;
    // Rows of one key are the same row, unless 64 bits have met by chance.
    for (size_t i = at; i < length && memcmp(out + i, from.row.begin, key_digits) == 0; i = end_of(i)) {
      const line other = {out + i, end_of(i) - i - 1};
      uint64_t key;
      size_t key_length;
      tuned_row row;
      if (read_row(other, key, key_length, row) != fault::none || key_length != from.key_length ||
          memcmp(other.begin + row_prefix, from.row.begin + row_prefix, key_length) != 0)
        continue;
      if (row.level > from.level) return true;
      at = i, old = other.length + 1;
      break;
    }
    const size_t bytes = from.row.length + 1;
    if (capacity - length + old < bytes) return false;
    memmove(out + at + bytes, out + at + old, length - at - old);
    memcpy(out + at, from.row.begin, from.row.length);
    out[at + bytes - 1] = '\n';
    length += bytes - old;
    return true;
  }
};

}  // namespace

bool has_demands(const quern_wish& w) {
  return w.algorithm || w.kernel || (w.deny && *w.deny) || w.allow || w.workspace_limit || w.repeat;
}

size_t tuning_key(const quern_problem& p, const resolved_wish& w, bool demands, char out[most_key]) {
  size_t length = 0;
  if (quern_problem_print(&p, out, most_key, &length, nullptr) != QUERN_OK) return 0;
  text t = {out, most_key, length};
  t.add(" |");
  const machine& m = w.machine;
  const quern_gpu& gpu = m.gpu;
  for (int bit = 0; bit < 64; ++bit)
    if (const char* isa = m.isa >> bit & 1 ? quern_isa_name(uint64_t{1} << bit) : nullptr) t.add(" %s", isa);
  if (is_gpu(m)) {
    t.add(" gpu=%u multiprocessors=%u mhz=%u l2=%" PRIu64 " shared=%" PRIu64 " bandwidth=%" PRIu64 " driver=%u",
          gpu.capability, gpu.multiprocessors, gpu.clock_mhz, gpu.l2_bytes, gpu.shared_bytes, gpu.bandwidth,
          gpu.driver);
    // With a limit there are other candidates; which it is does not matter.
    if (w.wish.src_limit > 0 && p.accuracy >= QUERN_ACCURACY_F32_LOOSE) t.add(" limited");
  } else {
    t.add(" model=%" PRIx64 " l1=%" PRIu64 " l2=%" PRIu64 " l3=%" PRIu64 " threads=%u", m.model, m.l1, m.l2, m.l3,
          std::max(1u, w.wish.threads));
  }
  t.add(" build=%" PRIx64, build_of(p.op, is_gpu(m)));
  if (demands) t.add(" demands=%" PRIx64, demands_of(w.wish));
  return t.fits ? t.length : 0;
}

bool find_tuned(const void* table, size_t bytes, const char* key, size_t key_length, tuned_row& out) {
  if (bytes < tuning_header_bytes || check_header(table, bytes, "tuning", nullptr) != QUERN_OK) return false;
  char digits[key_digits + 1];
  snprintf(digits, sizeof digits, "%016" PRIx64, hash(key, key_length, 0));
  const char *low = static_cast<const char*>(table) + tuning_header_bytes, *const first = low;
  const char* const end = static_cast<const char*>(table) + bytes;
  const char* high = end;
  while (low < high) {
    const char* middle = low + (high - low) / 2;
    const void* const before = middle > first ? memrchr(first, '\n', static_cast<size_t>(middle - first)) : nullptr;
    middle = before ? static_cast<const char*>(before) + 1 : first;
    const size_t rest = static_cast<size_t>(end - middle);
    if (memcmp(middle, digits, std::min(rest, key_digits)) < 0) {
      const void* const newline = memchr(middle, '\n', rest);
      low = newline ? static_cast<const char*>(newline) + 1 : end;
    } else {
      high = middle;
    }
  }
  for (lines l = {low, 0}; low < end; low = l.at) {
    l.at = low, l.end = end;
    line row;
    uint64_t found;
    size_t length;
    if (!l.next(row) || row.length < row_prefix || memcmp(row.begin, digits, key_digits) != 0) return false;
    if (read_row(row, found, length, out) == fault::none && length == key_length &&
        memcmp(row.begin + row_prefix, key, length) == 0)
      return true;
  }
  return false;
}

bool find_tuned(const quern_problem& p, const resolved_wish& w, tuned_row& out) {
  if (!w.wish.tuning) return false;
  char key[most_key];
  for (const bool demands : {true, false}) {
    if (demands && !has_demands(w.wish)) continue;
    const size_t length = tuning_key(p, w, demands, key);
    if (length && find_tuned(w.wish.tuning, w.wish.tuning_bytes, key, length, out)) return true;
  }
  return false;
}

bool is_of(const tuned_candidate& c, const algorithm& a) {
  return strlen(a.name) == c.algorithm_length && memcmp(c.algorithm, a.name, c.algorithm_length) == 0;
}
bool is_of(const tuned_candidate& c, const kernel& k) {
  return strlen(k.name) == c.kernel_length && memcmp(c.kernel, k.name, c.kernel_length) == 0;
}

const tuned_candidate* find_candidate(const tuned_row& row, const algorithm& a, const kernel& k) {
  for (int i = 0; i < row.count; ++i)
    if (is_of(row.candidate[i], a) && is_of(row.candidate[i], k)) return &row.candidate[i];
  return nullptr;
}

size_t print_tuned(const char* key, size_t key_length, const tuned_row& row, char* out) {
  memcpy(out, tuning_header, tuning_header_bytes);
  char* const begin = out + tuning_header_bytes;
  memcpy(begin + row_prefix, key, key_length);
  text t = {begin + row_prefix, most_line - row_prefix, key_length};
  t.add(" | level=%d ms=%" PRIu64, row.level, row.ms);
  for (int i = 0; i < row.count; ++i) {
    const tuned_candidate& c = row.candidate[i];
    t.add(" | %.*s %.*s %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d %u", static_cast<int>(c.algorithm_length),
          c.algorithm, static_cast<int>(c.kernel_length), c.kernel, c.median_ns, c.min_ns, c.samples, c.as.l1, c.as.l2,
          c.as.threads);
  }
  const uint64_t digits = hash(key, key_length, 0);
  char prefix[row_prefix + 1];
  snprintf(prefix, sizeof prefix, "%016" PRIx64 " %016" PRIx64 " ", digits, hash(t.out, t.length, digits));
  memcpy(begin, prefix, row_prefix);
  begin[row_prefix + t.length] = '\n';
  return tuning_header_bytes + row_prefix + t.length + 1;
}

}  // namespace quern

using namespace quern;

extern "C" {

quern_status quern_tuning_check(const void* table, size_t bytes, size_t* rows, size_t* damaged,
                                quern_error* error) noexcept {
  if (rows) *rows = 0;
  if (damaged) *damaged = 0;
  if (const quern_status s = check_header(table, bytes, "table", error)) return s;
  size_t good = 0, bad = 0;
  quern_status status = QUERN_OK;
  const auto complain = [&](int64_t number, const char* what) {
    if (bad++ == 0)
      status = fail(error, QUERN_MISMATCH, "table", number, 0, "line %lld %s", static_cast<long long>(number), what);
  };
  if (bytes && bytes < tuning_header_bytes) complain(1, "is cut short");
  lines all(table, bytes);
  line l;
  for (int64_t number = 2; all.next(l); ++number) {
    if (is_comment(l)) continue;
    uint64_t key;
    size_t length;
    tuned_row row;
    fault f = read_row(l, key, length, row);
    if (f == fault::none) f = check_row(l, key, length, row);
    if (f == fault::none)
      ++good;
    else
      complain(number, sentence_of(f));
  }
  if (rows) *rows = good;
  if (damaged) *damaged = bad;
  return status;
}

quern_status quern_tuning_merge(const void* a, size_t a_bytes, const void* b, size_t b_bytes, void* out,
                                size_t capacity, size_t* length, quern_error* error) noexcept {
  if (!length) return fail(error, QUERN_INVALID, "length", 0, 0, "length is NULL, must point to a size_t");
  if (const quern_status s = check_header(a, a_bytes, "a", error)) return s;
  if (const quern_status s = check_header(b, b_bytes, "b", error)) return s;
  const size_t most = tuning_header_bytes + a_bytes + b_bytes + 2;  // newlines that a last line lacks
  *length = most;
  if (!out) return QUERN_OK;
  writer w = {static_cast<char*>(out), capacity, tuning_header_bytes};
  bool fits = capacity >= tuning_header_bytes;
  if (fits) memcpy(out, tuning_header, tuning_header_bytes);
  // Side by side, so that sorted tables give rows in order.
  good_rows from_a(a, a_bytes), from_b(b, b_bytes);
  while (fits && (from_a.found || from_b.found)) {
    const bool take_a = from_a.found && (!from_b.found || from_a.key <= from_b.key);
    good_rows& next = take_a ? from_a : from_b;
    fits = w.add(next);
    next.step();
  }
  if (!fits)
    return fail(error, QUERN_BUFFER, "capacity", static_cast<int64_t>(capacity), static_cast<int64_t>(most),
                "capacity is %zu bytes; %zu suffice", capacity, most);
  *length = w.length;
  return QUERN_OK;
}

}  // extern "C"
