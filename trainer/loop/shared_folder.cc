#include "trainer/loop/shared_folder.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "common/status.h"
#include "glog/logging.h"
#include "trainer/loop/one_rank_work.h"

namespace muster::train {

absl::StatusOr<bool> CreateSharedFolder(
    collectives::Communicator& world, const std::string& path, absl::Duration interval,
    absl::FunctionRef<absl::Status(const std::function<void()>& on_progress)> create) {
  using collectives::DataType;
  uint8_t created = 0;
  RETURN_IF_ERROR(
      RunOnOneRank(world, /*worker=*/0, interval, [&](const std::function<void()>& on_progress) {
        const absl::Status status = create(on_progress);
        LOG_IF(WARNING, !status.ok()) << status.message();
        created = status.ok() ? 1 : 0;
        return absl::OkStatus();
      }));
  // A rank must not look for the folder before it exists: a network file system may cache its
  // absence.
  RETURN_IF_ERROR(world.Broadcast(&created, 1, DataType::kUint8, /*root=*/0)->Wait());
  std::error_code error;
  int64_t blind = created != 0 && std::filesystem::is_directory(path, error) ? 0 : 1;
  RETURN_IF_ERROR(
      world.AllReduce(&blind, &blind, 1, DataType::kInt64, collectives::ReduceOp::kSum)->Wait());
  return blind == 0;
}

}  // namespace muster::train
