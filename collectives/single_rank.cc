#include "collectives/single_rank.h"

#include <cstring>

#include "collectives/queued_communicator.h"

namespace muster::collectives {
namespace {

class SingleRankCommunicator final : public QueuedCommunicator {
 public:
  explicit SingleRankCommunicator(const GroupOptions& options)
      : QueuedCommunicator(options.name, 0, options.members) {}
  ~SingleRankCommunicator() override { Close(); }

  absl::string_view backend() const override { return "single"; }

 protected:
  absl::Status Execute(const Operation& operation) override {
    if (operation.send != operation.recv && operation.bytes() > 0) {
      std::memmove(operation.recv, operation.send, operation.bytes());
    }
    return absl::OkStatus();
  }

  void Interrupt(const absl::Status& failure) override {}
};

}  // namespace

std::unique_ptr<Communicator> CreateSingleRank(const GroupOptions& options) {
  return std::make_unique<SingleRankCommunicator>(options);
}

}  // namespace muster::collectives
