// SPDX-License-Identifier: MIT
//
// Memory of exactly the size asked for between two pages that fault, so that one byte read or written
// beside it ends the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace quern::test {

enum class edge { front, back };  // the end of the memory that touches a page that faults

class guarded_bytes {
 public:
  guarded_bytes(size_t bytes, size_t align, edge side) : size_(bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    inner_ = (bytes + align + page - 1) / page * page;
    void* all = mmap(nullptr, inner_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) abort();
    outer_ = inner_ + 2 * page;
    begin_ = static_cast<char*>(all) + page;
    access(PROT_READ | PROT_WRITE);
    data_ = side == edge::front ? begin_ : begin_ + (inner_ - bytes) / align * align;
    // What alignment leaves between the memory and the page is watched for writes.
    gap_ = side == edge::front ? 0 : static_cast<size_t>(begin_ + inner_ - (data_ + bytes));
    memset(data_ + bytes, canary, gap_);
  }
  guarded_bytes(guarded_bytes&& o) noexcept { swap(o); }
  guarded_bytes& operator=(guarded_bytes&& o) noexcept {
    swap(o);
    return *this;
  }
  ~guarded_bytes() {
    if (begin_) munmap(begin_ - (outer_ - inner_) / 2, outer_);
  }

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // From now on a write faults too.
  void protect() const { access(PROT_READ); }
  bool intact() const {
    for (size_t i = 0; i < gap_; ++i)
      if (data_[size_ + i] != canary) return false;
    return true;
  }

 private:
  static constexpr char canary = 0x5a;

  void access(int what) const {
    if (mprotect(begin_, inner_, what) != 0) abort();
  }
  void swap(guarded_bytes& o) {
    std::swap(begin_, o.begin_), std::swap(data_, o.data_), std::swap(size_, o.size_);
    std::swap(inner_, o.inner_), std::swap(outer_, o.outer_), std::swap(gap_, o.gap_);
  }

  char* begin_ = nullptr;
  char* data_ = nullptr;
  size_t size_ = 0, inner_ = 0, outer_ = 0, gap_ = 0;
};

// The same as an array.
template <class T>
class guarded {
 public:
  guarded(size_t count, edge side, size_t align = alignof(T)) : bytes_(count * sizeof(T), align, side) {}
  T* data() const { return reinterpret_cast<T*>(bytes_.data()); }
  size_t size() const { return bytes_.size() / sizeof(T); }
  T& operator[](size_t i) const { return data()[i]; }
  T* begin() const { return data(); }
  T* end() const { return data() + size(); }
  void protect() const { bytes_.protect(); }
  bool intact() const { return bytes_.intact(); }

 private:
  guarded_bytes bytes_;
};

}  // namespace quern::test
