// Parses files of PTX and lists their kernels: `check_ptx FILE...`. Exits with 1 if a file has an
// instruction or form that the interpreter does not support.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/gpu/ptx/module.h"

int main(int argc, char** argv) {
  int status = 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i]);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto module = muster::ptx::Module::Parse(text);
    if (!module.ok()) {
      std::fprintf(stderr, "%s: %s\n", argv[i], std::string(module.status().message()).c_str());
      status = 1;
      continue;
    }
    for (const auto& [name, kernel] : module->kernels()) {
      std::printf(
          "%s: %s: %zu instructions, %u registers, %zu bytes of parameters, %zu of shared memory\n",
          argv[i], name.c_str(), kernel->code.size(), kernel->slots, kernel->parameter_bytes,
          kernel->static_shared_bytes);
    }
  }
  return status;
}
