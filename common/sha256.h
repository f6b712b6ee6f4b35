// SHA-256, as hexadecimal digits.
#ifndef MUSTER_COMMON_SHA256_H_
#define MUSTER_COMMON_SHA256_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace muster {

// Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t size_bytes);
  void Update(absl::string_view text) { Update(text.data(), text.size()); }
  // The digest of all data so far, 64 lower-case hexadecimal digits. May be called only once.
  std::string HexDigest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(absl::string_view text);

}  // namespace muster

#endif  // MUSTER_COMMON_SHA256_H_
