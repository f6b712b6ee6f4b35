// An observer for verbs that print a job only at the end.
#ifndef MUSTER_CLI_FOLLOW_QUIET_OBSERVER_H_
#define MUSTER_CLI_FOLLOW_QUIET_OBSERVER_H_

#include "cli/follow/follow.h"
#include "cli/output/console.h"

namespace muster::cli {

// Prints only that the coordinator became unreachable or reachable again.
class QuietObserver : public FollowObserver {
 public:
  explicit QuietObserver(Console& console) : console_(console) {}
  void OnJob(const v1::Job&) override {}
  void OnCoordinatorAway(const absl::Status&) override {
    console_.Note("coordinator unreachable; retrying");
  }
  void OnCoordinatorBack() override { console_.Note("coordinator reachable again"); }

 private:
  Console& console_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_QUIET_OBSERVER_H_
