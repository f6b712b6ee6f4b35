// Runs ranks as local processes or threads, with a key store for them; for tests and benchmarks.
#ifndef MUSTER_COLLECTIVES_TESTING_H_
#define MUSTER_COLLECTIVES_TESTING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// A key store in a directory with one file per key. The process that created the directory removes
// it. Thread-safe; processes share it by forking or by its path.
class FileKeyStore final : public KeyStore {
 public:
  FileKeyStore();
  // Uses `directory`, creates it if necessary, and does not remove it.
  explicit FileKeyStore(const std::string& directory);
  ~FileKeyStore() override;
  FileKeyStore(const FileKeyStore&) = delete;
  FileKeyStore& operator=(const FileKeyStore&) = delete;

  absl::Status Put(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override;

 private:
  std::string PathOf(absl::string_view key) const;
  absl::StatusOr<std::string> Read(const std::string& path) const;

  const int owner_;  // process id
  std::string directory_;
};

// Runs `body` once per rank, each in its own process, and returns the results by rank: "" for OK,
// else the status as text, or "signal N" for a process killed by a signal. A rank that is stopped
// when all others have ended, or does not end within `limit`, is killed. The calling process must
// have one thread only.
std::vector<std::string> RunRankProcesses(uint32_t size,
                                          const std::function<absl::Status(uint32_t)>& body,
                                          absl::Duration limit = absl::Seconds(60));

// Like RunRankProcesses, with threads instead of processes.
std::vector<std::string> RunRankThreads(uint32_t size,
                                        const std::function<absl::Status(uint32_t)>& body);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_TESTING_H_
