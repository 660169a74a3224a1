# The engine as WebAssembly, beside this file: sh build.sh [MODEL.drnmf], which is copied to default.drnmf.
# Needs clang, lld, wasi-libc and libclang-rt-dev-wasm32 of Debian. wasm-ld is called by hand: where binaryen is
# installed, clang would have wasm-opt undo SIMD.
set -e
cd "$(dirname "$0")"
object=$(mktemp --suffix=.o)
trap 'rm -f "$object"' EXIT
clang --target=wasm32-wasi -O3 -msimd128 -mbulk-memory -fno-math-errno -DDRNMF_NO_FILES -Wall -Wextra -Wno-psabi \
    -c ../libdrnmf/drnmf.c -o "$object"
wasm-ld --no-entry --export-dynamic --export=malloc --export=free --strip-all -z stack-size=65536 \
    "$object" -L/usr/lib/wasm32-wasi -lc -lm -o drnmf.wasm
[ -z "$1" ] || cmp -s "$1" default.drnmf || cp "$1" default.drnmf
