// SPDX-License-Identifier: MIT
//
// The launches of conv_implicit, for whatever units multiply.
#pragma once

#include "algorithm.h"

namespace quern::implicit_driver {

refusal refuse(const full_problem&, const kernel&);
blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t threads);
cost predict(const full_problem&, const kernel&, const blocking&, const machine&);
void pack(const job&, int64_t first, int64_t count, const void* weights, char* payload);
quern_status launch(const job&, const launching&);

}  // namespace quern::implicit_driver
