#include "trainer/graph/launch_counter.h"

#include "absl/strings/string_view.h"

namespace muster::nn {

LaunchCounter::LaunchCounter(CompiledPlan* plan) : plan_(plan) {
  for (const auto& operation : plan->operations()) index_.emplace(operation.get(), index_.size());
  forward_.resize(index_.size());
  backward_.resize(index_.size());
  plan->Observe([this](const Operation& operation, const char* pass, bool done) {
    if (!done) {
      pass_.emplace();
      return;
    }
    const bool forward = absl::string_view(pass) == "forward";
    Append(pass_->launches(), (forward ? forward_ : backward_)[index_.at(&operation)]);
    pass_.reset();
  });
}

LaunchCounter::~LaunchCounter() { plan_->Observe(nullptr); }

void LaunchCounter::Append(const Launches& from, Launches& to) {
  to.insert(to.end(), from.begin(), from.end());
}

size_t LaunchCounter::total() const {
  size_t sum = objective_.size() + optimizer_.size() + other().size();
  for (const Launches& launches : forward_) sum += launches.size();
  for (const Launches& launches : backward_) sum += launches.size();
  return sum;
}

}  // namespace muster::nn
