#!/bin/sh
# Prints a fingerprint of the system's headers for Bazel, which tracks no file outside the workspace: objects that were
# compiled against other headers are not taken from the disk cache.
find /usr/include /usr/local/include /usr/lib/gcc /usr/lib/llvm-*/lib/clang -type f -printf '%p %s %T@\n' 2>/dev/null |
  LC_ALL=C sort | sha256sum | sed 's/^/STABLE_SYSTEM_HEADERS /; s/ *-$//'
