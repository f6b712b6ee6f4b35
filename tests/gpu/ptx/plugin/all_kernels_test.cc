// Parses the PTX of all CUDA kernels: the interpreter supports every instruction in them.
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "tests/gpu/ptx/module.h"

namespace muster::ptx {
namespace {

// Kernels of Muster when this test was written, less a margin for removals.
constexpr size_t kMinKernels = 150;

TEST(AllKernelsTest, Parse) {
  std::ifstream file("tests/gpu/ptx/plugin/libmuster-cuda-ptx.so", std::ios::binary);
  const std::string library{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(library.empty());
  // The library contains PTX as plain text that ends with a null character.
  size_t kernels = 0;
  for (size_t at = 0; (at = library.find("\n.version ", at)) != library.npos;) {
    const std::string ptx = library.c_str() + at;
    at += ptx.size();
    const auto module = Module::Parse(ptx);
    ASSERT_TRUE(module.ok()) << module.status();
    for (const auto& [name, kernel] : module->kernels()) {
      EXPECT_FALSE(kernel->code.empty()) << name;
      ++kernels;
    }
  }
  std::printf("%zu kernels\n", kernels);
  EXPECT_GE(kernels, kMinKernels);
}

}  // namespace
}  // namespace muster::ptx
