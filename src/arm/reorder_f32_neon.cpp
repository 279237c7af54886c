// SPDX-License-Identifier: MIT
//
// Layout conversion in pairs of NEON registers (reorder_f32.h): 8 pixels of 4 or 8 channels at a time.
#include <arm_neon.h>

#include "reorder_f32.h"

namespace quern {
namespace {

struct registers {
  static constexpr int width = 8;
  struct vector {
    float32x4_t half[2];
  };

  [[gnu::always_inline]] static vector load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4)}}; }
  [[gnu::always_inline]] static void store(float* p, vector v) { vst1q_f32(p, v.half[0]), vst1q_f32(p + 4, v.half[1]); }
  // NEON has no store of one register past the caches.
  [[gnu::always_inline]] static void stream(float* p, vector v) { store(p, v); }
  static void fence() {}

  static vector load_part(const float* p, uint32_t mask) {
    alignas(16) float lane[8] = {};
    for (int i = 0; i < 8; ++i)
      if (mask >> i & 1) lane[i] = p[i];
    return load(lane);
  }
  static constexpr bool masks_are_free = false;
  static void store_part(float* p, vector v, uint32_t mask) {
    alignas(16) float lane[8];
    store(lane, v);
    for (int i = 0; i < 8; ++i)
      if (mask >> i & 1) p[i] = lane[i];
  }

  // `pixels` pieces of `channels` floats, each at the begin of four lanes.
  template <int view>
  static vector load_pieces(const float* p, size_t pixel, size_t channels, size_t pixels) {
    alignas(16) float lane[8] = {};
    for (size_t i = 0; i < pixels; ++i)
      for (size_t c = 0; c < channels; ++c) lane[4 * i + c] = p[i * pixel + c];
    return load(lane);
  }
  template <int view>
  static void store_pieces(float* p, size_t pixel, vector v, size_t channels, size_t pixels) {
    alignas(16) float lane[8];
    store(lane, v);
    for (size_t i = 0; i < pixels; ++i)
      for (size_t c = 0; c < channels; ++c) p[i * pixel + c] = lane[4 * i + c];
  }

  // Four lanes a pixel from pixels of up to four floats that follow each other, and back.
  struct order {
    uint8x16_t half[2];  // of bytes
  };
  static order spread(size_t pixel) {
    return order_of([&](uint32_t i) { return i / 4 * static_cast<uint32_t>(pixel) + i % 4; });
  }
  static order gather(size_t pixel) {
    return order_of(
        [&](uint32_t i) { return i / static_cast<uint32_t>(pixel) * 4 + i % static_cast<uint32_t>(pixel); });
  }
  [[gnu::always_inline]] static vector move_lanes(vector v, order o) {
    return {{pick(v, o.half[0]), pick(v, o.half[1])}};
  }

  // In every half, element j of register i and element i of register j change places.
  [[gnu::always_inline]] static void quads(vector* a) {
    QUERN_UNROLL for (int h = 0; h < 2; ++h) {
      const float32x4x2_t top = vtrnq_f32(a[0].half[h], a[1].half[h]), bottom = vtrnq_f32(a[2].half[h], a[3].half[h]);
      QUERN_UNROLL for (int j = 0; j < 2; ++j) {
        a[j].half[h] = vcombine_f32(vget_low_f32(top.val[j]), vget_low_f32(bottom.val[j]));
        a[j + 2].half[h] = vcombine_f32(vget_high_f32(top.val[j]), vget_high_f32(bottom.val[j]));
      }
    }
  }
  // The second half of the first and the first half of the second change places.
  [[gnu::always_inline]] static void lanes(vector* a) {
    const float32x4_t second = a[0].half[1];
    a[0].half[1] = a[1].half[0], a[1].half[0] = second;
  }

 private:
  template <class From>
  static order order_of(From from) {
    uint8_t byte[32];
    for (uint32_t i = 0; i < 32; ++i) byte[i] = static_cast<uint8_t>(from(i / 4) % 8 * 4 + i % 4);
    return {{vld1q_u8(byte), vld1q_u8(byte + 16)}};
  }
  [[gnu::always_inline]] static float32x4_t pick(vector v, uint8x16_t bytes) {
    const uint8x16_t first = vreinterpretq_u8_f32(v.half[0]), second = vreinterpretq_u8_f32(v.half[1]);
#if defined(__aarch64__)
    return vreinterpretq_f32_u8(vqtbl2q_u8({{first, second}}, bytes));
#else
    const uint8x8x4_t table = {{vget_low_u8(first), vget_high_u8(first), vget_low_u8(second), vget_high_u8(second)}};
    return vreinterpretq_f32_u8(vcombine_u8(vtbl4_u8(table, vget_low_u8(bytes)), vtbl4_u8(table, vget_high_u8(bytes))));
#endif
  }
};

}  // namespace
}  // namespace quern

QUERN_KERNELS(reorder_f32_neon, {.name = "reorder_f32_8_neon",
                                 .about = "8 pixels of 8 channels in pairs of registers",
                                 .kind = kind::reorder_f32,
                                 .isa = QUERN_ISA_NEON,
                                 .vector = 8,
                                 .reorder = reorder<registers>})
