// Checks that the daemons answer, keep running and do not grow, whatever bytes arrive at their
// ports.
//
// A real coordinator and a real worker receive, from a seed, random and mutated input on each of
// their ports, and well-framed calls with malformed messages for every method of every service.
#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/security/private_file.h"
#include "common/version.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/cluster.grpc.pb.h"
#include "proto/muster/v1/rank.grpc.pb.h"
#include "proto/muster/v1/worker.grpc.pb.h"

extern char** environ;

namespace muster {
namespace {

using security::OwnedFd;
using std::chrono::seconds;
using std::chrono::system_clock;

constexpr int kConnections = 150;      // with random bytes, to each port
constexpr int kHeldConnections = 100;  // half open, to each port
constexpr int kMessages = 25;          // malformed ones, to each method
constexpr size_t kGrowthBytes = 64 << 20;
constexpr size_t kGrowthDescriptors = 32;
constexpr seconds kCallTimeout(10);
constexpr int kSlowRequests = 32;
constexpr int kReports = 60;  // of a rank, of each kind
// The longest time that slow clients may delay others.
constexpr seconds kSlowPatience(10);

// A daemon process that prints `listening NAME=ADDRESS …`.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> arguments) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0) << argv[0];
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    std::string line;
    char byte = 0;
    while (read(out[0], &byte, 1) == 1 && byte != '\n') line += byte;
    close(out[0]);
    for (const absl::string_view word : absl::StrSplit(line, ' ')) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      addresses_.insert(pair);
    }
  }
  ~Daemon() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  const std::string& address(const std::string& name) const { return addresses_.at(name); }
  bool Runs() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }
  // Stops the daemon with SIGTERM and returns its exit status.
  int Stop() const {
    kill(pid_, SIGTERM);
    int status = -1;
    waitpid(pid_, &status, 0);
    return status;
  }

  size_t ResidentBytes() const {
    std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
    size_t all = 0;
    size_t resident = 0;
    statm >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }
  size_t Descriptors() const {
    const std::filesystem::directory_iterator open(absl::StrCat("/proc/", pid_, "/fd"));
    return std::distance(begin(open), end(open));
  }

 private:
  pid_t pid_ = -1;
  std::map<std::string, std::string> addresses_;
};

// Connects to 127.0.0.1:PORT or to the path of a unix socket.
OwnedFd Connect(const std::string& address) {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  if (absl::StartsWith(address, "/")) {
    auto& name = reinterpret_cast<sockaddr_un&>(storage);
    name.sun_family = AF_UNIX;
    strncpy(name.sun_path, address.c_str(), sizeof(name.sun_path) - 1);
    size = sizeof(name);
  } else {
    auto& name = reinterpret_cast<sockaddr_in&>(storage);
    uint32_t port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(port));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof(name);
  }
  OwnedFd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // A server that stops accepting must not block the test.
  const timeval timeout = {5, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), size), 0) << address;
  return fd;
}

void SendAll(const OwnedFd& fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the server may close the connection
    bytes.remove_prefix(n);
  }
}

class GarbageTest : public ::testing::Test {
 protected:
  static std::string Program(const std::string& path) {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    // tests/faults/garbage_test, in bazel-bin or in a test's own tree.
    return (self.parent_path().parent_path().parent_path() / path).string();
  }

  void SetUp() override {
    const char* given = std::getenv("MUSTER_TEST_SEED");
    const uint32_t seed = given == nullptr ? std::random_device()() : std::atoi(given);
    printf("MUSTER_TEST_SEED=%u\n", seed);
    random_.seed(seed);
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    setenv("MUSTER_TOKEN_DIR", (directory_ + "/tokens").c_str(), 1);
    coordinator_ = std::make_unique<Daemon>(std::vector<std::string>{
        Program("coordinator/muster-coordinator"), "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
        absl::StrCat("--data-dir=", directory_, "/c")});
    worker_ = std::make_unique<Daemon>(std::vector<std::string>{
        Program("worker/muster-worker"), "--coordinator=" + coordinator_->address("grpc"),
        "--name=node-1", "--http=127.0.0.1:0", "--slots=2",
        absl::StrCat("--data-dir=", directory_, "/w")});
    rank_socket_ = directory_ + "/w/run/rank.sock";
    std::ifstream(directory_ + "/c/token") >> token_;
    channel_ =
        grpc::CreateChannel(coordinator_->address("grpc"), grpc::InsecureChannelCredentials());
    ASSERT_TRUE(AwaitNode());
    // Warm-up, so that memory allocated at first use is not counted as growth.
    Calls(channel_, Cluster());
    Calls(channel_, Worker());
    before_ = {Measure(*coordinator_), Measure(*worker_)};
  }

  void TearDown() override {
    EXPECT_TRUE(coordinator_->Runs());
    EXPECT_TRUE(worker_->Runs());
    EXPECT_TRUE(AwaitNode()) << "the worker has lost its session";
    for (const std::string& http : {coordinator_->address("http"), worker_->address("http")}) {
      EXPECT_TRUE(absl::StartsWith(Get(http, "GET /livez HTTP/1.1\r\n\r\n"), "HTTP/1.1 200"))
          << http;
    }
    EXPECT_TRUE(Settles(*coordinator_, before_[0]))
        << "the coordinator's memory or descriptors have grown";
    EXPECT_TRUE(Settles(*worker_, before_[1])) << "the worker's memory or descriptors have grown";
    EXPECT_EQ(worker_->Stop(), 0);
    EXPECT_EQ(coordinator_->Stop(), 0);
    std::filesystem::remove_all(directory_);
  }

  struct Size {
    size_t resident_bytes;
    size_t descriptors;
  };
  static Size Measure(const Daemon& daemon) {
    return {daemon.ResidentBytes(), daemon.Descriptors()};
  }
  // Waits until the size is within limits of `before`, once closed connections are gone.
  static bool Settles(const Daemon& daemon, const Size& before) {
    const auto deadline = system_clock::now() + seconds(20);
    Size now;
    do {
      now = Measure(daemon);
      if (now.descriptors <= before.descriptors + kGrowthDescriptors) break;
      poll(nullptr, 0, 50);
    } while (system_clock::now() < deadline);
    printf("resident %zu KiB, was %zu; %zu descriptors, were %zu\n", now.resident_bytes >> 10,
           before.resident_bytes >> 10, now.descriptors, before.descriptors);
    return now.descriptors <= before.descriptors + kGrowthDescriptors &&
           now.resident_bytes <= before.resident_bytes + kGrowthBytes;
  }

  bool AwaitNode() {
    const auto deadline = system_clock::now() + seconds(20);
    const auto stub = v1::ClusterService::NewStub(channel_);
    while (system_clock::now() < deadline) {
      grpc::ClientContext context;
      context.set_deadline(deadline);
      context.AddMetadata("authorization", "Bearer " + token_);
      v1::ListNodesResponse nodes;
      const grpc::Status status = stub->ListNodes(&context, {}, &nodes);
      if (!status.ok()) printf("ListNodes: %s\n", status.error_message().c_str());
      if (nodes.nodes_size() == 1 && nodes.nodes(0).state() == v1::READY) return true;
    }
    return false;
  }

  std::string Bytes(size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  size_t Below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

  // Returns a message of the type with values in most of its fields.
  std::unique_ptr<google::protobuf::Message> Message(const google::protobuf::Descriptor& type,
                                                     int depth) {
    auto* factory = google::protobuf::MessageFactory::generated_factory();
    std::unique_ptr<google::protobuf::Message> message(factory->GetPrototype(&type)->New());
    Fill(*message, depth);
    return message;
  }

  void Fill(google::protobuf::Message& message, int depth) {
    using google::protobuf::FieldDescriptor;
    const auto& reflection = *message.GetReflection();
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *message.GetDescriptor()->field(i);
      if (Below(3) == 0) continue;
      for (size_t n = field.is_repeated() ? Below(4) : 1; n > 0; --n) {
        Set(message, reflection, field, depth);
      }
    }
  }

  void Set(google::protobuf::Message& message, const google::protobuf::Reflection& reflection,
           const google::protobuf::FieldDescriptor& field, int depth) {
    using google::protobuf::FieldDescriptor;
    const bool many = field.is_repeated();
    const auto number = static_cast<uint64_t>(random_()) << Below(33);
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth > 0) {
          Fill(many ? *reflection.AddMessage(&message, &field)
                    : *reflection.MutableMessage(&message, &field),
               depth - 1);
        }
        return;
      case FieldDescriptor::CPPTYPE_STRING: {
        // Text must be UTF-8 to be sent at all.
        std::string text = field.type() == FieldDescriptor::TYPE_BYTES
                               ? Bytes(Below(300))
                               : std::string(Below(300), static_cast<char>(' ' + Below(95)));
        many ? reflection.AddString(&message, &field, text)
             : reflection.SetString(&message, &field, text);
        return;
      }
      case FieldDescriptor::CPPTYPE_ENUM:
        many ? reflection.AddEnumValue(&message, &field, static_cast<int>(Below(100)))
             : reflection.SetEnumValue(&message, &field, static_cast<int>(Below(100)));
        return;
      case FieldDescriptor::CPPTYPE_UINT64:
        many ? reflection.AddUInt64(&message, &field, number)
             : reflection.SetUInt64(&message, &field, number);
        return;
      case FieldDescriptor::CPPTYPE_INT64:
        many ? reflection.AddInt64(&message, &field, static_cast<int64_t>(number))
             : reflection.SetInt64(&message, &field, static_cast<int64_t>(number));
        return;
      case FieldDescriptor::CPPTYPE_UINT32:
        many ? reflection.AddUInt32(&message, &field, static_cast<uint32_t>(number))
             : reflection.SetUInt32(&message, &field, static_cast<uint32_t>(number));
        return;
      case FieldDescriptor::CPPTYPE_INT32:
        many ? reflection.AddInt32(&message, &field, static_cast<int32_t>(number))
             : reflection.SetInt32(&message, &field, static_cast<int32_t>(number));
        return;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        many ? reflection.AddDouble(&message, &field, 1e300 * static_cast<double>(number))
             : reflection.SetDouble(&message, &field, 1e300 * static_cast<double>(number));
        return;
      case FieldDescriptor::CPPTYPE_FLOAT:
        many ? reflection.AddFloat(&message, &field, static_cast<float>(number))
             : reflection.SetFloat(&message, &field, static_cast<float>(number));
        return;
      case FieldDescriptor::CPPTYPE_BOOL:
        many ? reflection.AddBool(&message, &field, Below(2) == 1)
             : reflection.SetBool(&message, &field, Below(2) == 1);
        return;
    }
  }

  // Returns random bytes or a message of the type: whole, truncated or with some bytes changed.
  std::string Payload(const google::protobuf::Descriptor& type) {
    if (Below(4) == 0) return Bytes(Below(2000));
    std::string bytes = Message(type, 4)->SerializeAsString();
    if (bytes.empty() || Below(3) == 0) return bytes;
    if (Below(2) == 0) return bytes.substr(0, Below(bytes.size()));
    for (size_t n = 1 + Below(8); n > 0; --n)
      bytes[Below(bytes.size())] = static_cast<char>(random_());
    return bytes;
  }

  // Makes one call with exactly these messages.
  grpc::Status Call(grpc::GenericStub& stub, const std::string& method,
                    const std::vector<std::string>& messages) {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + kCallTimeout);
    context.AddMetadata("authorization", "Bearer " + token_);
    grpc::CompletionQueue queue;
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    bool open = wait();
    for (const std::string& message : messages) {
      if (!open) break;
      const grpc::Slice slice(message);
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      open = wait();
    }
    if (open) {
      call->WritesDone(nullptr);
      wait();
    }
    grpc::ByteBuffer answer;
    do {
      call->Read(&answer, nullptr);
    } while (wait());
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    return status;
  }

  static const google::protobuf::ServiceDescriptor& Cluster() {
    return *v1::SubmitJobRequest::descriptor()->file()->service(0);
  }
  static const google::protobuf::ServiceDescriptor& Worker() {
    return *v1::WorkerMessage::descriptor()->file()->service(0);
  }

  // Sends malformed messages to every method of the service; each call must end with a status soon.
  void Calls(const std::shared_ptr<grpc::Channel>& channel,
             const google::protobuf::ServiceDescriptor& service) {
    grpc::GenericStub stub(channel);
    for (int i = 0; i < service.method_count(); ++i) {
      const auto& method = *service.method(i);
      const std::string name = absl::StrCat("/", service.full_name(), "/", method.name());
      std::map<int, int> statuses;
      for (int n = 0; n < kMessages; ++n) {
        std::vector<std::string> messages(method.client_streaming() ? 1 + Below(3) : 1);
        for (std::string& message : messages) message = Payload(*method.input_type());
        const grpc::Status status = Call(stub, name, messages);
        EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << name;
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE)
            << name << ": " << status.error_message();
        ++statuses[status.error_code()];
      }
      std::string line = name;
      for (const auto& [code, count] : statuses) absl::StrAppend(&line, " ", code, "×", count);
      printf("%s\n", line.c_str());
    }
  }

  // Returns everything that an HTTP server answers until it closes the connection.
  static std::string Get(const std::string& address, absl::string_view request) {
    const OwnedFd fd = Connect(address);
    SendAll(fd, request);
    std::string answer;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0) answer.append(buffer, n);
    return answer;
  }

  // ---- Jobs

  template <typename Request, typename Response>
  Response CallCluster(grpc::Status (v1::ClusterService::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                       const Request& request) {
    const auto stub = v1::ClusterService::NewStub(channel_);
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + kCallTimeout);
    context.AddMetadata("authorization", "Bearer " + token_);
    Response response;
    const grpc::Status status = ((*stub).*method)(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  std::string Submit(const std::vector<std::string>& command) {
    v1::SubmitJobRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.mutable_spec()->set_name("job");
    for (const std::string& word : command) request.mutable_spec()->add_command(word);
    return CallCluster<v1::SubmitJobRequest, v1::SubmitJobResponse>(
               &v1::ClusterService::Stub::SubmitJob, request)
        .job()
        .job_id();
  }
  v1::Job JobOf(const std::string& id) {
    v1::GetJobRequest request;
    request.set_job_id(id);
    return CallCluster<v1::GetJobRequest, v1::Job>(&v1::ClusterService::Stub::GetJob, request);
  }
  v1::JobState StateOf(const std::string& id) { return JobOf(id).state(); }
  void Cancel(const std::string& job) {
    v1::CancelJobRequest request;
    request.set_job_id(job);
    request.mutable_grace_period();
    CallCluster<v1::CancelJobRequest, v1::Job>(&v1::ClusterService::Stub::CancelJob, request);
  }
  template <typename Condition>
  static bool Await(const Condition& condition) {
    const auto deadline = system_clock::now() + seconds(20);
    while (!condition()) {
      if (system_clock::now() > deadline) return false;
      poll(nullptr, 0, 20);
    }
    return true;
  }
  static std::map<std::string, std::string> ReadVariables(const std::string& path) {
    std::map<std::string, std::string> variables;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(line, absl::MaxSplits('=', 1));
      variables.insert(pair);
    }
    return variables;
  }

  // Calls a method of the rank's service with random values. Some of the calls wait.
  template <typename Request, typename Response>
  void CallWith(v1::RankService::Stub& stub,
                grpc::Status (v1::RankService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                const v1::RankIdentity& identity) {
    Request request;
    Fill(request, 4);
    *request.mutable_identity() = identity;
    // A failure would end the job.
    if constexpr (std::is_same_v<Request, v1::ReportRequest>) request.clear_failure();
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + std::chrono::milliseconds(50));
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  }

  std::string RandomProgress() {
    const char* const keys[] = {"step", "total_steps", "samples", "epoch", "loss", "phase"};
    const char* const values[] = {"0",
                                  "1",
                                  "9223372036854775807",
                                  "18446744073709551615",
                                  "-1",
                                  "nan",
                                  "inf",
                                  "1e308",
                                  "\xff",
                                  "",
                                  "0.5"};
    const bool json = Below(2) == 0;
    std::string line = json ? "{" : "";
    for (size_t n = 1 + Below(4); n > 0; --n) {
      const std::string key = keys[Below(std::size(keys))];
      const std::string value = values[Below(std::size(values))];
      absl::StrAppend(&line, json ? absl::StrCat("\"", key, "\": ", value, n > 1 ? ", " : "}")
                                  : absl::StrCat(key, "=", value, " "));
    }
    return line;
  }

  std::vector<std::string> Ports() const {
    return {coordinator_->address("grpc"), coordinator_->address("http"), worker_->address("http"),
            rank_socket_};
  }

  std::mt19937 random_;
  std::string directory_ = "/tmp/muster-garbage.XXXXXX";
  std::string rank_socket_;
  std::string token_;
  std::unique_ptr<Daemon> coordinator_;
  std::unique_ptr<Daemon> worker_;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<Size> before_;
};

TEST_F(GarbageTest, SurvivesMalformedMessages) {
  Calls(channel_, Cluster());
  Calls(channel_, Worker());
  Calls(grpc::CreateChannel("unix:" + rank_socket_, grpc::InsecureChannelCredentials()),
        *v1::JoinRequest::descriptor()->file()->service(0));
}

// A rank that calls its worker with a valid token and random values, and appends random lines to
// its progress file, does not cost the worker its session, and other jobs run.
TEST_F(GarbageTest, SurvivesRandomReportsOfARank) {
  const std::string variables = directory_ + "/environment";
  const std::string job = Submit({"/bin/sh", "-c",
                                  absl::StrCat("env > ", variables, ".part; mv ", variables,
                                               ".part ", variables, "; exec sleep 600")});
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(variables); }));
  const std::map<std::string, std::string> environment = ReadVariables(variables);
  v1::RankIdentity identity;
  identity.set_job_id(job);
  identity.set_generation(1);
  identity.set_token(environment.at("MUSTER_RANK_TOKEN"));
  const auto stub = v1::RankService::NewStub(
      grpc::CreateChannel("unix:" + rank_socket_, grpc::InsecureChannelCredentials()));
  std::ofstream progress(environment.at("MUSTER_PROGRESS"), std::ios::app);
  for (int n = 0; n < kReports; ++n) {
    CallWith<v1::ReportRequest, v1::ReportResponse>(*stub, &v1::RankService::Stub::Report,
                                                    identity);
    CallWith<v1::JoinRequest, v1::JoinResponse>(*stub, &v1::RankService::Stub::Join, identity);
    CallWith<v1::PutRankKeyRequest, v1::PutRankKeyResponse>(*stub, &v1::RankService::Stub::PutKey,
                                                            identity);
    CallWith<v1::GetRankKeyRequest, v1::GetRankKeyResponse>(*stub, &v1::RankService::Stub::GetKey,
                                                            identity);
    CallWith<v1::BarrierRequest, v1::BarrierResponse>(*stub, &v1::RankService::Stub::Barrier,
                                                      identity);
    progress << (Below(2) == 0 ? Bytes(Below(300)) : RandomProgress()) << '\n' << std::flush;
  }
  const std::string other = Submit({"/bin/true"});
  EXPECT_TRUE(Await([&] { return StateOf(other) == v1::SUCCEEDED; }));
  EXPECT_EQ(StateOf(job), v1::RUNNING) << JobOf(job).message();
  EXPECT_TRUE(absl::StrContains(Get(worker_->address("http"), "GET /metrics HTTP/1.1\r\n\r\n"),
                                "muster_worker_sessions_total 1\n"))
      << "the worker lost its session";
  Cancel(job);
  EXPECT_TRUE(Await([&] { return StateOf(job) == v1::CANCELLED; }));
}

TEST_F(GarbageTest, SurvivesRandomBytesAndTruncatedHttp2) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  for (const std::string& port : Ports()) {
    for (int i = 0; i < kConnections; ++i) {
      const OwnedFd fd = Connect(port);
      switch (Below(4)) {
        case 0:
          SendAll(fd, Bytes(Below(4000)));
          break;
        case 1:
          SendAll(fd, preface.substr(0, Below(preface.size())));
          break;
        case 2:  // frames of any kind and length
          SendAll(fd, absl::StrCat(preface, settings, Bytes(Below(4000))));
          break;
        default: {  // a frame that announces more bytes than follow
          std::string head = Bytes(9);
          head[3] = static_cast<char>(i % 10);
          SendAll(fd, absl::StrCat(preface, settings, head, Bytes(Below(200))));
        }
      }
    }
  }
}

TEST_F(GarbageTest, SurvivesIdleConnections) {
  std::vector<OwnedFd> held;
  for (const std::string& port : {coordinator_->address("grpc"), rank_socket_}) {
    for (int i = 0; i < kHeldConnections; ++i) {
      held.push_back(Connect(port));
      if (i % 2 == 0) SendAll(held.back(), "PRI * HT");
    }
  }
  EXPECT_TRUE(AwaitNode()) << "held connections block other clients";
}

TEST_F(GarbageTest, SurvivesHttpRequestsOfAnySize) {
  for (const std::string& port : {coordinator_->address("http"), worker_->address("http")}) {
    const std::string huge(1 << 20, 'a');
    for (const std::string& request :
         {absl::StrCat("GET /", huge, " HTTP/1.1\r\n\r\n"),
          absl::StrCat("GET / HTTP/1.1\r\nX-", huge, ": 1\r\n\r\n"),
          absl::StrCat("GET /", Bytes(500), " HTTP/1.1\r\n\r\n"), std::string("GET\r\n\r\n"),
          std::string("POST /livez HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"),
          std::string("GET /../../../../etc/passwd HTTP/1.1\r\n\r\n"),
          std::string("GET /livez?%00%ff%%%= HTTP/1.1\r\n\r\n")}) {
      const std::string answer = Get(port, request);
      EXPECT_FALSE(absl::StrContains(answer, "root:")) << request.substr(0, 60);
    }
    // Slow requests: a single byte each. Their connections are closed after a timeout.
    std::vector<OwnedFd> slow;
    for (int i = 0; i < kSlowRequests; ++i) {
      slow.push_back(Connect(port));
      SendAll(slow.back(), "G");
    }
    const auto start = system_clock::now();
    std::string answer;
    while (answer.empty() && system_clock::now() < start + kSlowPatience) {
      answer = Get(port, "GET /livez HTTP/1.1\r\n\r\n");
    }
    EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer;
    printf("%s answered %.1f s after %zu slow requests\n", port.c_str(),
           std::chrono::duration<double>(system_clock::now() - start).count(), slow.size());
  }
}

}  // namespace
}  // namespace muster
