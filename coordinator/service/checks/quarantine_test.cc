#include "coordinator/service/checks/quarantine.h"

#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/http/http_get.h"
#include "common/limits.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Beyond(size_t bound) { return std::string(bound + 1, 'x'); }

std::vector<std::string> FieldsOf(const Corrections& corrections) {
  std::vector<std::string> fields;
  for (const Correction& correction : corrections) fields.emplace_back(correction.field);
  return fields;
}

// -------------------------------------------------------------------------------------------------
// Hello

// The fields that are corrected, and the Hello afterwards.
std::vector<std::string> Corrected(const std::function<void(v1::Hello&)>& change,
                                   v1::Hello& hello) {
  hello = RawWorker::HelloOf("node-1");
  change(hello);
  std::vector<std::string> fields = FieldsOf(Quarantine(hello));
  EXPECT_THAT(Quarantine(hello), IsEmpty()) << "the result is out of bounds";
  return fields;
}

TEST(QuarantineTest, KeepsGoodHellos) {
  v1::Hello hello;
  EXPECT_THAT(Corrected([](v1::Hello&) {}, hello), IsEmpty());
  EXPECT_EQ(hello.SerializeAsString(), RawWorker::HelloOf("node-1").SerializeAsString());
}

TEST(QuarantineTest, CorrectsTextsOfHellos) {
  const std::string word = Beyond(limits::kLabelBytes);
  v1::Hello hello;
  EXPECT_THAT(Corrected([&](v1::Hello& h) { h.set_software_version(word); }, hello),
              ElementsAre("software_version"));
  EXPECT_EQ(hello.software_version().size(), limits::kLabelBytes);
  EXPECT_THAT(Corrected([&](v1::Hello& h) { h.set_coordinator_start(word); }, hello),
              ElementsAre("coordinator_start"));
  EXPECT_THAT(
      Corrected([](v1::Hello& h) { h.set_limits_unavailable(Beyond(limits::kSlotReasonBytes)); },
                hello),
      ElementsAre("limits_unavailable"));
  EXPECT_THAT(Corrected([&](v1::Hello& h) { h.set_advertise_address(word); }, hello),
              ElementsAre("advertise_address"));
  EXPECT_EQ(hello.advertise_address(), "");
  EXPECT_THAT(Corrected([&](v1::Hello& h) { h.set_metrics_address(word); }, hello),
              ElementsAre("metrics_address"));
  const auto corrected_slot = [&](const std::function<void(v1::Slot&)>& change) {
    return Corrected([&](v1::Hello& h) { change(*h.mutable_slots(0)); }, hello);
  };
  EXPECT_THAT(corrected_slot([&](v1::Slot& slot) { slot.set_job_id(word); }), IsEmpty());
  EXPECT_EQ(hello.slots(0).job_id(), "");
  EXPECT_THAT(corrected_slot([&](v1::Slot& slot) { slot.set_kind(word); }),
              ElementsAre("slot.kind"));
  EXPECT_THAT(corrected_slot([&](v1::Slot& slot) { slot.set_uuid(word); }),
              ElementsAre("slot.uuid"));
  EXPECT_THAT(corrected_slot(
                  [](v1::Slot& slot) { slot.set_unavailable(Beyond(limits::kSlotReasonBytes)); }),
              ElementsAre("slot.unavailable"));
  EXPECT_THAT(corrected_slot([&](v1::Slot& slot) { slot.mutable_device()->set_name(word); }),
              ElementsAre("slot.device"));
  EXPECT_THAT(corrected_slot([](v1::Slot& slot) {
                for (size_t i = 0; i <= limits::kLinksPerDevice; ++i) {
                  slot.mutable_device()->add_links();
                }
              }),
              ElementsAre("slot.device.links"));
}

TEST(QuarantineTest, CorrectsSlotsAndLabels) {
  v1::Hello hello;
  EXPECT_THAT(Corrected([](v1::Hello& h) { h.add_slots()->set_index(1); }, hello),
              ElementsAre("slot.index"));
  EXPECT_EQ(hello.slots_size(), 2);
  EXPECT_THAT(Corrected(
                  [](v1::Hello& h) {
                    for (uint32_t i = 2; i <= limits::kSlotsPerNode; ++i) {
                      h.add_slots()->set_index(i);
                    }
                  },
                  hello),
              ElementsAre("slots"));
  EXPECT_EQ(hello.slots_size(), static_cast<int>(limits::kSlotsPerNode));
  EXPECT_THAT(Corrected(
                  [](v1::Hello& h) {
                    (*h.mutable_labels())["rack"] = "r1";
                    (*h.mutable_labels())["long"] = Beyond(limits::kLabelBytes);
                    (*h.mutable_labels())[Beyond(limits::kLabelBytes)] = "long";
                    for (size_t i = 0; i < limits::kLabels; ++i) {
                      (*h.mutable_labels())[absl::StrCat(i)] = "x";
                    }
                  },
                  hello),
              ElementsAre("labels"));
  EXPECT_EQ(hello.labels_size(), static_cast<int>(limits::kLabels));
  EXPECT_EQ(hello.labels().count("long"), 0u);
}

TEST(QuarantineTest, CorrectsInventories) {
  const auto add = [](v1::Hello& hello, uint64_t generation) -> v1::GenerationReport& {
    v1::GenerationReport& report = *hello.add_inventory();
    report.set_job_id("job-abcde");
    report.set_generation(generation);
    report.add_ranks()->set_phase(v1::STARTED);
    return report;
  };
  v1::Hello hello;
  EXPECT_THAT(Corrected(
                  [&](v1::Hello& h) {
                    add(h, 1).set_job_id("");
                    add(h, 2);
                  },
                  hello),
              ElementsAre("job_id"));
  ASSERT_EQ(hello.inventory_size(), 1);
  EXPECT_EQ(hello.inventory(0).generation(), 2u);
  EXPECT_THAT(Corrected(
                  [&](v1::Hello& h) {
                    add(h, 0);
                    add(h, limits::kLargestGeneration);
                    add(h, limits::kLargestGeneration + 1);
                    add(h, std::numeric_limits<uint64_t>::max());
                  },
                  hello),
              ElementsAre("generation"));
  ASSERT_EQ(hello.inventory_size(), 1);
  EXPECT_EQ(hello.inventory(0).generation(), limits::kLargestGeneration);
  EXPECT_THAT(Corrected(
                  [&](v1::Hello& h) {
                    add(h, 1);
                    add(h, 1);
                  },
                  hello),
              ElementsAre("inventory"));
  EXPECT_EQ(hello.inventory_size(), 1);
  EXPECT_THAT(Corrected(
                  [&](v1::Hello& h) {
                    for (size_t i = 0; i <= limits::kGenerationsPerNode; ++i) {
                      add(h, i + 1).mutable_ranks(0)->set_phase(v1::EXITED);
                    }
                  },
                  hello),
              ElementsAre("generations"));
  EXPECT_THAT(Corrected(
                  [&](v1::Hello& h) {
                    for (size_t i = 0; i <= limits::kSlotsPerNode; ++i) add(h, i + 1);
                  },
                  hello),
              ElementsAre("inventory"));
  EXPECT_EQ(hello.inventory(limits::kSlotsPerNode - 1).ranks_size(), 1);
  EXPECT_EQ(hello.inventory(limits::kSlotsPerNode).ranks_size(), 0);
}

// -------------------------------------------------------------------------------------------------
// Messages

v1::WorkerMessage ReportOf(const std::function<void(v1::GenerationReport&)>& change) {
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id("job-abcde");
  report.set_generation(1);
  report.add_ranks();
  change(report);
  return message;
}

TEST(QuarantineTest, CorrectsReportsAndWarns) {
  v1::WorkerMessage message = ReportOf([](v1::GenerationReport& report) {
    report.mutable_ranks(0)->mutable_progress()->set_phase(Beyond(limits::kLabelBytes));
    for (size_t i = 0; i < limits::kSlotsPerNode; ++i) report.add_ranks();
    report.add_passed_barriers()->set_group(Beyond(limits::kKeyBytes));
    report.add_passed_barriers()->set_group("world");
  });
  v1::WorkerMessage heartbeat;
  *heartbeat.mutable_heartbeat()->add_progress() = message.report();
  EXPECT_THAT(FieldsOf(Quarantine(message).corrections),
              ElementsAre("progress.phase", "ranks", "passed_barriers"));
  EXPECT_EQ(message.report().ranks_size(), static_cast<int>(limits::kSlotsPerNode));
  EXPECT_EQ(message.report().passed_barriers_size(), 1);
  EXPECT_THAT(message.report().ranks(0).warnings(),
              ElementsAre(HasSubstr("progress.phase is 257 bytes long"),
                          HasSubstr("ranks has 1025 entries"), HasSubstr("passed_barriers has")));
  EXPECT_THAT(Quarantine(heartbeat).corrections, ::testing::SizeIs(3));
  EXPECT_EQ(heartbeat.heartbeat().progress(0).SerializeAsString(),
            message.report().SerializeAsString());
}

TEST(QuarantineTest, CorrectsStoreWaits) {
  v1::WorkerMessage message = ReportOf([](v1::GenerationReport& report) {
    for (size_t i = 0; i <= limits::kStoreWaits; ++i) report.mutable_store_waits()->add_waits();
    v1::StoreWait& wait = *report.mutable_store_waits()->mutable_waits(0);
    wait.set_what(Beyond(limits::kStoreWaitBytes));
    wait.set_reason(Beyond(limits::kLabelBytes));
    wait.mutable_since()->set_seconds(-1);
    for (size_t i = 0; i <= limits::kRanksPerJob; ++i) wait.add_missing(0);
  });
  EXPECT_THAT(FieldsOf(Quarantine(message).corrections),
              ElementsAre("store_waits", "store_waits.what", "store_waits.reason",
                          "store_waits.since", "store_waits.missing"));
  const v1::StoreWaits& waits = message.report().store_waits();
  ASSERT_EQ(waits.waits_size(), static_cast<int>(limits::kStoreWaits));
  EXPECT_EQ(waits.waits(0).what().size(), limits::kStoreWaitBytes);
  EXPECT_EQ(waits.waits(0).reason().size(), limits::kLabelBytes);
  EXPECT_FALSE(waits.waits(0).has_since());
  EXPECT_EQ(waits.waits(0).missing_size(), 0);
}

TEST(QuarantineTest, DropsMessagesOfWhichNothingCanBeUsed) {
  std::vector<std::pair<v1::WorkerMessage, std::string>> cases(8);
  cases[0].second = "kind";
  cases[1].first.mutable_hello();
  cases[1].second = "hello";
  cases[2].first = ReportOf([](v1::GenerationReport& report) { report.clear_job_id(); });
  cases[2].second = "job_id";
  cases[3].first.mutable_inspection()->set_job_id(Beyond(1000));
  cases[3].second = "job_id";
  cases[4].first.mutable_unknown_generation();
  cases[4].second = "job_id";
  cases[5].first.mutable_lease_question()->set_node_name("a/b");
  cases[5].second = "node_name";
  cases[6].first = ReportOf([](v1::GenerationReport& report) { report.set_generation(0); });
  cases[6].second = "generation";
  cases[7].first = ReportOf(
      [](v1::GenerationReport& report) { report.set_generation(limits::kLargestGeneration + 1); });
  cases[7].second = "generation";
  for (auto& [message, field] : cases) {
    const Quarantined result = Quarantine(message);
    EXPECT_THAT(FieldsOf(result.corrections), ElementsAre(field));
    EXPECT_FALSE(result.refusal.has_value());
    EXPECT_EQ(message.kind_case(), v1::WorkerMessage::KIND_NOT_SET);
  }
}

TEST(QuarantineTest, RefusesCallsThatCannotBeValid) {
  v1::WorkerMessage message;
  v1::PutKey& put = *message.mutable_put_key();
  put.set_job_id("job-abcde");
  put.set_generation(2);
  put.set_key("key");
  put.set_value(std::string(limits::kValueBytes, 'v'));
  EXPECT_FALSE(Quarantine(message).refusal.has_value());
  EXPECT_TRUE(message.has_put_key());
  put.mutable_value()->push_back('v');
  Quarantined result = Quarantine(message);
  EXPECT_THAT(FieldsOf(result.corrections), ElementsAre("put_key"));
  EXPECT_EQ(message.kind_case(), v1::WorkerMessage::KIND_NOT_SET);
  const v1::KeyValue& answer = result.refusal->key_value();
  EXPECT_EQ(answer.job_id(), "job-abcde");
  EXPECT_EQ(answer.generation(), 2u);
  EXPECT_EQ(answer.key(), "key");
  EXPECT_EQ(answer.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(answer.message(), "the value is 65537 bytes long; the limit is 65536");

  for (const std::string& key : {std::string(), Beyond(limits::kKeyBytes)}) {
    message.mutable_get_key()->set_job_id("job-abcde");
    message.mutable_get_key()->set_key(key);
    result = Quarantine(message);
    ASSERT_TRUE(result.refusal.has_value());
    EXPECT_NE(result.refusal->key_value().code(), 0);
    EXPECT_LE(result.refusal->key_value().key().size(), limits::kKeyBytes);
  }
  v1::ArriveBarrier& arrive = *message.mutable_arrive_barrier();
  arrive.set_job_id("job-abcde");
  arrive.mutable_barrier()->set_group("world");
  for (uint32_t i = 0; i <= limits::kSlotsPerNode; ++i) arrive.add_ranks(i);
  result = Quarantine(message);
  ASSERT_TRUE(result.refusal.has_value());
  EXPECT_EQ(result.refusal->release_barrier().barrier().group(), "world");
  EXPECT_EQ(result.refusal->release_barrier().message(),
            "the arrivals at a barrier: 1025 entries; the limit is 1024");
}

TEST(QuarantineTest, CorrectsOtherMessages) {
  v1::WorkerMessage message;
  v1::RankInspection& rank = *message.mutable_inspection()->add_ranks();
  message.mutable_inspection()->set_job_id("job-abcde");
  rank.set_stack(Beyond(limits::kStackBytes));
  rank.set_cpu_ratio(std::numeric_limits<double>::quiet_NaN());
  rank.mutable_silence()->set_seconds(-1);
  EXPECT_THAT(FieldsOf(Quarantine(message).corrections),
              ElementsAre("inspection.stack", "inspection.silence", "inspection.cpu_ratio"));
  EXPECT_EQ(rank.stack().size(), limits::kStackBytes);
  message.mutable_slots()->add_conditions()->set_unavailable(Beyond(limits::kSlotReasonBytes));
  EXPECT_THAT(FieldsOf(Quarantine(message).corrections), ElementsAre("slot.unavailable"));
  message.mutable_log_unavailable()->set_message(Beyond(limits::kReportedTextBytes));
  EXPECT_THAT(FieldsOf(Quarantine(message).corrections), ElementsAre("log_unavailable.message"));
  message.mutable_transfer_unavailable()->set_message(Beyond(limits::kReportedTextBytes));
  EXPECT_THAT(FieldsOf(Quarantine(message).corrections),
              ElementsAre("transfer_unavailable.message"));
  message.mutable_leaving();
  EXPECT_THAT(Quarantine(message).corrections, IsEmpty());
}

// -------------------------------------------------------------------------------------------------
// Sessions

class SessionTest : public CoordinatorFixture {
 protected:
  // Returns once the coordinator has handled the worker's messages: the session lives.
  static void Beat(RawWorker& worker) {
    static uint64_t sequence = 1000;
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_sequence(++sequence);
    ASSERT_TRUE(worker.Send(message));
    while (worker.Next(v1::CoordinatorMessage::kHeartbeatAck).heartbeat_ack().sequence() !=
           sequence) {
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
  // Cancels the job, which has its ranks on the worker, and makes the worker's slots usable again.
  void EndJob(const std::string& job, RawWorker& worker) {
    v1::CancelJobRequest cancel;
    cancel.set_job_id(job);
    v1::Job ended;
    Call(*cluster_, &v1::ClusterService::Stub::CancelJob, cancel, &ended);
    v1::Launch launch;
    launch.set_job_id(job);
    launch.set_generation(Get(job).generation());
    for (uint32_t rank = 0; rank < 2; ++rank) launch.add_ranks()->set_rank(rank);
    worker.Report(launch, v1::EXITED);
    v1::WorkerMessage slots;
    slots.mutable_slots();
    worker.Send(slots);
  }
  std::string Metrics() {
    const auto result = http::Get(coordinator_->http_address(), "/metrics");
    return result.ok() ? result->body : result.status().ToString();
  }
};

TEST(QuarantineTest, CorrectsSelfTests) {
  v1::WorkerMessage message;
  v1::SelfTestReport& report = *message.mutable_self_test();
  for (int i = 0; i < 100; ++i) report.add_checks()->set_name("disk");
  report.mutable_checks(0)->set_failure(Beyond(limits::kSlotReasonBytes));
  report.mutable_duration()->set_seconds(-1);
  EXPECT_EQ(Quarantine(message).corrections.size(), 3u);
  EXPECT_EQ(report.checks_size(), 64);
  EXPECT_LE(report.checks(0).failure().size(), limits::kSlotReasonBytes);
  EXPECT_FALSE(report.has_duration());
}

TEST_F(SessionTest, SurvivesAReportOutOfBounds) {
  const auto worker = Connect("node-1");
  const std::string job = Submit("hello");
  const v1::Launch launch = worker->Next(v1::CoordinatorMessage::kLaunch).launch();
  worker->Report(launch, v1::STARTED);
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_heartbeat()->add_progress();
  report.set_job_id(job);
  report.set_generation(1);
  v1::RankReport& rank = *report.add_ranks();
  rank.set_phase(v1::STARTED);
  rank.mutable_progress()->set_step(2);
  rank.mutable_progress()->mutable_time_left()->set_seconds(int64_t{1} << 62);
  worker->Send(message);
  Beat(*worker);
  const v1::Job seen = Get(job);
  EXPECT_EQ(seen.progress().step(), 2u);
  EXPECT_THAT(seen.warnings(), ElementsAre(HasSubstr("rank 0: progress.time_left is not from 0")));
  AwaitCondition([&] {
    return Metrics().find("muster_quarantined_reports_total{field=\"progress.time_left\"} 1") !=
           std::string::npos;
  });
  // A worker that repeats the report in its next Hello is welcome.
  v1::RankReport& other = *report.add_ranks();
  other.set_rank(1);
  other.set_phase(v1::STARTED);
  v1::Hello hello = RawWorker::HelloOf("node-1");
  *hello.add_inventory() = report;
  RawWorker again(channel_);
  again.SendHello(hello);
  again.Next(v1::CoordinatorMessage::kWelcome);
  Beat(again);
  again.Report(launch, v1::EXITED);
  AwaitState(job, v1::SUCCEEDED);
}

TEST_F(SessionTest, AnswersImpossibleKeys) {
  const auto worker = Connect("node-1");
  v1::WorkerMessage message;
  message.mutable_put_key()->set_job_id("job-abcde");
  message.mutable_put_key()->set_key(Beyond(limits::kKeyBytes));
  worker->Send(message);
  const v1::KeyValue answer = worker->Next(v1::CoordinatorMessage::kKeyValue).key_value();
  EXPECT_EQ(answer.message(), "the key is 257 bytes long; the limit is 256");
  Beat(*worker);
}

TEST_F(SessionTest, SurvivesASecondHello) {
  const auto worker = Connect("node-1");
  worker->SendHello(RawWorker::HelloOf("node-1"));
  Beat(*worker);
}

// -------------------------------------------------------------------------------------------------
// Random messages

class RandomMessages {
 public:
  using Field = google::protobuf::FieldDescriptor;

  explicit RandomMessages(uint32_t seed) : random_(seed) {}

  size_t Below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

  void Fill(google::protobuf::Message& message, int depth) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      if (Below(3) == 0) continue;
      const google::protobuf::FieldDescriptor& field = *type.field(i);
      for (size_t n = field.is_repeated() ? Below(4) : 1; n > 0; --n) Set(message, field, depth);
    }
  }

  // Sets the field, or adds a value to it.
  void Set(google::protobuf::Message& message, const Field& field, int depth) {
    const google::protobuf::Reflection& r = *message.GetReflection();
    const bool many = field.is_repeated();
    const uint64_t number = Number();
    switch (field.cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        if (depth == 0) return;
        return Fill(many ? *r.AddMessage(&message, &field) : *r.MutableMessage(&message, &field),
                    depth - 1);
      case Field::CPPTYPE_STRING:
        return many ? r.AddString(&message, &field, Text()) : r.SetString(&message, &field, Text());
      case Field::CPPTYPE_ENUM:
        return many ? r.AddEnumValue(&message, &field, static_cast<int>(number))
                    : r.SetEnumValue(&message, &field, static_cast<int>(number));
      case Field::CPPTYPE_UINT64:
        return many ? r.AddUInt64(&message, &field, number) : r.SetUInt64(&message, &field, number);
      case Field::CPPTYPE_INT64:
        return many ? r.AddInt64(&message, &field, static_cast<int64_t>(number))
                    : r.SetInt64(&message, &field, static_cast<int64_t>(number));
      case Field::CPPTYPE_UINT32:
        return many ? r.AddUInt32(&message, &field, static_cast<uint32_t>(number))
                    : r.SetUInt32(&message, &field, static_cast<uint32_t>(number));
      case Field::CPPTYPE_INT32:
        return many ? r.AddInt32(&message, &field, static_cast<int32_t>(number))
                    : r.SetInt32(&message, &field, static_cast<int32_t>(number));
      case Field::CPPTYPE_DOUBLE:
        return many ? r.AddDouble(&message, &field, Real()) : r.SetDouble(&message, &field, Real());
      case Field::CPPTYPE_FLOAT:
        return many ? r.AddFloat(&message, &field, static_cast<float>(Real()))
                    : r.SetFloat(&message, &field, static_cast<float>(Real()));
      case Field::CPPTYPE_BOOL:
        return many ? r.AddBool(&message, &field, Below(2) == 1)
                    : r.SetBool(&message, &field, Below(2) == 1);
    }
  }

 private:
  uint64_t Number() {
    switch (Below(4)) {
      case 0:
        return Below(3);
      case 1:
        return std::numeric_limits<uint64_t>::max();
      case 2:
        return uint64_t{1} << Below(64);
      default:
        return random_();
    }
  }
  double Real() {
    const double special[] = {0.0,
                              -1.0,
                              1e308,
                              -1e308,
                              std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
    return special[Below(6)];
  }
  std::string Text() {
    const size_t lengths[] = {0, 1, 300, 300, 9000};
    const size_t length = Below(50) == 0 ? 70000 : lengths[Below(5)];
    return std::string(length, static_cast<char>(' ' + Below(95)));
  }

  std::mt19937 random_;
};

// Gives a message, which is about no job, the id of a job and the number of its generation.
void Aim(google::protobuf::Message& message, const std::string& job) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const auto* const id = type.FindFieldByName("job_id");
  const auto* const generation = type.FindFieldByName("generation");
  if (id == nullptr || generation == nullptr) return;
  reflection.SetString(&message, id, job);
  reflection.SetUInt64(&message, generation, 1);
  const auto* const ranks = type.FindFieldByName("ranks");
  if (ranks == nullptr || ranks->message_type() == nullptr) return;
  for (int i = 0; i < reflection.FieldSize(message, ranks); ++i) {
    google::protobuf::Message& rank = *reflection.MutableRepeatedMessage(&message, ranks, i);
    const auto* const number = rank.GetDescriptor()->FindFieldByName("rank");
    rank.GetReflection()->SetUInt32(&rank, number, static_cast<uint32_t>(i % 2));
  }
}

// A worker that sends every kind of message with random values about its job neither loses its
// session nor disturbs another node's job. `MUSTER_TEST_SEED` repeats a run.
TEST_F(SessionTest, SurvivesRandomReports) {
  const auto good = Connect("node-1");
  const std::string other_job = Submit("undisturbed");
  const v1::Launch launch = good->Next(v1::CoordinatorMessage::kLaunch).launch();
  good->Report(launch, v1::STARTED);
  AwaitState(other_job, v1::RUNNING);
  const auto bad = Connect("node-2");
  const char* const given = std::getenv("MUSTER_TEST_SEED");
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    RandomMessages messages(given == nullptr ? seed : std::atoi(given));
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const std::string job = Submit("target");
    const google::protobuf::OneofDescriptor& kinds =
        *v1::WorkerMessage::descriptor()->FindOneofByName("kind");
    for (int n = 0; n < 60; ++n) {
      const google::protobuf::FieldDescriptor& kind =
          *kinds.field(static_cast<int>(messages.Below(kinds.field_count())));
      // The node would take no more ranks.
      if (kind.name() == "leaving") continue;
      v1::WorkerMessage message;
      messages.Set(message, kind, 5);
      if (kind.message_type() != nullptr && messages.Below(4) > 0) {
        Aim(*message.GetReflection()->MutableMessage(&message, &kind), job);
      }
      if (message.has_heartbeat()) {
        for (auto& report : *message.mutable_heartbeat()->mutable_progress()) Aim(report, job);
      }
      ASSERT_TRUE(bad->Send(message)) << message.ShortDebugString().substr(0, 2000);
      if (n % 10 == 0) Beat(*bad);
    }
    Beat(*bad);
    Beat(*good);
    if (HasFailure()) return;
    EndJob(job, *bad);
  }
  good->Report(launch, v1::EXITED);
  EXPECT_EQ(AwaitState(other_job, v1::SUCCEEDED).warnings_size(), 0);
  // A Hello with random contents is welcome, too.
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    v1::Hello hello;
    RandomMessages(seed).Fill(hello, 5);
    for (v1::GenerationReport& report : *hello.mutable_inventory()) Aim(report, other_job);
    const v1::Hello identity = RawWorker::HelloOf(absl::StrCat("random-", seed));
    hello.set_protocol_version(identity.protocol_version());
    hello.set_node_name(identity.node_name());
    hello.set_incarnation(identity.incarnation());
    hello.clear_newest_protocol_version();
    hello.clear_cluster_id();
    hello.clear_commit_index();
    RawWorker worker(channel_);
    worker.SendHello(hello);
    worker.Next(v1::CoordinatorMessage::kWelcome);
    Beat(worker);
  }
  EXPECT_EQ(Get(other_job).state(), v1::SUCCEEDED);
}

}  // namespace
}  // namespace muster::service
