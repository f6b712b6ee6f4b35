// Unpacks the archive of one file or folder that a rank's node sends.
#ifndef MUSTER_CLI_COPY_UNPACKER_H_
#define MUSTER_CLI_COPY_UNPACKER_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::cli {

// Unpacks with a tar process into a new folder beside the destination and moves the result into
// place at the end, so that an incomplete copy leaves nothing behind and the archive cannot write
// elsewhere.
class Unpacker {
 public:
  // `destination` is an existing folder, into which the result is moved, or a new name. `name` is
  // the result's name in an existing folder; empty: the name in the archive. Errors: NOT_FOUND if
  // the folder that will contain the result does not exist, or system errors.
  static absl::StatusOr<std::unique_ptr<Unpacker>> Create(const std::string& destination,
                                                          const std::string& name);
  // Writes the archive's single file to stdout instead.
  static absl::StatusOr<std::unique_ptr<Unpacker>> CreateForStdout();
  // Deletes an incomplete copy.
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // INVALID_ARGUMENT if a folder would be written to stdout.
  absl::Status Write(absl::string_view data);
  // Returns the path of the result; empty for stdout. Errors: ALREADY_EXISTS if a folder is in the
  // way, or system errors.
  absl::StatusOr<std::string> Finish();

 private:
  Unpacker() = default;
  absl::Status StartTar(const std::vector<std::string>& arguments);
  absl::Status EndTar();

  std::string folder_;  // destination of the result; empty for stdout
  std::string name_;
  std::string temporary_;
  pid_t tar_ = -1;
  int archive_ = -1;  // tar's stdin
  bool started_ = false;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_COPY_UNPACKER_H_
