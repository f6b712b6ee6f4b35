// The format of the shim's small files: `key=value` records, each terminated by a NUL. Keys may
// repeat.
//
// Uses only standard C++ and POSIX, so that the shim starts in about a millisecond.
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

// Keys must not contain '=' or NUL. A NUL in a value is written as a space.
std::string EncodeFields(const Fields& fields);
// Returns nothing if the text is truncated or a record has no key.
std::optional<Fields> DecodeFields(std::string_view text);

// The contents of the file; nothing, with errno set, if it cannot be read.
std::optional<std::string> ReadFile(const std::string& path);
// The number after `name ` at the start of a line, the format of the kernel's counters.
std::optional<uint64_t> CounterIn(const std::string& path, const std::string& name);
// ReplaceFile for a file with one writer, with the temporary file of ReserveFor. False with errno
// set.
bool WriteFileAtomically(const std::string& path, std::string_view contents, bool sync);
// Reserves disk space for a later WriteFileAtomically of that file, which then also succeeds on a
// full disk. False with errno set.
bool ReserveFor(const std::string& path, size_t bytes);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_FIELDS_H_
