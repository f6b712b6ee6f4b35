// Properties of the scheduler's decisions on random traces in simulated time.
//
// MUSTER_TRACES is the number of traces of each test, MUSTER_TRACE selects a single one.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/scheduler/plan/plan_world.h"
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

// The number of the owner's queued jobs, of which none restarts at once.
size_t QueuedJobs(const QueueOrder& order, const std::string& owner) {
  size_t jobs = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    for (const auto& [number, line] : order.lines(i)) {
      if (order.owner(number - 1) == owner) jobs += line.places.size();
    }
  }
  return jobs;
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

// The ways in which the jobs of a trace may differ.
struct Mix {
  uint32_t owners = 1;
  bool classes = false;
  bool unlimited = false;  // some jobs have no time limit
  bool shapes = false;     // some take whole nodes, or as many as they can
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
    const std::string owner = absl::StrCat("owner-", random_.Below(mix_.owners));
    return SubmitRandom(owner,
                        mix_.classes ? static_cast<JobClass>(random_.Below(4)) : JobClass::kNormal);
  }
  JobId SubmitRandom(const std::string& owner, JobClass job_class) {
    PlanWorld::Spec spec;
    spec.owner = owner;
    spec.job_class = job_class;
    spec.nodes = random_.OneIn(2) ? 1 : random_.Between(1, nodes_ + (random_.OneIn(8) ? 1 : 0));
    spec.slots = random_.Between(1, slots_);
    spec.length = absl::Seconds(random_.Between(1, 3600));
    spec.limit = spec.length + absl::Seconds(random_.OneIn(3) ? 0 : random_.Below(3600));
    if (mix_.unlimited && random_.OneIn(6)) spec.limit = absl::InfiniteDuration();
    if (mix_.shapes) {
      spec.all = random_.OneIn(5);
      spec.exclusive = random_.OneIn(5);
      if (random_.OneIn(4)) spec.most_nodes = nodes_;
    }
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
};

// The order of these queues is that of submission, so a job with a reservation is overtaken by
// backfilled jobs only. Its reservation never moves to a later time, and it starts by then.
TEST_F(Traces, BackfillDoesNotDelayReservation) {
  ForEach(1, {.unlimited = true}, SchedulerOptions(), [](Trace& trace) {
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

// The world checks each preemption: the victim is of a lower class, and the job that takes its
// place has not been preempted itself, so that no chain of preemptions arises.
TEST_F(Traces, PreemptionDoesNotCascade) {
  ForEach(1, {.owners = 3, .classes = true, .unlimited = true}, SchedulerOptions(),
          [](Trace& trace) { trace.Run(30, [] {}); });
}

// As the world checks, owners stay within their limits, whatever the jobs take.
TEST_F(Traces, LimitsHoldForSlotsThatJobsTake) {
  SchedulerOptions options;
  options.default_limits.running_slots = 6;
  ForEach(1, {.owners = 3, .classes = true, .unlimited = true, .shapes = true}, options,
          [](Trace& trace) { trace.Run(30, [] {}); });
}

// While a critical job waits, slots are kept from it for other critical jobs only.
TEST_F(Traces, CriticalJobsWaitBehindNoLowerClass) {
  SchedulerOptions options;
  options.ageing = absl::Hours(1);
  ForEach(1, {.owners = 3, .classes = true, .unlimited = true}, options, [](Trace& trace) {
    PlanWorld& world = trace.world();
    trace.Run(40, [&] {
      bool critical_kept = false;
      for (const Reservation& kept : world.plan().reservations) {
        critical_kept |= world.job(kept.job).spec.job_class == JobClass::kCritical;
      }
      for (const auto& [id, job] : world.jobs()) {
        const bool waits =
            job.state == PlanWorld::State::kQueued && job.spec.job_class == JobClass::kCritical;
        if (!waits || world.VerdictOf(id).hindrance != Hindrance::kReserved) continue;
        EXPECT_TRUE(critical_kept) << id << " waits behind a lower class";
      }
    });
  });
}

// Two owners keep enough jobs of class high, and two others of class normal, in the queue. The jobs
// of class low run nevertheless. Each is overdue one period after its owner's previous one has
// ended. Then it waits for at most the overdue jobs of the other owners and classes, each of which
// waits for no longer than the running jobs, and then runs.
TEST_F(Traces, EveryJobThatFitsRunsInBoundedTime) {
  constexpr int kLowJobs = 3;
  constexpr int kBusyOwners = 4;
  SchedulerOptions options;
  options.ageing = absl::Hours(5);
  ForEach(25, {}, options, [&](Trace& trace) {
    PlanWorld& world = trace.world();
    const absl::Duration longest = absl::Hours(2) + world.grace;
    std::vector<JobId> fed;
    const auto feed = [&] {
      for (int i = 0; i < kBusyOwners; ++i) {
        const std::string owner = absl::StrCat("busy-", i);
        while (QueuedJobs(world.queue().order(), owner) < 4) {
          fed.push_back(trace.SubmitRandom(owner, i < 2 ? JobClass::kHigh : JobClass::kNormal));
        }
      }
      world.Decide();
      for (const JobId& id : std::exchange(fed, {})) {
        if (!world.queue().UnplaceableReason(id).empty()) world.Cancel(id);
      }
    };
    feed();
    std::vector<JobId> low;
    for (int i = 0; i < kLowJobs; ++i) low.push_back(trace.SubmitRandom("low", JobClass::kLow));
    const SteadyTime begin = world.now();
    const absl::Duration each = options.ageing + (kBusyOwners + 1) * 2 * longest;
    while (world.now() < begin + kLowJobs * each) {
      feed();
      ASSERT_LT(world.NextEvent(), SteadyTime::Infinite());
      world.AdvanceTo(world.NextEvent());
    }
    int before = 0;
    for (const JobId& id : low) {
      if (!world.queue().UnplaceableReason(id).empty()) continue;
      ++before;
      ASSERT_GT(world.job(id).starts, 0u) << id << " never started";
      EXPECT_LE(world.job(id).first_start, begin + before * each) << id;
    }
  });
}

// However old an owner's backlog is, the first fitting job of an owner who has used less waits for
// no longer than one job runs.
TEST_F(Traces, BacklogDelaysOtherOwnerByOneJob) {
  for (const absl::Duration ageing : {absl::Minutes(30), absl::Hours(24)}) {
    SchedulerOptions options;
    options.ageing = ageing;
    ForEach(25, {}, options, [&](Trace& trace) {
      PlanWorld& world = trace.world();
      const absl::Duration longest = absl::Hours(1);
      for (int i = 0; i < 10'000; ++i) {
        const absl::Duration length = absl::Minutes(trace.random().Between(1, 60));
        world.Submit({.owner = "backlog", .limit = longest, .length = length});
      }
      world.Decide();
      world.Advance(absl::Hours(30));
      for (int i = 0; i < 20; ++i) {
        const JobId id = trace.SubmitRandom("other", JobClass::kNormal);
        world.Decide();
        if (!world.queue().UnplaceableReason(id).empty()) {
          world.Cancel(id);
          continue;
        }
        ASSERT_GT(world.queue().size(), 100u) << "the backlog has run";
        world.Advance(longest);
        ASSERT_GT(world.job(id).starts, 0u) << id;
        world.Advance(absl::Minutes(trace.random().Below(240)));
        if (world.job(id).state != PlanWorld::State::kEnded) world.Cancel(id);
        world.Decide();
      }
    });
  }
}

// Owners with equal shares and enough work of the same kinds get equal slot-seconds. (With jobs of
// different sizes they need not: slots that only the jobs of one owner can use are not left idle.)
TEST_F(Traces, OwnersGetEqualShares) {
  constexpr uint32_t kOwners = 4;
  ForEach(500, {}, SchedulerOptions(), [](Trace& trace) {
    PlanWorld world;
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
        while (QueuedJobs(world.queue().order(), owner) < 20) {
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
