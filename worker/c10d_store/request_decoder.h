// Decodes the bytes that a TCPStore client sends.
#ifndef MUSTER_WORKER_C10D_STORE_REQUEST_DECODER_H_
#define MUSTER_WORKER_C10D_STORE_REQUEST_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "worker/c10d_store/request.h"

namespace muster::c10d_store {

// Limits of one request. PyTorch's own server accepts keys of the same length and smaller values.
inline constexpr size_t kMaxKeyBytes = 8 << 10;
inline constexpr size_t kMaxValueBytes = 64 << 20;
inline constexpr size_t kMaxKeys = 128 << 10;
inline constexpr size_t kMaxRequestBytes = 2 * kMaxValueBytes + (1 << 20);

// The request is not complete yet.
struct Incomplete {};
// The client cannot be served: it speaks another protocol or exceeds a limit. The decoder must not
// be used any further.
struct Refused {
  std::string reason;
};

// Supports two versions of the protocol. The first request tells them apart:
// - that of PyTorch 1.13: no greeting, nine types of request;
// - that of PyTorch 2.x with a greeting, the number kGreeting in a request of type 0.
class RequestDecoder {
 public:
  void Append(std::string_view bytes);
  // The next request. Call it until it returns Incomplete.
  std::variant<Incomplete, Refused, Request, WorkerRequest> Next();

 private:
  enum class Version : uint8_t { kUnknown, kWithoutGreeting, kWithGreeting };

  // False until the version is known.
  bool ReadVersion();

  Version version_ = Version::kUnknown;
  std::string input_;
  size_t consumed_ = 0;  // bytes of input_
  size_t needed_ = 1;    // unconsumed bytes without which the next request is incomplete
};

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_REQUEST_DECODER_H_
