// The file in which the store reports its state to the worker.
#ifndef MUSTER_WORKER_C10D_STORE_STATUS_FILE_H_
#define MUSTER_WORKER_C10D_STORE_STATUS_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::c10d_store {

// Name of the file in the store's directory. It exists once the store listens.
inline constexpr char kStatusFile[] = "status";

// Clients that have waited for long.
struct WaitReport {
  // Names what the clients wait for, their ranks, and the ranks that have arrived:
  // `c10d key "a" (awaited by rank 0; ...)`.
  std::string what;
  int64_t since_boot_ms = 0;      // on CLOCK_BOOTTIME
  std::vector<uint32_t> missing;  // ranks that the clients wait for, as far as they can be derived
  // Why no missing rank is known.
  std::string reason;

  friend bool operator==(const WaitReport&, const WaitReport&) = default;
};

// A client that was disconnected.
struct ClientProblem {
  std::string client;            // "rank 3", or its address
  std::string text;              // "disconnected from the c10d store: ..."
  std::optional<uint32_t> rank;  // the client's, if it is known

  friend bool operator==(const ClientProblem&, const ClientProblem&) = default;
};

struct Status {
  std::vector<WaitReport> waits;
  std::vector<ClientProblem> problems;  // the oldest ones of the generation

  friend bool operator==(const Status&, const Status&) = default;
};

std::string EncodeStatus(const Status& status);
// Nothing if the text is damaged.
std::optional<Status> DecodeStatus(const std::string& text);

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_STATUS_FILE_H_
