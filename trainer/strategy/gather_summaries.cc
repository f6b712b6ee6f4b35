#include "trainer/strategy/gather_summaries.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::train {

using collectives::Communicator;
using collectives::DataType;
using collectives::ReduceOp;

absl::StatusOr<std::vector<v1::TrainSummary>> GatherSummaries(Communicator& world,
                                                              const v1::TrainSummary& own) {
  // All ranks send the same number of bytes: a length, then the text padded to the longest one.
  std::string text = own.SerializeAsString();
  const auto length = static_cast<int64_t>(text.size());
  int64_t longest = length;
  RETURN_IF_ERROR(world.AllReduce(&longest, &longest, 1, DataType::kInt64, ReduceOp::kMax)->Wait());
  const size_t bytes = sizeof(length) + static_cast<size_t>(longest);
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
  text.resize(bytes);
  std::string all(world.rank() == 0 ? bytes * world.size() : 0, '\0');
  RETURN_IF_ERROR(world.Gather(text.data(), all.data(), bytes, DataType::kUint8, 0)->Wait());
  std::vector<v1::TrainSummary> summaries;
  for (size_t at = 0; at < all.size(); at += bytes) {
    int64_t size = 0;
    std::memcpy(&size, all.data() + at, sizeof(size));
    if (size < 0 || size > longest ||
        !summaries.emplace_back().ParseFromArray(all.data() + at + sizeof(size),
                                                 static_cast<int>(size))) {
      return absl::DataLossError(absl::StrCat("cannot parse the summary of rank ", at / bytes));
    }
  }
  return summaries;
}

absl::StatusOr<uint32_t> CountDiffering(Communicator& world, Communicator& equals,
                                        const std::string& digest) {
  std::string first = digest;
  RETURN_IF_ERROR(equals.Broadcast(first.data(), first.size(), DataType::kUint8, 0)->Wait());
  int64_t differing = first != digest ? 1 : 0;
  RETURN_IF_ERROR(
      world.AllReduce(&differing, &differing, 1, DataType::kInt64, ReduceOp::kSum)->Wait());
  return static_cast<uint32_t>(differing);
}

}  // namespace muster::train
