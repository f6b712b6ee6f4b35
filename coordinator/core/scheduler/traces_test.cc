// Properties of the scheduler's decisions on random traces in simulated time.
//
// MUSTER_TRACES is the number of traces of each test, MUSTER_TRACE selects a single one.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/scheduler/plan_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::IsEmpty;
using testing::PlanWorld;

constexpr uint64_t kDefaultTraces = 500;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(engine_() % end); }
  uint32_t Between(uint32_t least, uint32_t most) { return least + Below(most - least + 1); }
  bool OneIn(uint32_t count) { return Below(count) == 0; }

 private:
  std::mt19937_64 engine_;
};

// What the jobs of a trace may differ in.
struct Mix {
  uint32_t owners = 1;
  bool classes = false;
  bool unlimited = false;  // some jobs have no time limit
};

class Trace {
 public:
  Trace(uint64_t seed, Mix mix, SchedulerOptions options)
      : random_(seed), mix_(mix), world_(std::move(options)) {
    nodes_ = random_.Between(1, 5);
    slots_ = random_.Between(1, 4);
    for (uint32_t i = 0; i < nodes_; ++i) {
      world_.AddNode(absl::StrCat("node-", i), random_.OneIn(4) ? random_.Between(1, 4) : slots_);
    }
    world_.grace = absl::Seconds(random_.Between(1, 60));
  }

  PlanWorld& world() { return world_; }
  Random& random() { return random_; }

  JobId SubmitRandom() {
    PlanWorld::Spec spec;
    spec.owner = absl::StrCat("owner-", random_.Below(mix_.owners));
    if (mix_.classes) spec.job_class = static_cast<JobClass>(random_.Below(4));
    spec.nodes = random_.OneIn(2) ? 1 : random_.Between(1, nodes_ + (random_.OneIn(8) ? 1 : 0));
    spec.slots = random_.Between(1, slots_);
    spec.length = absl::Seconds(random_.Between(1, 3600));
    spec.limit = spec.length + absl::Seconds(random_.OneIn(3) ? 0 : random_.Below(3600));
    if (mix_.unlimited && random_.OneIn(6)) spec.limit = absl::InfiniteDuration();
    return world_.Submit(spec);
  }

  // Submits `jobs` jobs and lets the cluster run meanwhile; calls `check` after each decision.
  template <typename Check>
  void Run(int jobs, Check check) {
    while (jobs > 0 || world_.NextEvent() < SteadyTime::Infinite()) {
      const bool submits = jobs > 0 && (random_.OneIn(2) || !HasEnds());
      if (submits) {
        for (uint32_t i = random_.Between(1, 3); i > 0 && jobs > 0; --i, --jobs) SubmitRandom();
        world_.Decide();
      } else if (!HasEnds()) {
        return;  // nothing runs: what is queued does not fit
      } else {
        world_.AdvanceTo(world_.NextEvent());
      }
      check();
      if (::testing::Test::HasFailure()) return;
    }
  }

 private:
  bool HasEnds() const { return world_.SlotsInUse() > 0; }

  Random random_;
  Mix mix_;
  PlanWorld world_;
  uint32_t nodes_ = 1;
  uint32_t slots_ = 1;
};

class Traces : public ::testing::Test {
 protected:
  // Calls `run` with each seed, and checks what the world has found.
  template <typename Run>
  static void ForEach(uint64_t divisor, Mix mix, SchedulerOptions options, Run run) {
    const uint64_t alone = FromEnvironment("MUSTER_TRACE", 0);
    const uint64_t last =
        alone != 0 ? alone : 1 + FromEnvironment("MUSTER_TRACES", kDefaultTraces) / divisor;
    for (uint64_t seed = alone != 0 ? alone : 1; seed <= last; ++seed) {
      SCOPED_TRACE(absl::StrCat("MUSTER_TRACE=", seed));
      Trace trace(seed, mix, options);
      run(trace);
      EXPECT_THAT(trace.world().problems(), IsEmpty());
      if (HasFailure()) return;
    }
  }
  static SchedulerOptions WithoutAgeing() {
    SchedulerOptions options;
    options.ageing = absl::Hours(1'000'000);
    return options;
  }
};

// The order of these queues is that of submission, so a job with a reservation is overtaken by
// backfilled jobs only. Its reservation never moves to a later time, and it starts by then.
TEST_F(Traces, BackfillDoesNotDelayReservation) {
  ForEach(1, {.unlimited = true}, WithoutAgeing(), [](Trace& trace) {
    PlanWorld& world = trace.world();
    std::optional<Reservation> kept;
    trace.Run(30, [&] {
      if (kept.has_value() && world.job(kept->job).starts > 0) {
        EXPECT_LE(world.job(kept->job).first_start, kept->from) << kept->job;
        kept.reset();
      }
      const std::vector<Reservation>& reservations = world.plan().reservations;
      if (kept.has_value()) {
        ASSERT_FALSE(reservations.empty());
        ASSERT_EQ(reservations.front().job, kept->job);
        EXPECT_LE(reservations.front().from, kept->from) << kept->job;
        EXPECT_LE(world.now(), kept->from);
      }
      if (!reservations.empty()) kept = reservations.front();
    });
  });
}

// The world checks each preemption: the victim is of a lower class, and the job that takes its place
// has not been preempted itself, so that no chain of preemptions arises.
TEST_F(Traces, PreemptionDoesNotCascade) {
  ForEach(1, {.owners = 3, .classes = true, .unlimited = true}, SchedulerOptions(),
          [](Trace& trace) { trace.Run(30, [] {}); });
}

// All jobs end by `longest`. A job is overdue after at most four ageing periods; from then on only
// overdue jobs that were submitted earlier are before it. The first of these has a reservation,
// and so waits for no longer than the running jobs.
TEST_F(Traces, WaitIsBounded) {
  SchedulerOptions options;
  options.ageing = absl::Hours(1);
  ForEach(1, {.owners = 3, .classes = true}, options, [&](Trace& trace) {
    PlanWorld& world = trace.world();
    const absl::Duration longest = absl::Hours(2) + world.grace;
    trace.Run(60, [] {});
    for (const auto& [id, job] : world.jobs()) {
      if (!world.queue().UnplaceableReason(id).empty()) continue;
      ASSERT_GT(job.starts, 0u) << id << " never started";
      const SteadyTime overdue = job.submitted + 4 * options.ageing;
      int64_t ahead = 0;
      for (const auto& [other_id, other] : world.jobs()) {
        // Also those that run again after they were preempted.
        ahead += other.sequence < job.sequence && other.starts > 0 && other.started > overdue;
      }
      EXPECT_LE(job.first_start, overdue + (ahead + 1) * longest) << id;
    }
  });
}

// Owners with equal shares and enough work of the same kinds get equal slot-seconds. (With jobs of
// different sizes they need not: slots that only the jobs of one owner can use are not left idle.)
TEST_F(Traces, OwnersGetEqualShares) {
  constexpr uint32_t kOwners = 4;
  ForEach(500, {}, WithoutAgeing(), [](Trace& trace) {
    PlanWorld world(WithoutAgeing());
    Random& random = trace.random();
    for (int i = 0; i < 8; ++i) world.AddNode(absl::StrCat("node-", i), 4);
    std::vector<PlanWorld::Spec> kinds(3);
    for (PlanWorld::Spec& kind : kinds) {
      kind.nodes = random.Between(1, 3);
      kind.slots = random.Between(1, 4);
    }
    std::vector<std::string> owners;
    for (uint32_t i = 0; i < kOwners; ++i) owners.push_back(absl::StrCat("owner-", i));
    const SteadyTime end = world.now() + absl::Hours(48);
    while (world.now() < end) {
      for (const std::string& owner : owners) {
        while (world.queue().QueuedJobs(owner) < 20) {
          PlanWorld::Spec spec = kinds[random.Below(3)];
          spec.owner = owner;
          spec.length = absl::Seconds(random.Between(60, 1200));
          spec.limit = 2 * spec.length;
          world.Submit(spec);
        }
      }
      world.Decide();
      world.AdvanceTo(world.NextEvent());
    }
    double total = 0;
    for (const std::string& owner : owners) total += world.usage().Usage(owner, world.now());
    for (const std::string& owner : owners) {
      EXPECT_NEAR(world.usage().Usage(owner, world.now()) / total, 1.0 / kOwners, 0.05 / kOwners)
          << owner;
    }
    EXPECT_THAT(world.problems(), IsEmpty());
  });
}

// A job starts once what the decision names is gone: the jobs ahead if free slots are kept from it,
// and also the running jobs if too few slots are free.
TEST_F(Traces, RemovingNamedBlockersStartsJob) {
  SchedulerOptions options;
  options.default_limits.running_slots = 6;
  ForEach(1, {.owners = 3, .classes = true, .unlimited = true}, options, [&](Trace& trace) {
    PlanWorld& world = trace.world();
    int left = 10;
    trace.Run(20, [&] {
      if (left-- != 0 || world.queue().empty()) return;
      std::vector<JobId> order;
      QueueWalk walk(world.queue(), [](const std::string&) { return Standing(); });
      while (const JobQueue::Entry* const entry = walk.Next()) order.push_back(entry->id);
      const JobId chosen = order[trace.random().Below(static_cast<uint32_t>(order.size()))];
      const Hindrance hindrance = world.VerdictOf(chosen).hindrance;
      if (hindrance == Hindrance::kUnplaceable || hindrance == Hindrance::kNotExamined) return;
      const std::string owner = world.job(chosen).spec.owner;
      const uint32_t slots = world.job(chosen).spec.nodes * world.job(chosen).spec.slots;
      if (slots > options.default_limits.running_slots) return;
      // Named beside any other blocker.
      const bool limited =
          hindrance == Hindrance::kOwnerLimit ||
          world.usage().RunningSlots(owner) + slots > options.default_limits.running_slots;
      if (hindrance != Hindrance::kOwnerLimit) {
        for (const JobId& id : order) {
          if (id != chosen) world.Cancel(id);
        }
      }
      for (const Reservation& kept : std::vector<Reservation>(world.plan().reservations)) {
        const bool counts = limited && kept.after_preemption && kept.job != chosen;
        if (counts && world.job(kept.job).spec.owner == owner) world.Cancel(kept.job);
      }
      if (hindrance != Hindrance::kReserved || limited) {
        for (const auto& [id, job] : world.jobs()) {
          if (job.slots.empty()) continue;
          const bool ends =
              hindrance == Hindrance::kNoSlots || (limited && job.spec.owner == owner);
          if (ends) world.Cancel(id);
        }
      }
      world.Decide();
      if (world.job(chosen).starts > 0 && world.queue().Find(chosen) == nullptr) return;
      // Other jobs may have taken, or claim, the slots that the owner's limit has freed.
      ASSERT_EQ(hindrance, Hindrance::kOwnerLimit) << chosen << " still waits";
      uint32_t used = world.usage().RunningSlots(owner);
      for (const Reservation& kept : world.plan().reservations) {
        const PlanWorld::Spec& spec = world.job(kept.job).spec;
        if (kept.after_preemption && spec.owner == owner) used += spec.nodes * spec.slots;
      }
      EXPECT_TRUE(world.VerdictOf(chosen).hindrance != Hindrance::kOwnerLimit ||
                  used + slots > options.default_limits.running_slots);
    });
  });
}

}  // namespace
}  // namespace muster::core
