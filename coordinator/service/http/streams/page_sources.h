// The sources of the status page's streams.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_PAGE_SOURCES_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_PAGE_SOURCES_H_

#include <functional>
#include <memory>

#include "coordinator/service/http/job_index.h"
#include "coordinator/service/http/node_index.h"
#include "coordinator/service/http/streams/text_cache.h"
#include "coordinator/service/http/streams/ticker.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/snapshot.h"
#include "coordinator/service/relay/log_relay.h"

namespace muster::service {

// Thread-safe; shared by all streams.
struct PageSources {
  CoreLoop& loop;
  LogRelay& logs;
  std::function<std::shared_ptr<const Snapshot>()> snapshot;
  JobIndex jobs = {};
  NodeIndex nodes = {};
  TextCache texts = TextCache();
  Ticker ticker = {};
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_PAGE_SOURCES_H_
