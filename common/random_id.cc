#include "common/random_id.h"

#include <errno.h>
#include <sys/random.h>

#include <cstdlib>

namespace muster {
namespace {

// getrandom never returns fewer bytes than requested up to this size.
constexpr size_t kMostBytes = 256;

// `bytes` is at most kMostBytes.
void Fill(void* to, size_t bytes) {
  ssize_t filled = 0;
  do {
    filled = getrandom(to, bytes, 0);
  } while (filled < 0 && errno == EINTR);
  if (filled != static_cast<ssize_t>(bytes)) std::abort();
}

}  // namespace

uint64_t RandomId() {
  uint64_t number = 0;
  while (number == 0) Fill(&number, sizeof(number));
  return number;
}

std::string RandomId(size_t length, absl::string_view alphabet) {
  // Bytes from `end` on are discarded: they would make the first characters of the alphabet more
  // frequent.
  const size_t end = 256 - 256 % alphabet.size();
  std::string id;
  while (id.size() < length) {
    unsigned char bytes[kMostBytes];
    Fill(bytes, sizeof(bytes));
    for (const unsigned char byte : bytes) {
      if (byte < end && id.size() < length) id += alphabet[byte % alphabet.size()];
    }
  }
  return id;
}

std::string RandomHexId(size_t bits) { return RandomId(bits / 4, "0123456789abcdef"); }

}  // namespace muster
