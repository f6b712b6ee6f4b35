#include "common/process/build_id.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace muster {
namespace {

// Whether this function is part of the object.
bool IsOwn(const dl_phdr_info& object) {
  const auto here = reinterpret_cast<uintptr_t>(&BuildId);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && begin <= here && here < begin + segment.p_memsz) return true;
  }
  return false;
}

// The GNU build id in a note segment. Each note is a header, a name and a descriptor, the latter
// two padded to four bytes.
absl::string_view FindBuildId(absl::string_view notes) {
  const auto padded = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
  ElfW(Nhdr) header;
  while (notes.size() >= sizeof(header)) {
    std::memcpy(&header, notes.data(), sizeof(header));
    notes.remove_prefix(sizeof(header));
    const size_t name = padded(header.n_namesz);
    if (notes.size() < name + header.n_descsz) break;
    if (header.n_type == NT_GNU_BUILD_ID && notes.substr(0, 4) == absl::string_view("GNU\0", 4)) {
      return notes.substr(name, header.n_descsz);
    }
    notes.remove_prefix(std::min(notes.size(), name + padded(header.n_descsz)));
  }
  return {};
}

int Visit(dl_phdr_info* object, size_t, void* found) {
  if (!IsOwn(*object)) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const absl::string_view id =
        FindBuildId({reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr),
                     static_cast<size_t>(segment.p_memsz)});
    if (!id.empty()) *static_cast<std::string*>(found) = absl::BytesToHexString(id);
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(Visit, &id);
  return id;
}

}  // namespace muster
