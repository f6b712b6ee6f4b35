#include "common/process/program_folder.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace muster {
namespace {

// The file that this code is mapped from. /proc/self/exe is not used because it is the dynamic
// loader if the program was started through it, as a bundle's launcher does.
std::filesystem::path OwnFile() {
  const auto here = reinterpret_cast<uintptr_t>(&ProgramFolder);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (here < begin || here >= end) continue;
    // `begin-end permissions offset device inode   path`
    const size_t path = line.find('/');
    if (path != std::string::npos) return line.substr(path);
  }
  return {};
}

}  // namespace

std::filesystem::path ProgramFolder() {
  const std::filesystem::path folder = OwnFile().parent_path();
  return folder.filename() == "libexec" ? folder.parent_path() / "bin" : folder;
}

}  // namespace muster
