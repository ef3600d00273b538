#!/bin/sh
# Builds the native code with what checks it at run time, and runs the native tests with it.
#
#   sh tools/sanitize.sh VENV [TESTS...]
#
# AddressSanitizer and UndefinedBehaviorSanitizer under all native tests, or the TESTS named; then
# ThreadSanitizer under those of the pool and the program. VENV is where Pellucid and what its tests need are
# installed; its own build stays as it is. Ends with the first fault.
set -eu

venv=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- tests/native
compiler=${CXX:-c++}
PATH=$venv/bin:$PATH
export PATH

# Where the compiler keeps a library of its own: gcc's name, then clang's.
library() {
    for name in "lib$1.so" "libclang_rt.$1-$(uname -m).so" "libclang_rt.$1.so"; do
        found=$($compiler -print-file-name="$name")
        [ "$found" = "$name" ] || { echo "$found"; return; }
    done
    echo "error: $compiler has no library for the sanitizer $1; install it (Debian: libasan, libtsan; Fedora: libasan, libtsan)" >&2
    return 1
}

# build NAME SANITIZERS: the package with a module of this build, and a Python that imports it.
build() {
    folder=build/sanitize/$1
    cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 \
        -DPELLUCID_SANITIZE="$2" -DPython_EXECUTABLE="$venv/bin/python" > "$folder.log" 2>&1 ||
        { cat "$folder.log" >&2; return 1; }
    cmake --build "$folder"
    rm -rf "$folder/package"
    mkdir -p "$folder/package"
    cp -R src/pellucid "$folder/package/"
    rm -f "$folder"/package/pellucid/_native*.so
    cp "$folder"/native/_native*.so "$folder/package/pellucid/"
    # An environment of its own, since the other one's puts its own module first.
    [ -d "$folder/venv" ] || "$venv/bin/python" -m venv --without-pip "$folder/venv"
    for path in "$(pwd)/$folder/package" "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; do
        echo "$path"
    done > "$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/package.pth"
}

# run NAME LIBRARY TESTS...: pytest with the sanitizer loaded before Python, and nothing captured, since a
# fault ends the process with its report. The C++ library comes along: a sanitizer looks for what throws
# exceptions before any module brings it in.
run() {
    python=build/sanitize/$1/venv/bin/python
    preload="$(library "$2") $($compiler -print-file-name=libstdc++.so.6)"
    shift 2
    LD_PRELOAD=$preload "$python" -m pytest -q -s -p no:cacheprovider "$@"
}

mkdir -p build/sanitize
# What Python keeps to its end is no leak. Its small objects come from malloc, so that bounds are known.
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1:die_after_fork=0"
export PYTHONMALLOC=malloc

echo "AddressSanitizer and UndefinedBehaviorSanitizer: building, then $*"
build address address,undefined
# The tests of Arm run other programs, built by other compilers.
run address asan "$@" --ignore-glob='*/test_arm*.py'

echo "ThreadSanitizer: building, then the pool and the program"
build thread thread
run thread tsan tests/native/test_pool.py tests/native/test_program.py
