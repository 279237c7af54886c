// SPDX-License-Identifier: MIT
//
// What this machine can do at most, measured: the yardstick of every "percent of peak".
#pragma once

#include <cstddef>

namespace tools {

// GFLOP/s of `threads` threads doing nothing but f32 fused multiply-adds on independent registers.
// `bits` is the width of the vector registers: 512, 256 or 128; 0, or more than this CPU has, is the
// widest it has.  The best of several samples; takes about 3 ms.
double fma_peak_gflops(int threads, int bits = 0);

// GB/s (read plus written) of memcpy on one thread over a working set of `bytes`, half of it source and
// half destination.  The best of several samples; 0 when the memory cannot be had.
double copy_gbytes_per_second(size_t bytes);

}  // namespace tools
