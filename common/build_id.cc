#include "common/build_id.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace muster {
namespace {

// Whether this code is of the object.
bool IsOwn(const dl_phdr_info& object) {
  const auto here = reinterpret_cast<uintptr_t>(&BuildId);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && begin <= here && here < begin + part.p_memsz) return true;
  }
  return false;
}

// Of a run of notes: each a head, a name and a content, both filled up to four bytes.
absl::string_view FindBuildId(absl::string_view notes) {
  const auto filled_up = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
  ElfW(Nhdr) head;
  while (notes.size() >= sizeof(head)) {
    std::memcpy(&head, notes.data(), sizeof(head));
    notes.remove_prefix(sizeof(head));
    const size_t name = filled_up(head.n_namesz);
    if (notes.size() < name + head.n_descsz) break;
    if (head.n_type == NT_GNU_BUILD_ID && notes.substr(0, 4) == absl::string_view("GNU\0", 4)) {
      return notes.substr(name, head.n_descsz);
    }
    notes.remove_prefix(std::min(notes.size(), name + filled_up(head.n_descsz)));
  }
  return {};
}

int Visit(dl_phdr_info* object, size_t, void* found) {
  if (!IsOwn(*object)) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const absl::string_view id =
        FindBuildId({reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr),
                     static_cast<size_t>(part.p_memsz)});
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
