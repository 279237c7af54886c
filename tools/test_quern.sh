#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What the quern command prints, writes and returns: test_quern.sh COMMAND LAYERFILE TABLE
quern=$(realpath "$1")
layers=$(realpath "$2")
tuned=$(realpath "$3")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
unset QUERN_ISA QUERN_VERBOSE

# expect STATUS WORD...: runs `quern WORD...`; its output is in out and err for the checks that follow.
expect() {
  status=$1
  shift
  called="quern $*"
  "$quern" "$@" </dev/null >out 2>err
  got=$?
  [ "$got" = "$status" ] || complain "exit status $got, must be $status"
}

complain() {
  failures=$((failures + 1))
  echo "FAILED: $called: $1"
  sed 's/^/  out: /' out | head -n 20
  sed 's/^/  err: /' err | head -n 20
}

out_has() { grep -q -e "$1" out || complain "standard output lacks '$1'"; }
err_has() { grep -q -e "$1" err || complain "standard error lacks '$1'"; }
out_lacks() { ! grep -q -e "$1" out || complain "standard output has '$1'"; }
silent() { [ ! -s err ] || complain "standard error is not empty"; }
nothing_ran() { [ ! -s out ] || complain "something was printed although nothing may run"; }

# ---- info, kernels ----
expect 0 info
silent
out_has 'CPU  *[^ ]'
out_has 'FMA, 128 bits  *[1-9][0-9.]* GFLOP/s'
out_has 'copy in L1  *[0-9.]* GB/s'
out_has 'copy in memory  *[0-9.]* GB/s'
expect 0 kernels
out_has '^conv_ref  *reference  *ref'
out_has '^gemm_f32_[0-9x]*_[a-z0-9]*  *gemm_f32'
expect 0 --version
out_has '^[0-9]*\.[0-9]*\.[0-9]*$'

# ---- explain ----
expect 0 explain nhwc ic64ih28oc64kh3ph1 bias act=relu --algorithm conv_im2col
out_has '^conv f32 nhwc .*bias act=relu'
out_has '^chosen  *conv_im2col'
out_has '^refused  *reference'
expect 0 explain any ic64ih28oc64kh3ph1 --isa avx2
out_has '^chosen .*nhwc.*chosen: the lowest'
expect 0 explain nhwc ic64ih28oc64kh3ph1
out_has '^refused  *conv_depthwise  *[0-9]* kernels .*src.size.1. / groups'
expect 0 explain nhwc ic64ih28oc64kh3ph1 --all
out_has '^refused  *conv_depthwise  *depthwise_f32_[a-z0-9_]*_avx2 .*src.size.1. / groups'
out_lacks '[0-9] kernels '
expect 0 explain ic64ih28oc64kh3ph1 --isa avx2 --l1 32K --l2 1M --l3 0
out_has 'for avx2, L1 32 KiB, L2 1 MiB, L3 -, threads 1'
out_has '^chosen .*_avx2 '
out_lacks '^\(chosen\|usable\) .*_avx512 '
expect 0 explain ic64ih28oc64kh3ph1 --isa avx512 --json
out_has '"verdict": "chosen"'
out_has '"isa": "avx2 avx512"'
out_has '"kernel": "gemm_f32_[0-9x]*_avx512"'
expect 0 explain nhwc ic64ih28oc64kh3ph1 --front
out_has '^chosen '
out_has '^usable .*  *-  *[0-9.]* [KM]iB  *f32 '
out_lacks '^refused'
expect 2 explain ic64ih28oc64kh3ph1 --device gpu
expect 1 explain ic64ih28oc64kh3ph1 --isa ref
err_has 'no kernel solves'
expect 0 explain ic64ih28oc64kh3ph1 --isa ref --algorithm reference
out_has '^chosen  *reference'
expect 1 explain ic64ih28oc64kh3ph1 --algorithm conv_im2col --workspace 0
out_has 'workspace'
expect 2 explain ic64ih28oc64kh3ph
err_has '^layer:1:[0-9]*: '
expect 2 explain ic64ih28oc64kh3ph1 --isa avx1024
err_has "'avx1024'"
expect 2 explain ic64ih28oc64kh3ph1 --l1 12Q
err_has "'12Q'"
expect 2 explain ic64ih28oc64kh3ph1 --l1 99999999999999999999
err_has 'must be bytes'
expect 2 explain ic64ih28oc64kh3ph1 --kernel nothing
err_has "'nothing'"
expect 2 explain ic64ih28oc64kh3ph1 --algorithm nothing
err_has "'nothing'"
called='QUERN_ISA=nothing quern explain'
QUERN_ISA=nothing "$quern" explain ic1ih1oc1kh1 >out 2>err
[ $? = 2 ] || complain 'exit status must be 2'
err_has "'nothing'"

# ---- bench: a benchdnn shape file as it is ----
cat >shapes <<'LINES'
# comment, then an empty line

mb2_ic3oc16_ih32oh16kh3sh2dh0ph1_iw32ow16kw3sw2dw0pw1n"net:stem, \first*2"
  g16mb1ic16ih14oc16oh14kh3ph1n"net:depthwise" # as shape files have it
nhwc ic16iw12oc8kw1n"net:pointwise" act=silu
LINES
printf 'conv_transposed ic8ih5oc4kh4sh2ph1n"net:up"\r\n' >>shapes
expect 0 bench shapes --ms 1 --json rows.json --csv rows.csv
silent
out_has '^net:stem, .first\*2 '
out_has '^net:depthwise '
out_has '^net:pointwise '
out_has '^net:up '
out_has '^4 layers, '
for field in layer problem kernel algorithm layout threads chosen tuning tuning_ms ms_median ms_min samples over_best gflops percent_of_peak \
  percent_of_copy rel_l2_error workspace_bytes packed_bytes; do
  [ "$(grep -c "^   \"$field\": " rows.json)" = 4 ] || complain "rows.json must have $field four times"
done
[ "$(grep -c '^   "' rows.json)" = 76 ] || complain 'rows.json has other fields'
for field in date cpu caches version rows; do
  grep -q "^ \"$field\": " rows.json || complain "rows.json lacks $field"
done
grep -q '"problem": "conv f32 nhwc .* act=silu"' rows.json || complain 'a line keeps its own layout and epilogue'
grep -q '"problem": "conv f32 nchw .* bias act=relu"' rows.json || complain 'other lines get --epilogue'
head -n 1 rows.csv | grep -q '^layer,problem,kernel,algorithm,layout,threads,chosen,tuning,tuning_ms,ms_median,ms_min,samples,over_best,gflops,percent_of_peak,percent_of_copy,rel_l2_error,workspace_bytes,packed_bytes$' ||
  complain 'rows.csv lacks its header'
[ "$(wc -l <rows.csv)" = 5 ] || complain 'rows.csv must have five lines'
grep -q '^"net:stem, ' rows.csv || complain 'rows.csv must quote a comma'
[ "$(echo rows*)" = 'rows.csv rows.json' ] || complain 'a partial file was left'

# A row's problem is a line that runs again.
problem=$(sed -n 's/^   "problem": "\(.*\)",$/\1/p' rows.json | tail -n 1)
expect 0 bench 'reorder nchw:nc8hw8 1x19x5x7' 'any ic16ih9oc16kh3ph1' --ms 1 --csv -
out_has 'nchw:nc8hw8'
out_has 'conv_'
expect 0 bench "$problem" --ms 1 --json -
out_has '"layout": "nchw"'
called="quern bench '$problem'"
grep -q -F "\"problem\": \"$problem\"" out || complain 'the problem does not replay itself'

expect 0 bench "$layers" --filter 'dw5x5_c672' --ms 1 --csv -
out_has '^efficientnet_b0:dw5x5_c672,'
[ "$(wc -l <out)" = 2 ] || complain 'the table must not be in between'
expect 0 bench ic16ih9oc16kh3ph1 --layout nchw,nhwc,nchw:nhwc --all --ms 1 --threads 2 --epilogue 'scale act=tanh'
out_has ' nchw:nhwc '
out_has '^3 layers, '
out_has '^regret '
expect 0 bench ic16ih9oc16kh3ph1 --algorithm reference --ms 1
out_has ' reference  *conv_ref'
expect 0 bench mb0ic16ih9oc16kh3ph1 ic0ih9oc16kh1 --ms 1
called='quern bench -'
echo 'ic16ih9oc16kh3ph1n"from stdin"' | "$quern" bench - --ms 1 >out 2>err || complain 'exit status must be 0'
out_has '^from stdin '
expect 1 bench ic16ih9oc16kh3ph1 --accuracy exact --ms 1
err_has 'no kernel solves'

# ---- bench: bad input, and nothing runs ----
cat >bad <<'LINES'
ic16ih9oc16kh3ph1
  ic16ih9oc16kh3ph1 nonsense
# comment
mb1ic64ih56oc64oh9kh3ph1n"a b"
LINES
echo '--dt=f32' >>bad
expect 2 bench bad --json never.json
nothing_ran
err_has '^bad:2:21: '
err_has '^bad:4:[0-9]*: .*must be 56'
err_has '^bad:5:1: an option'
[ ! -e never.json ] || complain 'never.json was written'
expect 2 bench ic16ih9oc16kh3ph1 ic16ih9oc
nothing_ran
err_has '^argument 2:1:'
expect 2 bench absent.txt
nothing_ran
err_has "no file 'absent.txt'"
expect 2 bench /
err_has 'folder'
expect 2 bench /dev/null
err_has 'no layers'
expect 2 bench 'pool_max f16 nhwc ic16ih9kh3'
err_has 'only f32 can be timed on a CPU'
nothing_ran
expect 2 bench ic16ih9oc16kh3ph1 --filter absent
err_has "'absent'"
expect 2 bench ic100000ih100000oc1kh1
nothing_ran
err_has 'this machine has'
printf 'ic16\000ih9\n' >zero
expect 2 bench zero
err_has '^zero:1:5: '
head -c 100000 /dev/zero | tr '\0' 'i' >long
expect 2 bench long
err_has '^long:1:4097: '
for options in '--layout nchv' '--layout nchw:' '--type f16' '--accuracy best' '--threads 0' '--threads many' '--ms -1' \
  '--epilogue act=none' '--json absent/rows.json' '--csv .' '--algorithm nothing' '--kernel nothing' '--workspace x' '--src-limit x' '--src-limit -1' '--src-limit nan' \
  '--unknown'; do
  # shellcheck disable=SC2086
  expect 2 bench ic16ih9oc16kh3ph1 --ms 1 $options
  nothing_ran
  [ -s err ] || complain 'no sentence'
done
if [ -e /dev/full ]; then
  expect 1 bench ic16ih9oc16kh3ph1 --ms 1 --json /dev/full
  err_has 'No space left'
  called='quern kernels >/dev/full'
  "$quern" kernels >/dev/full 2>err
  [ $? = 1 ] || complain 'exit status must be 1'
  err_has 'standard output'
fi
expect 2
expect 2 unknown
err_has "'unknown' is no subcommand"

# ---- tune ----
expect 0 tune 'nhwc ic16ih9oc16kh3ph1n"net:a"' 'nchw ic16ih9oc16kh3ph1n"net:b"' --file table --level fast
silent
out_has '^net:a  *nhwc  *conv_'
out_has '^2 layers, 2 measured now: [1-9]'
[ "$(head -n 1 table)" = '# quern tuning 1' ] || complain 'the table must begin with its version'
[ "$(wc -l <table)" = 3 ] || complain 'the table must have a line for each layer'
# The second process measures nothing at all.
cp table before
expect 0 tune 'nhwc ic16ih9oc16kh3ph1n"net:a"' 'nchw ic16ih9oc16kh3ph1n"net:b"' --file table --level fast
out_has '^2 layers, 0 measured now: 0 runs of kernels in 0 s'
cmp -s table before || complain 'the table was changed'
expect 0 tune 'nhwc ic16ih9oc16kh1' --file table --level fast --read-only
out_has '^1 layers, 1 measured now'
cmp -s table before || complain 'a read-only table was changed'
expect 0 explain nhwc ic16ih9oc16kh3ph1 bias act=relu --file table
out_has '^chosen .*chosen: the lowest measured time'
expect 0 explain nhwc ic16ih9oc16kh3ph1 bias act=relu --file table --json
out_has '"measured_by": "tuning"'
expect 2 explain nhwc ic16ih9oc16kh3ph1 --file absent
err_has 'absent: No such file'
expect 0 tune 'nhwc ic16ih9oc16kh1' --level normal --ms 100 --launches 20
expect 0 tune 'nhwc ic16ih9oc16kh1' --level none
out_has ' 0 measured now'
expect 0 tune --merge table --file merged
out_has '^2 rows merged into merged, 0 refused'
cmp -s table merged || complain 'merging one table must give the same'
expect 0 tune --merge "$tuned" --file known
out_has '^[1-9][0-9]* rows merged into known, 0 refused'
sed '2s/ conv_/ c0nv_/' table >damaged
expect 1 tune --merge damaged --file again
err_has '^damaged:2: this row is refused: it is damaged'
out_has '^1 rows merged into again, 1 refused'
echo 'my diary' >diary
expect 2 tune --merge diary --file again
expect 1 tune ic16ih9oc16kh1 --file diary
err_has 'is no tuning table'
[ "$(cat diary)" = 'my diary' ] || complain 'a file that is no table was written over'
expect 2 tune --merge table
expect 2 tune ic16ih9oc16kh1 --level best
err_has "'best'"
expect 2 tune ic16ih9oc16kh1 --type f16
err_has 'on a CPU'
expect 2 tune ic16ih9oc16kh1 --type f17
expect 2 tune ic16ih9oc16kh1 --device gpu
expect 1 tune ic16ih9oc16kh1 --file absent/table --level fast
expect 0 bench ic16ih9oc16kh3ph1 --layout nhwc --all --ms 1 --tune fast,normal
out_has '^regret (chosen over best)'
out_has '^regret (normal over best): .*tuning normal took'
expect 2 bench ic16ih9oc16kh3ph1 --ms 1 --tune best

# ---- selftest ----
expect 0 selftest --threads 2
silent
out_has 'all right$'
out_lacks 'WRONG'
expect 0 selftest 'ic16ih9oc16kh3ph1 act=gelu'
expect 2 selftest 'ic16ih9oc16kh3ph'
nothing_ran

[ "$failures" = 0 ] || {
  echo "$failures failures"
  exit 1
}
echo 'all right'
