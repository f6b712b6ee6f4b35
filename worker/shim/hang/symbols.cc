#include "worker/shim/hang/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "common/files/owned_fd.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

constexpr size_t kNameLength = 160;

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, value);
  return text;
}

std::string Demangled(const char* name) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && demangled != nullptr ? demangled : name;
  std::free(demangled);
  if (text.size() > kNameLength) text.replace(kNameLength, std::string::npos, "...");
  return text;
}

}  // namespace

// An ELF file, mapped into memory. Offsets in the file are checked: it may be damaged.
class Symbols::File {
 public:
  explicit File(const std::string& path) {
    const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status = {};
    if (fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
      if (data_ == MAP_FAILED) data_ = nullptr;
    }
  }
  ~File() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // The name of the function at an offset in the file, and the offset within it.
  std::optional<std::pair<const char*, uint64_t>> Find(uint64_t file_offset) const {
    const auto* const header = At<ElfW(Ehdr)>(0, 1);
    if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
    const std::optional<uint64_t> address = AddressOf(*header, file_offset);
    const auto* const sections = At<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
    if (!address.has_value() || sections == nullptr) return {};
    for (int i = 0; i < header->e_shnum; ++i) {
      const ElfW(Shdr)& section = sections[i];
      const bool table = section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM;
      if (!table || section.sh_link >= header->e_shnum) continue;
      if (auto found = FindIn(section, sections[section.sh_link], *address)) return found;
    }
    return {};
  }

 private:
  template <typename T>
  const T* At(uint64_t offset, uint64_t count) const {
    if (data_ == nullptr || offset > size_ || count > (size_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(static_cast<const char*>(data_) + offset);
  }

  std::optional<uint64_t> AddressOf(const ElfW(Ehdr) & header, uint64_t file_offset) const {
    const auto* const segments = At<ElfW(Phdr)>(header.e_phoff, header.e_phnum);
    for (int i = 0; segments != nullptr && i < header.e_phnum; ++i) {
      const ElfW(Phdr)& segment = segments[i];
      if (segment.p_type == PT_LOAD && file_offset >= segment.p_offset &&
          file_offset - segment.p_offset < segment.p_filesz) {
        return file_offset - segment.p_offset + segment.p_vaddr;
      }
    }
    return std::nullopt;
  }

  std::optional<std::pair<const char*, uint64_t>> FindIn(const ElfW(Shdr) & table,
                                                         const ElfW(Shdr) & names,
                                                         uint64_t address) const {
    const uint64_t count = table.sh_size / sizeof(ElfW(Sym));
    const auto* const symbols = At<ElfW(Sym)>(table.sh_offset, count);
    const char* const strings = At<char>(names.sh_offset, names.sh_size);
    if (symbols == nullptr || strings == nullptr) return {};
    for (uint64_t i = 0; i < count; ++i) {
      const ElfW(Sym)& symbol = symbols[i];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= names.sh_size) continue;
      if (address < symbol.st_value || address - symbol.st_value >= symbol.st_size) continue;
      const char* const name = strings + symbol.st_name;
      if (memchr(name, 0, names.sh_size - symbol.st_name) == nullptr) continue;
      return std::make_pair(name, address - symbol.st_value);
    }
    return {};
  }

  void* data_ = nullptr;
  size_t size_ = 0;
};

Symbols::Symbols(pid_t pid) : pid_(pid) {
  const std::string maps = ReadFile("/proc/" + std::to_string(pid) + "/maps").value_or("");
  size_t at = 0;
  while (at < maps.size()) {
    size_t newline = maps.find('\n', at);
    if (newline == std::string::npos) newline = maps.size();
    const std::string line = maps.substr(at, newline - at);
    at = newline + 1;
    Mapping mapping;
    char permissions[8] = "";
    int path = 0;
    const int fields =
        std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n",
                    &mapping.begin, &mapping.end, permissions, &mapping.file_offset, &path);
    if (fields < 4 || path == 0 || std::strchr(permissions, 'x') == nullptr) continue;
    mapping.path = line.substr(static_cast<size_t>(path));
    mappings_.push_back(std::move(mapping));
  }
}

Symbols::~Symbols() = default;

const Symbols::File* Symbols::Open(const std::string& path) {
  std::unique_ptr<File>& file = files_[path];
  // Through the process's root, in case it runs in a container.
  if (file == nullptr) {
    file = std::make_unique<File>("/proc/" + std::to_string(pid_) + "/root" + path);
  }
  return file.get();
}

std::string Symbols::NameOf(uint64_t address) {
  for (const Mapping& mapping : mappings_) {
    if (address < mapping.begin || address >= mapping.end) continue;
    const std::string module = mapping.path.substr(mapping.path.rfind('/') + 1);
    const uint64_t offset = address - mapping.begin + mapping.file_offset;
    if (mapping.path.empty() || mapping.path[0] != '/') return module + "+" + Hex(offset);
    const auto symbol = Open(mapping.path)->Find(offset);
    if (!symbol.has_value()) return module + "+" + Hex(offset);
    return Demangled(symbol->first) + "+" + Hex(symbol->second) + " (" + module + ")";
  }
  return Hex(address);
}

}  // namespace muster::shim
