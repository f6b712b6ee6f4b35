// For tests and benchmarks: ranks as processes of this machine, and a key store for them.
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

// A directory with a file per key, removed by the object that made it. Thread-safe; processes share
// it by forking, or by its path.
class FileKeyStore final : public KeyStore {
 public:
  FileKeyStore();
  // `directory` is there or is made, and stays.
  explicit FileKeyStore(const std::string& directory);
  ~FileKeyStore() override;
  FileKeyStore(const FileKeyStore&) = delete;
  FileKeyStore& operator=(const FileKeyStore&) = delete;

  absl::Status Put(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override;

 private:
  std::string PathOf(absl::string_view key) const;
  absl::StatusOr<std::string> Read(const std::string& path) const;

  const int owner_;  // process
  std::string directory_;
};

// Runs `body` once per rank, each in a process of its own, and gives back by rank what it returned:
// "" for OK, else the status as text; "signal N" for a process that died of one. A rank that is
// stopped when all others have ended, or does not end within `limit`, is killed. Call it while the
// process has one thread only.
std::vector<std::string> RunRankProcesses(uint32_t size,
                                          const std::function<absl::Status(uint32_t)>& body,
                                          absl::Duration limit = absl::Seconds(60));

// The same with threads.
std::vector<std::string> RunRankThreads(uint32_t size,
                                        const std::function<absl::Status(uint32_t)>& body);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_TESTING_H_
