// The status page: its files, and the live data that they show. docs/operate/status_page.md
// describes it for users.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STATUS_PAGE_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STATUS_PAGE_H_

#include <functional>
#include <memory>

#include "common/http/http_server.h"
#include "coordinator/core/actor.h"
#include "coordinator/service/auth/authorizer.h"
#include "coordinator/service/http/login/page_logins.h"
#include "coordinator/service/http/login/viewer.h"
#include "coordinator/service/http/streams/event_writer.h"
#include "coordinator/service/http/streams/page_sources.h"

namespace muster::service {

// Number of open streams, that is of open pages and logs, over all viewers. Each has a thread.
inline constexpr int kPageStreams = 48;

// Thread-safe. Must outlive the server.
class StatusPage {
 public:
  StatusPage(CoreLoop& loop, LogRelay& logs, Authorizer& authorizer, PageLogins& logins,
             std::function<std::shared_ptr<const Snapshot>()> snapshot)
      : sources_{loop, logs, std::move(snapshot)}, authorizer_(authorizer), logins_(logins) {}

  // The jobs of the list; the core thread keeps them up to date.
  JobIndex& jobs() { return sources_.jobs; }

  void Register(http::HttpServer& server);
  // Ends the streams. Called before the server ends.
  void Stop() { sources_.ticker.Stop(); }

 private:
  // Sends events that the function writes, until the client ends.
  using Stream = std::function<void(const http::Request&, const core::Actor&, EventWriter&)>;
  void HandleStream(http::HttpServer& server, const std::string& path, Stream stream);
  http::Response Session(const http::Request& request);

  PageSources sources_;
  Authorizer& authorizer_;
  PageLogins& logins_;
  std::unique_ptr<ViewerCheck> viewers_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STATUS_PAGE_H_
