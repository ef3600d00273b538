#!/bin/sh
# Says what is missing when no C++ compiler can be found, before a build fails with a page of text.
for candidate in "$CXX" c++ g++ clang++; do
    [ -n "$candidate" ] && command -v "${candidate%% *}" >/dev/null 2>&1 && exit 0
done
echo "error: no C++ compiler found (looked for \$CXX, c++, g++, clang++).
Install one: Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install" >&2
exit 1
