// SPDX-License-Identifier: MIT
#include "test_abi.c"
