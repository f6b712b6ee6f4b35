// The prelude of tests: what prelude.h includes, and GoogleTest.
#ifndef MUSTER_BAZEL_PRELUDE_TEST_PRELUDE_H_
#define MUSTER_BAZEL_PRELUDE_TEST_PRELUDE_H_

#include "bazel/prelude/prelude.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#endif  // MUSTER_BAZEL_PRELUDE_TEST_PRELUDE_H_
