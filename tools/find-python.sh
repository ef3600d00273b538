#!/bin/sh
# Prints the Python that the environment is made with: 3.11 or newer, able to make one, and with the
# headers that native code is built against. PYTHON=... chooses one by hand.
check='
import importlib.util, pathlib, sys, sysconfig
if sys.version_info < (3, 11):
    sys.exit("is Python %d.%d, and 3.11 or newer is needed" % sys.version_info[:2])
if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
    sys.exit("cannot make environments: install its venv package (Debian and Ubuntu: python3-venv)")
if not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file():
    sys.exit("lacks its C headers: install its development package (Debian and Ubuntu: python3-dev)")
print(sys.executable)
'

if [ -n "$PYTHON" ]; then
    candidates=$PYTHON
else
    candidates="python3.13 python3.12 python3.11 python3.14 python3 python"
fi

reasons=""
for candidate in $candidates; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    if found=$("$candidate" -c "$check" 2>&1); then
        echo "$found"
        exit 0
    fi
    reason=$(printf '%s\n' "$found" | head -n 1)
    reasons="$reasons
  $candidate: $reason"
done

echo "error: no suitable Python found; Pellucid needs 3.11 or newer. Looked at: ${reasons:-
  $candidates: none of them is installed}
Install one, or name it: make PYTHON=/path/to/python3 ..." >&2
exit 1
