# The engine as WebAssembly, beside this file: sh build.sh [MODEL.drnmf], which is copied to default.drnmf.
# Needs clang, lld and wasi-libc of Debian. wasm-ld is called by hand: where binaryen is installed, clang would have
# wasm-opt undo SIMD.
set -e
model=$([ -z "$1" ] || realpath "$1")
cd "$(dirname "$0")"
object=$(mktemp --suffix=.o)
trap 'rm -f "$object"' EXIT
clang --target=wasm32-wasi -O3 -msimd128 -mbulk-memory -fno-math-errno -DDRNMF_NO_FILES -Wall -Wextra -Wno-psabi \
    -c ../libdrnmf/drnmf.c -o "$object"
wasm-ld --no-entry --export-dynamic --export=malloc --export=free --strip-all -z stack-size=65536 \
    "$object" -L/usr/lib/wasm32-wasi -lc -lm -o drnmf.wasm
[ -z "$model" ] || cmp -s "$model" default.drnmf || cp "$model" default.drnmf
cp ../LICENSE . # npm packs it
page=../src/drnmf/bundled/page/drnmf # what is released with the Python package: all but the model
mkdir -p $page
cp drnmf.js engine.js worklet.js drnmf.wasm $page/
csrc=../src/drnmf/engines/csrc
cat ../libdrnmf/drnmf.[ch] ../libdrnmf/learn.h ../libdrnmf/model.h ../libdrnmf/rates.h \
    $csrc/engine.h $csrc/arithmetic.h $csrc/sound.h $csrc/prior.h build.sh | sha256sum | cut -c1-64 >$page/sources.sha256
