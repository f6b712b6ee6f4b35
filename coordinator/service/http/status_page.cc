#include "coordinator/service/http/status_page.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "coordinator/service/http/json/json_text.h"
#include "coordinator/service/http/page_files.h"
#include "coordinator/service/http/streams/streams.h"

namespace muster::service {
namespace {

constexpr size_t kRowsPerWindow = 200;
constexpr uint64_t kLogTailLines = 500;
constexpr size_t kParameterBytes = 4096;

// A number of the query; `otherwise` if it is absent or not a number.
uint64_t NumberOf(const http::Request& request, const std::string& name, uint64_t otherwise) {
  uint64_t number = 0;
  return absl::SimpleAtoi(request.Parameter(name), &number) ? number : otherwise;
}

std::string TextOf(const http::Request& request, const std::string& name) {
  return std::string(request.Parameter(name).substr(0, kParameterBytes));
}

http::Response Refusal(const absl::Status& status) {
  const int code = absl::IsUnauthenticated(status)     ? 401
                   : absl::IsResourceExhausted(status) ? 429
                                                       : 403;
  return {code, http::kJson, JsonObject().Add("message", status.message()).Take() + "\n"};
}

http::Response SetCookie(const absl::StatusOr<std::string>& cookie) {
  if (!cookie.ok()) return Refusal(cookie.status());
  return {200, http::kJson, "{}\n", {{"Set-Cookie", *cookie}}};
}

JobIndex::Query WindowOf(const http::Request& request) {
  return {absl::AsciiStrToLower(TextOf(request, "search")), TextOf(request, "states"),
          NumberOf(request, "offset", 0),
          std::min<size_t>(NumberOf(request, "limit", kRowsPerWindow), kRowsPerWindow)};
}

v1::ReadLogRequest LogOf(const http::Request& request) {
  v1::ReadLogRequest log;
  log.set_job_id(TextOf(request, "job"));
  log.set_rank(NumberOf(request, "rank", 0));
  log.set_generation(NumberOf(request, "generation", 0));
  log.set_stream(request.Parameter("stream") == "stdout" ? v1::STDOUT : v1::STDERR);
  log.set_tail_lines(kLogTailLines);
  log.set_follow(true);
  return log;
}

// All that is shown without a sign-in: {"jobs": {state: number}, "nodes": {state: number}, "slots",
// "busy"}, without names, owners and times.
std::string CountsJson(const JobIndex& jobs, const Snapshot& snapshot) {
  std::map<std::string, size_t> states;
  size_t slots = 0;
  size_t busy = 0;
  for (const v1::Node& node : snapshot.nodes) {
    ++states[absl::AsciiStrToLower(v1::NodeState_Name(node.state()))];
    if (node.state() == v1::LOST) continue;
    slots += node.slots_size();
    for (const v1::Slot& slot : node.slots()) busy += slot.job_id().empty() ? 0 : 1;
  }
  return JsonObject()
      .AddRaw("jobs", JsonCounts(jobs.Find({})->states))
      .AddRaw("nodes", JsonCounts(states))
      .AddRaw("slots", absl::StrCat(slots))
      .AddRaw("busy", absl::StrCat(busy))
      .Take();
}

// A stream that also ends when its viewer is no longer the one for whom it was opened.
class ViewedStream final : public http::BodyStream {
 public:
  ViewedStream(http::BodyStream& body, std::function<bool()> valid)
      : body_(body), valid_(std::move(valid)) {}
  bool Write(absl::string_view bytes) override { return body_.Write(bytes) && IsOpen(); }
  bool IsOpen() const override { return body_.IsOpen() && valid_(); }

 private:
  http::BodyStream& body_;
  const std::function<bool()> valid_;
};

}  // namespace

void StatusPage::Register(http::HttpServer& server) {
  logins_.address = server.address();
  logins_.tls = server.serves_tls();
  viewers_ = std::make_unique<ViewerCheck>(authorizer_, logins_);
  for (const PageFile& file : PageFiles()) {
    server.Handle(PathOf(file), [this, &file](const http::Request& request) {
      if (!viewers_->NeedsTls(request)) return ServeFile(file, request);
      const std::string address = absl::StrCat("https://", request.Header("host"), "/");
      return http::Response{308, http::kPlainText, "", {{"Location", address}}};
    });
  }
  server.Handle("/api/session", [this](const http::Request& request) { return Session(request); });
  server.HandlePost("/api/login", [this](const http::Request& request) {
    return SetCookie(viewers_->SignIn(request));
  });
  server.HandlePost("/api/logout", [this](const http::Request& request) {
    return SetCookie(viewers_->SignOut(request));
  });
  HandleStream(server, "/api/overview",
               [this](const http::Request& request, const core::Actor&, EventWriter& out) {
                 StreamOverview(sources_, WindowOf(request), out);
               });
  HandleStream(server, "/api/job",
               [this](const http::Request& request, const core::Actor& viewer, EventWriter& out) {
                 StreamJob(sources_, viewer, TextOf(request, "id"), out);
               });
  HandleStream(server, "/api/node",
               [this](const http::Request& request, const core::Actor& viewer, EventWriter& out) {
                 StreamNode(sources_, viewer, TextOf(request, "name"), out);
               });
  HandleStream(server, "/api/comparison",
               [this](const http::Request& request, const core::Actor& viewer, EventWriter& out) {
                 StreamComparison(sources_, viewer, TextOf(request, "jobs"),
                                  TextOf(request, "array"), out);
               });
  HandleStream(server, "/api/log",
               [this](const http::Request& request, const core::Actor& viewer, EventWriter& out) {
                 StreamLog(sources_, viewer, LogOf(request), out);
               });
}

void StatusPage::HandleStream(http::HttpServer& server, const std::string& path, Stream stream) {
  server.Handle(path, [this, stream = std::move(stream)](const http::Request& request) {
    const absl::StatusOr<core::Actor> viewer = viewers_->Check(request);
    if (!viewer.ok()) return Refusal(viewer.status());
    http::Response response{200, http::kEventStream, ""};
    response.stream = [this, stream, request, viewer = *viewer](http::BodyStream& body) {
      ViewedStream viewed(body, [&] {
        const absl::StatusOr<core::Actor> now = viewers_->Check(request);
        return now.ok() && now->name == viewer.name && now->is_admin == viewer.is_admin;
      });
      EventWriter out(viewed);
      stream(request, viewer, out);
    };
    return response;
  });
}

// {"counts", and of a viewer who has signed in "user", "admin", "version", "cluster"}.
http::Response StatusPage::Session(const http::Request& request) {
  const absl::Status allowed = viewers_->CheckRequest(request);
  if (!allowed.ok()) return Refusal(allowed);
  const absl::StatusOr<TextCache::Text> counts = sources_.texts.Get(
      "counts", kPageInterval, [this] { return CountsJson(sources_.jobs, *sources_.snapshot()); });
  JsonObject session;
  session.AddRaw("counts", **counts);
  if (const auto viewer = viewers_->Check(request); viewer.ok()) {
    session.Add("version", kSoftwareVersion)
        .Add("cluster", sources_.snapshot()->store.cluster_id)
        .Add("user", viewer->name.empty() ? "user" : viewer->name)
        .Add("admin", viewer->is_admin);
  }
  return {200, http::kJson, session.Take() + "\n"};
}

}  // namespace muster::service
