#!/bin/sh
# SPDX-License-Identifier: MIT
#
# pkg_config.sh PREFIX CC SOURCE OUT [FLAG...]: a program built by a plain compiler with what pkg-config says,
# and run.  FLAGs go to pkg-config.
set -eu
prefix=$1
cc=$2
source=$3
out=$4
shift 4
folder=$(dirname "$(find "$prefix" -name quern.pc)")
PKG_CONFIG_PATH=$folder
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs "$@" quern)
# shellcheck disable=SC2086 # several words
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror "$source" -o "$out" $flags
LD_LIBRARY_PATH=$(pkg-config --variable=libdir quern) "$out"
