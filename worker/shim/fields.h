// The form of the shim's small files: `key=value` records, each ended by a NUL. A key may occur
// again.
//
// Plain C++ and POSIX: the shim links nothing else, so that it starts in about a millisecond.
#ifndef MUSTER_WORKER_SHIM_FIELDS_H_
#define MUSTER_WORKER_SHIM_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::shim {

using Fields = std::vector<std::pair<std::string, std::string>>;

// Keys hold neither '=' nor NUL. A NUL in a value is written as a space.
std::string EncodeFields(const Fields& fields);
// Nothing when the text was cut off or a record has no key.
std::optional<Fields> DecodeFields(std::string_view text);

// The whole file; nothing, with errno set, when it cannot be read.
std::optional<std::string> ReadFile(const std::string& path);
// The number after `name ` at the start of a line, as the kernel's counters are written.
std::optional<uint64_t> CounterIn(const std::string& path, const std::string& name);
// Written beside and renamed: a reader sees the old contents, all of the new, or no file. With
// `sync` it also survives a power cut once this returns. False with errno set.
bool WriteFileAtomically(const std::string& path, std::string_view contents, bool sync);
// Takes the room on the disk that a later WriteFileAtomically of that file needs, which then
// succeeds on a full disk, too. False with errno set.
bool ReserveFor(const std::string& path, size_t bytes);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_FIELDS_H_
