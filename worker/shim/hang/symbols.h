// Names for addresses in the code of a process.
#ifndef MUSTER_WORKER_SHIM_HANG_SYMBOLS_H_
#define MUSTER_WORKER_SHIM_HANG_SYMBOLS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace muster::shim {

// Reads the process's memory map once, and the symbol tables of the files that addresses are in.
// Uses the size of symbols, so that code whose symbol was stripped does not get the name of the
// function before it.
class Symbols {
 public:
  explicit Symbols(pid_t pid);
  ~Symbols();

  // "function(arguments)+0x12 (libx.so)", or "libx.so+0x1234" if the file has no symbol there.
  std::string NameOf(uint64_t address);

 private:
  struct Mapping {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t file_offset = 0;
    std::string path;
  };
  class File;

  const File* Open(const std::string& path);

  const pid_t pid_;
  std::vector<Mapping> mappings_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_HANG_SYMBOLS_H_
