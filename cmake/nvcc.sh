#!/bin/sh
# SPDX-License-Identifier: MIT
#
#   nvcc.sh OUTPUT NVCC ARGUMENT...    runs nvcc, and fails on what ptxas tells without calling it a warning
#
# Products of four warps that wait for each other (C7510 to C7514, "Potential Performance Loss: wgmma.mma_async
# instructions are serialized") would halve a kernel's speed.
output=$1
shift
said=$("$@" 2>&1)
status=$?
[ -z "$said" ] || echo "$said" >&2
case $said in
  *"Potential Performance Loss"*) status=1 ;;
esac
[ $status -eq 0 ] || rm -f "$output"
exit $status
